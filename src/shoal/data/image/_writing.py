"""Records into chunks, chunks into a table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from shoal import files
from shoal._optional import require
from shoal.data.image._cells import stored
from shoal.data.image._manifest import METADATA, Chunk, Manifest, find_manifest, write_manifest
from shoal.data.image._schema import Schema, check_schema
from shoal.errors import PlanError, SchemaError, UrlError, UrlNotFoundError

__all__ = ["write_table"]

_MODES = ("overwrite", "append", "error", "errorifexists")


def write_table(path: str, records: Iterable[Any], schema: Schema, block_size: int, write_mode: str) -> None:
    """Write a table; see `ParquetDataset.write`."""
    require("pyarrow", "writing Parquet")
    check_schema(schema)
    if block_size < 1:
        raise PlanError(f"block_size={block_size}; a chunk has at least one record")
    old = _before(path, schema, write_mode)
    kept = old.chunks if old is not None and write_mode == "append" else ()
    written: list[Chunk] = []
    try:
        for chunk in _chunks(path, records, schema, block_size, kept[-1].number + 1 if kept else 0):
            written.append(chunk)
        if not written:
            raise PlanError(f"there are no records to write to {files.display(path)}")
    except BaseException:
        _clear(path, {chunk.file for chunk in written} - _files(old))
        raise
    new = Manifest(path, dict(schema), (*kept, *written))
    # If this fails nobody knows whether the list got there, so that the files it names must stay.
    write_manifest(new)
    _clear(path, _files(old) - _files(new))


def _before(path: str, schema: Schema, mode: str) -> Manifest | None:
    """Find the table that is there, and whether it may be written to."""
    if mode not in _MODES:
        raise PlanError(f"write_mode={mode!r}; known are {', '.join(map(repr, _MODES))}")
    old, shown = find_manifest(path), files.display(path)
    if old is None:
        if files.is_file(path) or (files.exists(path) and files.list_folder(path)):
            text = f"{shown} is there and holds no table (no {METADATA}); it is left alone, so choose another path"
            raise PlanError(text)
        return None
    if mode.startswith("error"):
        raise PlanError(f'there is a table in {shown} already; write_mode="overwrite" replaces it, "append" goes on')
    if mode == "append" and old.schema != dict(schema):
        raise SchemaError(f"the table in {shown} has the schema {old.schema}, and what is to be appended {schema}")
    return old


def _chunks(path: str, records: Iterable[Any], schema: Schema, size: int, first: int) -> Iterator[Chunk]:
    from shoal.data.image._chunks import to_parquet

    rows = (stored(record, number, schema) for number, record in enumerate(records))
    number = first
    while block := list(islice(rows, size)):
        data = to_parquet(block, schema)
        # Named after what is in it: a chunk of another table never has its name, and equal tables have equal ones.
        name = f"{number:05d}-{hashlib.sha256(data).hexdigest()[:16]}"
        chunk = Chunk(f"chunk={number}/{name}.parquet", len(block))
        with files.open_write(f"{path}/{chunk.file}") as target:
            target.write(data)
        yield chunk
        number += 1


def _files(table: Manifest | None) -> set[str]:
    return set() if table is None else {chunk.file for chunk in table.chunks}


def _clear(path: str, names: set[str]) -> None:
    """Remove chunks, and the folders that are empty then."""
    for name in sorted(names):
        with suppress(UrlNotFoundError):
            files.remove(f"{path}/{name}")
    if files.local_path(path) is not None:
        for folder in sorted({f"{path}/{name.partition('/')[0]}" for name in names}):
            with suppress(UrlError):
                files.remove_folder(folder)
