"""DALI's index files (``.idx``, as its ``wds2idx`` writes them), so that both may use one."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.errors import IndexFileError
from shoal.files import open_write
from shoal.shards._grouping import Entry, split_name
from shoal.shards._header import BLOCK
from shoal.shards._index import Extent, IndexBuilder, ShardIndex

__all__ = ["read_dali_index", "write_dali_index"]

_VERSION = "v1.2"


def write_dali_index(index: ShardIndex, path: str | os.PathLike[str]) -> None:
    """Write an index that DALI's WebDataset reader takes.

    A name with white space in it cannot be written: DALI separates by blanks and quotes nothing.

    >>> import tempfile
    >>> builder = IndexBuilder()
    >>> builder.add(Entry("a", 0, {"jpg": (512, 100)}))
    >>> path = Path(tempfile.mkdtemp(), "a.idx")
    >>> write_dali_index(builder.build(shard_size=4096, version="v1"), path)
    >>> path.read_text().splitlines()
    ['v1.2 1', 'jpg 512 100 a.jpg']
    """
    if not index.seekable:
        raise IndexFileError("DALI reads plain tars only: a compressed shard has no index for it")
    lines = [f"{_VERSION} {len(index)}", *(_line(entry) for entry in index.entries())]
    with open_write(path) as target:
        target.write(("\n".join(lines) + "\n").encode("utf-8", "surrogateescape"))


def read_dali_index(path: str | os.PathLike[str], shard: str | os.PathLike[str]) -> ShardIndex:
    r"""Read the index that DALI keeps of a shard.

    It names no shard and no version of it, so it is taken for that of ``shard`` as it is now.

    >>> import tempfile
    >>> from shoal.shards import TarWriter
    >>> folder = Path(tempfile.mkdtemp())
    >>> with TarWriter(folder / "a.tar") as writer:
    ...     _ = writer.write({"__key__": "a", "txt": "hello"})
    >>> _ = (folder / "a.idx").write_text("v1.2 1\ntxt 512 5 a.txt\n")
    >>> read_dali_index(folder / "a.idx", folder / "a.tar").entry(0).fields
    {'txt': (512, 5)}
    """
    lines = Path(path).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    version, _, count = lines[0].partition(" ") if lines else ("", "", "")
    if version != _VERSION or not _is_number(count) or int(count) != len(lines) - 1:
        raise IndexFileError(f"{path} is not an index of DALI's {_VERSION} with {count or 'no'} samples; make it anew")
    builder = IndexBuilder()
    for number, line in enumerate(lines[1:], start=2):
        builder.add(_entry(line, f"{path}, line {number}"))
    stat = os.stat(shard)
    index = builder.build(shard_size=stat.st_size, version=f"{stat.st_size}-{stat.st_mtime_ns}")
    index.check(path)
    return index


def _line(entry: Entry[Extent]) -> str:
    words = []
    for field, (offset, size) in entry.fields.items():
        name = f"{entry.key}.{field}"
        if len(name.split()) != 1 or not field:
            raise IndexFileError(f"the name {name!r} cannot stand in a DALI index, which separates by blanks")
        words += [field, str(offset), str(size), name]
    return " ".join(words)


def _entry(line: str, place: str) -> Entry[Extent]:
    words = line.split()
    fields: dict[str, Extent] = {}
    keys: set[str] = set()
    for extension, offset, size, name in zip(*(words[column::4] for column in range(4)), strict=False):
        parts = split_name(name)
        if parts is None or parts[1] != extension.lower() or not (_is_number(offset) and _is_number(size)):
            raise IndexFileError(f"{place}: {extension} {offset} {size} {name} does not describe a field")
        keys.add(parts[0])
        fields[parts[1]] = (int(offset), int(size))
    if len(fields) * 4 != len(words) or len(keys) != 1:
        raise IndexFileError(f"{place}: not a row of extension, offset, size and name for the fields of one sample")
    return Entry(keys.pop(), min(offset for offset, _ in fields.values()) - BLOCK, fields)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
