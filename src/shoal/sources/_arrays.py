"""Arrays in memory as a source: a row of all of them is a sample, and no row is copied before it is in a batch."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.abc import Block, Columns, Sample, Shard, Source
from shoal.errors import PlanError

__all__ = ["ArraySource"]

_URL = "arrays://"
_BLOCK = 64
#: Rows of a shard: there are many of them, so that they can be shuffled, and each is worth its while.
_SHARD = 4096


@dataclass(frozen=True, slots=True)
class _Field:
    """An array, read-only, with its rows."""

    array: NDArray[Any]

    @classmethod
    def of(cls, name: str, given: Any) -> _Field:
        if isinstance(given, np.ma.MaskedArray):
            raise PlanError(f"{name} is a masked array, whose mask would be lost; fill it first: {name}.filled(0)")
        try:
            array = np.asarray(given)
        except ValueError as error:
            raise PlanError(f"{name} is no array: {error}") from error
        if not array.ndim:
            raise PlanError(f"{name} is {given!r}, which has no rows; an array with at least one dimension has")
        array = array.view() if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
        array.setflags(write=False)
        return cls(array)

    def rows(self, places: Sequence[int]) -> list[Any]:
        """Give rows as samples have them: text, numbers of the array's type, and views of what has more dimensions."""
        if self.array.ndim == 1 and self.array.dtype.kind in "US":
            return [self.array[place].item() for place in places]
        return [self.array[place] for place in places]

    def column(self, places: Sequence[int], where: slice | NDArray[np.int64]) -> list[Any] | NDArray[Any]:
        """Give rows as a batch has them; text and objects as a list."""
        return self.rows(places) if self.array.dtype.kind in "USO" else self.array[where]


class ArraySource(Source):
    """Arrays with the same number of rows, by name.

    >>> source = ArraySource({"x": np.arange(6.0).reshape(3, 2), "name": np.array(["a", "b", "c"])})
    >>> source.take(source.shards()[0], [2])
    [{'__key__': '000000002', 'x': array([4., 5.]), 'name': 'c'}]
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        if not arrays:
            raise PlanError("there are no arrays to read; give some, as in from_arrays(x=images, y=labels)")
        self._fields = {str(name): _Field.of(str(name), given) for name, given in arrays.items()}
        if "__key__" in self._fields:
            raise PlanError("a field cannot be called __key__: keys are the numbers of rows")
        counts = {name: len(field.array) for name, field in self._fields.items()}
        (first, self._count), *others = counts.items()
        for name, count in others:
            if count != self._count:
                text = f"{first} has {self._count} rows and {name} has {count}"
                raise PlanError(f"all arrays must have the same number of rows, and {text}")

    def __repr__(self) -> str:
        told = ", ".join(f"{name}{list(field.array.shape)}" for name, field in self._fields.items())
        return f"ArraySource({told})"

    @property
    def seekable(self) -> bool:
        """True: all is in memory."""
        return True

    @property
    def counted(self) -> bool:
        """True: all is in memory."""
        return True

    @property
    def waits(self) -> bool:
        """False: all is in memory."""
        return False

    def shards(self) -> Sequence[Shard]:
        """List ranges of rows."""
        return [Shard(_URL, *pair) for pair in pairwise([*range(0, max(self._count, 1), _SHARD), self._count])]

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        """Yield the rows of a shard in blocks."""
        rows = self._rows(shard)[start:]
        for at in range(0, len(rows), _BLOCK):
            yield Block(self._samples(rows[at : at + _BLOCK]), (shard,))

    def length(self, shard: Shard) -> int:
        """Count the rows of a shard."""
        return len(self._rows(shard))

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        """Give the rows at these positions of a shard, in this order."""
        rows = self._rows(shard)
        _check(indices, len(rows))
        return self._samples([rows[index] for index in indices])

    def take_columns(self, shard: Shard, indices: NDArray[np.int64]) -> Columns | None:
        """Give the rows at these positions as columns; neighbours are not copied."""
        if not len(indices):
            return None
        _check((int(indices.min()), int(indices.max())), self.length(shard))
        rows = shard.start + indices * shard.step
        places = rows.tolist()
        is_run = places[-1] - places[0] == len(places) - 1 and bool((np.diff(rows) == 1).all())
        where = slice(places[0], places[-1] + 1) if is_run else rows
        fields = {name: field.column(places, where) for name, field in self._fields.items()}
        return {"__key__": [_key(place) for place in places], **fields}

    def split(self, shard: Shard, parts: int) -> list[Shard]:
        """Cut a shard into ranges of rows."""
        return shard.split(parts, self.length(shard))

    def fingerprint(self, shard: Shard) -> str:
        """Give names, types and shapes, and a checksum of the first and the last row of a shard."""
        rows = self._rows(shard)
        ends = [*rows[:1], *rows[-1:]]
        crc = 0
        for name, field in self._fields.items():
            told = f"{name} {field.array.dtype} {field.array.shape} "
            values = repr(field.rows(ends)) if field.array.dtype.hasobject else field.array[ends].tobytes().hex()
            crc = zlib.crc32(f"{told}{values}".encode(errors="replace"), crc)
        return f"{crc:08x}"

    def size(self, shard: Shard) -> int | None:
        """Give the memory of the rows."""
        row = sum(field.array.nbytes for field in self._fields.values()) / max(self._count, 1)
        return round(row * self.length(shard))

    def _rows(self, shard: Shard) -> range:
        return shard.numbers(self._count)

    def _samples(self, rows: Sequence[int]) -> list[Sample]:
        columns = [field.rows(rows) for field in self._fields.values()]
        names = ("__key__", *self._fields)
        return [dict(zip(names, row, strict=True)) for row in zip(map(_key, rows), *columns, strict=True)]


def _key(row: int) -> str:
    return f"{row:09d}"


def _check(indices: Sequence[int], length: int) -> None:
    wrong = next((index for index in indices if not 0 <= index < length), None)
    if wrong is not None:
        raise IndexError(f"there is no sample {wrong} in a shard of {length} rows")
