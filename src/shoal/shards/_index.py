"""What is where in a shard: for each sample its key, and for each of its fields an offset and a size.

An index is a handful of numpy arrays, so loading one costs no parsing, and it is saved as an ``.npz`` (never with
pickles). With it a shard has a length, any sample can be picked out, and ranges can be dealt to several readers.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal.errors import IndexFileError
from shoal.shards._grouping import Entry

__all__ = ["Extent", "IndexBuilder", "ShardIndex"]

#: Where the bytes of a field are: offset and size.
Extent: TypeAlias = tuple[int, int]

_FORMAT = 1
_ARRAYS = ("keys", "key_ends", "begins", "member_ends", "field_ids", "offsets", "sizes")


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
        return next(self.entries(position, position + 1))

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[Entry[Extent]]:
        """Look up consecutive samples."""
        stop = len(self) if stop is None else min(stop, len(self))
        if not 0 <= start <= stop:
            raise IndexError(f"samples {start} to {stop} of a shard that has {len(self)}")
        key_ends, member_ends = self._ends(self.key_ends, start, stop), self._ends(self.member_ends, start, stop)
        key_base, base = key_ends[0], member_ends[0]
        keys = self.keys[key_base : key_ends[-1]].tobytes()
        columns = (self.field_ids, self.offsets, self.sizes)
        ids, offsets, sizes = (column[base : member_ends[-1]].tolist() for column in columns)
        names = self.fields
        for row, begin in enumerate(self.begins[start:stop].tolist()):
            key = keys[key_ends[row] - key_base : key_ends[row + 1] - key_base].decode("utf-8", "surrogateescape")
            members = range(member_ends[row] - base, member_ends[row + 1] - base)
            yield Entry(key, begin, {names[ids[m]]: (offsets[m], sizes[m]) for m in members})

    def to_bytes(self) -> bytes:
        """Turn the index into the bytes of an ``.npz`` file."""
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **self._columns())
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, name: object) -> ShardIndex:
        """Read an index; ``name`` is the file that errors speak of."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                if int(file["format"]) != _FORMAT:
                    raise IndexFileError(f"{name} is an index of format {int(file['format'])}, not {_FORMAT}")
                text = bytes(file["fields"]).decode("utf-8", "surrogateescape")
                index = cls(
                    fields=tuple(text.split("\0")) if text else (),
                    **{column: file[column] for column in _ARRAYS},
                    shard_size=int(file["shard_size"]),
                    version=bytes(file["version"]).decode(),
                    seekable=bool(file["seekable"]),
                )
        except IndexFileError:
            raise
        except (KeyError, EOFError, OSError, ValueError, TypeError, zipfile.BadZipFile, NotImplementedError) as error:
            raise IndexFileError(f"{name} is not an index of a shard: {error}") from error
        index.check(name)
        return index

    @staticmethod
    def _ends(ends: NDArray[np.int64], start: int, stop: int) -> list[int]:
        first = int(ends[start - 1]) if start else 0
        return [first, *ends[start:stop].tolist()]

    def _columns(self) -> dict[str, NDArray[np.generic]]:
        columns = {name: getattr(self, name) for name in _ARRAYS}
        fields = "\0".join(self.fields).encode("utf-8", "surrogateescape")
        return columns | {
            "format": np.array(_FORMAT),
            "fields": np.frombuffer(fields, np.uint8),
            "shard_size": np.array(self.shard_size),
            "version": np.frombuffer(self.version.encode(), np.uint8),
            "seekable": np.array(self.seekable),
        }

    def check(self, path: object) -> None:
        """Refuse an index whose columns point outside themselves or the shard: it may come from elsewhere."""
        samples, members = len(self.begins), len(self.offsets)
        ends_hold = all(
            len(ends) == samples
            and (samples == 0 or (ends[-1] == total and ends[0] >= 0 and (np.diff(ends) >= 0).all()))
            for ends, total in ((self.key_ends, len(self.keys)), (self.member_ends, members))
        )
        columns_hold = len(self.field_ids) == len(self.sizes) == members and (
            members == 0
            or (
                (self.field_ids.min() >= 0 and self.field_ids.max() < len(self.fields))
                and self.offsets.min() >= 0
                and self.sizes.min() >= 0
                and (not self.seekable or int((self.offsets + self.sizes).max()) <= self.shard_size)
            )
        )
        if not (ends_hold and columns_hold):
            raise IndexFileError(f"{path} contradicts itself: delete it, and it is built again")


class IndexBuilder:
    """Collects samples while a shard is read or written, and makes an index of them."""

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
        extents = np.array(self._extents, np.int64).reshape(-1, 2)
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
