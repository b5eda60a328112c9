"""What is where in a shard: for each sample its key, and for each of its fields an offset and a size.

An index is a handful of numpy columns. A file of it is these columns one after the other behind a short description,
so that loading costs no parsing and no copy (an ``.npz`` takes ten times as long to open). With it a shard has a
length, any sample can be picked out, and ranges can be dealt to several readers.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal.errors import IndexFileError
from shoal.shards._grouping import Entry

__all__ = ["Extent", "FieldColumn", "IndexBuilder", "Lookup", "Rows", "ShardIndex"]

#: Where the bytes of a field are: offset and size.
Extent: TypeAlias = tuple[int, int]

_MAGIC = b"shoal index 1\n\0\0"
_COLUMNS = {
    "key_ends": "<i8",
    "begins": "<i8",
    "member_ends": "<i8",
    "offsets": "<i8",
    "sizes": "<i8",
    "field_ids": "<i4",
    "keys": "<u1",
}


_ROWS = 1024


class Rows(NamedTuple):
    """Some samples of an index; the last three columns have a row for each field of each sample."""

    keys: list[str]
    begins: list[int]
    member_ends: list[int]
    names: list[str]
    offsets: list[int]
    sizes: list[int]


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """The samples of one shard, in the order they lie in it.

    >>> builder = IndexBuilder()
    >>> builder.add(Entry("a", 0, {"jpg": (512, 100), "cls": (1536, 1)}))
    >>> index = builder.build(shard_size=4096, version="v1")
    >>> len(index), index.entry(0)
    (1, Entry(key='a', begin=0, fields={'jpg': (512, 100), 'cls': (1536, 1)}))
    """

    fields: tuple[str, ...]
    """Every field name that occurs; ``field_ids`` points into it."""
    keys: NDArray[np.uint8]
    """All keys, end to end, in UTF-8."""
    key_ends: NDArray[np.int64]
    begins: NDArray[np.int64]
    """Where the first header of each sample starts."""
    member_ends: NDArray[np.int64]
    """Where in the next three columns each sample ends."""
    field_ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    shard_size: int
    """Bytes of the shard when it was indexed, and its version then: an index of another shard is not used."""
    version: str
    seekable: bool = True
    """Whether the offsets are those of the file itself, and not of what a decompressor makes of it."""

    def __len__(self) -> int:
        return len(self.begins)

    def entry(self, position: int) -> Entry[Extent]:
        """Look up one sample."""
        if not 0 <= position < len(self):
            raise IndexError(f"sample {position} of a shard that has {len(self)}")
        return next(self.entries(position, position + 1))

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[Entry[Extent]]:
        """Look up consecutive samples."""
        for rows in self.rows(start, stop):
            first = 0
            for key, begin, end in zip(rows.keys, rows.begins, rows.member_ends, strict=True):
                extents = zip(rows.offsets[first:end], rows.sizes[first:end], strict=True)
                yield Entry(key, begin, dict(zip(rows.names[first:end], extents, strict=True)))
                first = end

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[Rows]:
        """Look up consecutive samples as columns of Python values, some at a time: the quick way to many."""
        stop = len(self) if stop is None else min(stop, len(self))
        if not 0 <= start <= stop:
            raise IndexError(f"samples {start} to {stop} of a shard that has {len(self)}")
        for at in range(start, stop, _ROWS):
            yield self._rows(at, min(at + _ROWS, stop))

    def _rows(self, start: int, stop: int) -> Rows:
        first_byte, first_member = (int(ends[start - 1]) if start else 0 for ends in (self.key_ends, self.member_ends))
        key_ends = [0, *(self.key_ends[start:stop] - first_byte).tolist()]
        text = self.keys[first_byte : first_byte + key_ends[-1]].tobytes()
        members = slice(first_member, int(self.member_ends[stop - 1]))
        return Rows(
            keys=[text[low:high].decode("utf-8", "surrogateescape") for low, high in pairwise(key_ends)],
            begins=self.begins[start:stop].tolist(),
            member_ends=(self.member_ends[start:stop] - first_member).tolist(),
            names=[self.fields[number] for number in self.field_ids[members].tolist()],
            offsets=self.offsets[members].tolist(),
            sizes=self.sizes[members].tolist(),
        )

    def to_bytes(self) -> bytes:
        """Turn the index into the bytes of an index file: a magic word, a description in JSON, the columns."""
        columns = b"".join(getattr(self, name).astype(kind).tobytes() for name, kind in _COLUMNS.items())
        description = {
            "shard_size": self.shard_size,
            "version": self.version,
            "seekable": self.seekable,
            "fields": self.fields,
            "lengths": {name: len(getattr(self, name)) for name in _COLUMNS},
        }
        text = json.dumps(description | {"crc32": _checksum(description, columns)}).encode("ascii")
        return _MAGIC + struct.pack("<Q", len(text)) + text + columns

    @classmethod
    def from_bytes(cls, data: bytes, name: object) -> ShardIndex:
        """Read an index file's bytes; ``name`` is the file that errors speak of."""
        try:
            description, start = _description(data)
            if description.pop("crc32") != _checksum(description, memoryview(data)[start:]):
                raise ValueError("its checksum is wrong")
            columns = {}
            for column, kind in _COLUMNS.items():
                columns[column] = np.frombuffer(data, kind, description["lengths"][column], start)
                start += columns[column].nbytes
            index = cls(
                fields=tuple(map(str, description["fields"])),
                **columns,
                shard_size=int(description["shard_size"]),
                version=str(description["version"]),
                seekable=bool(description["seekable"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError, struct.error) as error:
            raise IndexFileError(f"{name} is not an index of a shard: {error}") from error
        index.check(name)
        return index

    def check(self, path: object) -> None:
        """Refuse an index whose columns point outside themselves or the shard: it may come from elsewhere."""
        samples, members = len(self.begins), len(self.offsets)
        ends_hold = all(
            len(ends) == samples and _rises(ends) and (int(ends[-1]) if samples else 0) == total
            for ends, total in ((self.key_ends, len(self.keys)), (self.member_ends, members))
        )
        end_of_shard = self.shard_size if self.seekable else np.iinfo(np.int64).max
        columns_hold = len(self.field_ids) == len(self.sizes) == members and (
            bool(((self.field_ids >= 0) & (self.field_ids < len(self.fields))).all())
            and bool(((self.offsets >= 0) & (self.offsets <= end_of_shard)).all())
            and bool(((self.sizes >= 0) & (self.sizes <= end_of_shard - self.offsets)).all())
            and _rises(self.begins)
        )
        if not (ends_hold and columns_hold):
            raise IndexFileError(f"{path} contradicts itself: delete it, and it is built again")


class FieldColumn(NamedTuple):
    """Where a field of some samples lies."""

    name: str
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]


class Lookup:
    """An index for picking samples: single ones, for which memoryviews give plain integers at once, or many.

    >>> builder = IndexBuilder()
    >>> builder.add(Entry("a", 0, {"jpg": (512, 100)}))
    >>> Lookup(builder.build(shard_size=4096, version="v1")).fields(0)
    ('a', [('jpg', 512, 100)])
    """

    __slots__ = ("_key_ends", "_keys", "_length", "_member_ends", "_names", "_numbers", "_offsets", "_sizes")

    def __init__(self, index: ShardIndex) -> None:
        self._names, self._length = index.fields, len(index)
        self._keys, self._key_ends, self._member_ends = map(_view, (index.keys, index.key_ends, index.member_ends))
        self._numbers, self._offsets, self._sizes = map(_view, (index.field_ids, index.offsets, index.sizes))

    def __len__(self) -> int:
        return self._length

    def fields(self, position: int) -> tuple[str, list[tuple[str, int, int]]]:
        """Give the key of a sample and, for each field, name, offset and size."""
        before = position - 1
        begin, first = (self._key_ends[before], self._member_ends[before]) if position else (0, 0)
        key = str(self._keys[begin : self._key_ends[position]], "utf-8", "surrogateescape")
        names, numbers, offsets, sizes = self._names, self._numbers, self._offsets, self._sizes
        members = range(first, self._member_ends[position])
        return key, [(names[numbers[member]], offsets[member], sizes[member]) for member in members]

    def keys(self, positions: NDArray[np.int64]) -> list[str]:
        """Give the keys of many samples."""
        begins, ends = _spans(self._key_ends, positions)
        raw = np.asarray(self._keys)[_laid_out(begins, ends - begins)].tobytes()
        cuts = pairwise([0, *np.cumsum(ends - begins).tolist()])
        if raw.isascii():
            # Cutting text is quicker than decoding pieces, but only where each byte is a letter.
            text = raw.decode("ascii")
            return [text[begin:end] for begin, end in cuts]
        return [raw[begin:end].decode("utf-8", "surrogateescape") for begin, end in cuts]

    def columns(self, positions: NDArray[np.int64], keep: Collection[str] | None = None) -> list[FieldColumn] | None:
        """Give the places of each field of many samples; None where these differ in their fields or the order of them.

        >>> builder = IndexBuilder()
        >>> builder.add(Entry("a", 0, {"jpg": (512, 100)}))
        >>> builder.add(Entry("b", 1024, {"jpg": (1536, 50)}))
        >>> Lookup(builder.build(shard_size=4096, version="v1")).columns(np.array([1, 0]))
        [FieldColumn(name='jpg', begins=array([1536,  512]), ends=array([1586,  612]))]
        """
        first, stop = _spans(self._member_ends, positions)
        counts = stop - first
        members = _laid_out(first, counts)
        numbers = np.asarray(self._numbers)[members]
        if keep is not None:
            kept = np.array([name in keep for name in self._names], bool)[numbers]
            owners = np.repeat(np.arange(len(positions)), counts)[kept]
            members, numbers, counts = members[kept], numbers[kept], np.bincount(owners, minlength=len(positions))
        if not len(counts) or (counts != counts[0]).any():
            return None
        grid = numbers.reshape(len(positions), counts[0])
        if (grid != grid[0]).any():
            return None
        begins = np.asarray(self._offsets)[members].reshape(grid.shape)
        ends = begins + np.asarray(self._sizes)[members].reshape(grid.shape)
        columns = zip(grid[0].tolist(), begins.T, ends.T, strict=True)
        return [FieldColumn(self._names[number], *places) for number, *places in columns]


def _laid_out(begins: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number what lies in some pieces, piece after piece: from where each begins on, as many as it has."""
    numbers: NDArray[np.int64] = np.arange(int(counts.sum())) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
    return numbers


def _spans(ends: memoryview, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tell where pieces that lie end to end begin and end."""
    column: NDArray[np.int64] = np.asarray(ends)
    begins = column[positions - 1]
    begins[positions == 0] = 0
    return begins, column[positions]


def _view(column: Any) -> memoryview:
    # A column of a file may lie at an odd address, and a memoryview reads aligned numbers only.
    aligned: Any = np.require(column, requirements=["C", "A"])
    return memoryview(aligned)


class IndexBuilder:
    """Collects samples while a shard is read or written, and makes an index of them.

    >>> builder = IndexBuilder()
    >>> builder.add(Entry("a", 0, {"jpg": (512, 100)}))
    >>> builder.add(Entry("b", 1024, {"jpg": (1536, 50)}))
    >>> len(builder.build(shard_size=4096, version="v1"))
    2
    """

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._begins: list[int] = []
        self._counts: list[int] = []
        self._names: list[str] = []
        self._extents: list[Extent] = []

    def add(self, entry: Entry[Extent]) -> None:
        """Take note of the next sample."""
        self._keys.append(entry.key)
        self._begins.append(entry.begin)
        self._counts.append(len(entry.fields))
        self._names += entry.fields
        self._extents += entry.fields.values()

    def build(self, *, shard_size: int, version: str, seekable: bool = True) -> ShardIndex:
        """Make the index of what was added."""
        keys = [key.encode("utf-8", "surrogateescape") for key in self._keys]
        ids = {name: number for number, name in enumerate(dict.fromkeys(self._names))}
        extents = np.fromiter(chain.from_iterable(self._extents), np.int64).reshape(-1, 2)
        return ShardIndex(
            fields=tuple(ids),
            keys=np.frombuffer(b"".join(keys), np.uint8),
            key_ends=np.cumsum([len(key) for key in keys], dtype=np.int64),
            begins=np.array(self._begins, np.int64),
            member_ends=np.cumsum(self._counts, dtype=np.int64),
            field_ids=np.array([ids[name] for name in self._names], np.int32),
            offsets=np.ascontiguousarray(extents[:, 0]),
            sizes=np.ascontiguousarray(extents[:, 1]),
            shard_size=shard_size,
            version=version,
            seekable=seekable,
        )


def _rises(column: NDArray[np.int64]) -> bool:
    return len(column) == 0 or (int(column[0]) >= 0 and bool((column[1:] >= column[:-1]).all()))


def _checksum(description: dict[str, Any], columns: bytes | memoryview) -> int:
    return zlib.crc32(columns, zlib.crc32(json.dumps(description).encode("ascii")))


def _description(data: bytes) -> tuple[dict[str, Any], int]:
    """Read what stands before the columns, and tell where they start."""
    if not data.startswith(_MAGIC):
        raise ValueError("it begins otherwise than an index of this version")
    (length,) = struct.unpack_from("<Q", data, len(_MAGIC))
    start = len(_MAGIC) + 8 + length
    description = json.loads(data[len(_MAGIC) + 8 : start])
    if not isinstance(description, dict):
        raise TypeError("its description is none")
    return description, start
