"""Batches of rows from many places, turned into Python values without making a sample of any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shoal.abc import Batch
from shoal.sources._columns import column

__all__ = ["UNFIT", "RowPool", "RowsAt", "cut_into_batches", "indices"]

#: Rows that lie side by side are sliced if there are so many, and picked one by one if not.
_STRETCH = 32

#: Longer values of a view lie in a buffer, whose number is in the view; shorter ones are in the view itself.
_INLINE = 12

#: What pyarrow raises about values that Python cannot hold: text that is not UTF-8, the year 300000.
UNFIT = (pa.ArrowException, ValueError, TypeError, ArithmeticError, LookupError)

_VIEWS = {
    kind: view() if view is not None else None
    for kinds, view in (
        ((pa.string(), pa.large_string()), getattr(pa, "string_view", None)),
        ((pa.binary(), pa.large_binary()), getattr(pa, "binary_view", None)),
    )
    for kind in kinds
}


@dataclass(frozen=True, slots=True)
class _Views:
    """Where each value of a column lies: its length, its beginning, the number of its buffer and the place in that."""

    type: pa.DataType
    views: NDArray[np.int32]
    buffers: list[pa.Buffer]


@dataclass(frozen=True, slots=True)
class RowPool:
    """Rows to pick from, and where their values lie."""

    rows: pa.RecordBatch
    _views: dict[str, _Views | None] = field(default_factory=dict)

    def views(self, name: str) -> _Views | None:
        """Look where the values of a column lie; None where they are not text or bytes, or some are missing."""
        if name not in self._views:
            self._views[name] = _views_of(self.rows.column(name))
        return self._views[name]


@dataclass(frozen=True, slots=True)
class RowsAt:
    """Rows of a pool, and the places among all that are picked which they go to."""

    pool: RowPool
    rows: NDArray[np.int64]
    places: NDArray[np.int64]

    def picked(self, name: str) -> list[pa.Array]:
        """Pick the values of a column. Long stretches of rows are not copied."""
        array = self.pool.rows.column(name)
        begins = np.flatnonzero(np.diff(self.rows, prepend=self.rows[0] - 2) != 1)
        if len(begins) * _STRETCH > len(self.rows):
            return [array.take(indices(self.rows))]
        lengths = np.diff(begins, append=len(self.rows)).tolist()
        return [array.slice(*run) for run in zip(self.rows[begins].tolist(), lengths, strict=True)]


def indices(rows: Sequence[int] | NDArray[np.int64]) -> pa.Array:
    """Give numbers to Arrow. Its own ``pa.array`` asks pandas what they are, and importing that takes a while."""
    numbers = np.ascontiguousarray(rows, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def cut_into_batches(parts: Sequence[RowsAt], sizes: NDArray[np.int64]) -> list[Batch] | None:
    """Put the rows of all parts to their places, and cut them into batches of so many.

    None where that cannot be done at once: files differ in their columns, or values cannot be had in Python, which is
    said better by whoever looks at them one by one.

    >>> pool = RowPool(pa.record_batch({"text": ["a", "b", "c"], "number": [1, 2, 3]}))
    >>> parts = [RowsAt(pool, np.array([2, 0]), np.array([0, 2])), RowsAt(pool, np.array([1]), np.array([1]))]
    >>> for batch in cut_into_batches(parts, np.array([2, 1])):
    ...     print({name: values.tolist() for name, values in batch.items()})
    {'text': ['c', 'b'], 'number': [3, 2]}
    {'text': ['a'], 'number': [1]}
    """
    schema = parts[0].pool.rows.schema
    if any(part.pool.rows.schema != schema for part in parts[1:]):
        return None
    order = np.concatenate([part.places for part in parts])
    where = np.empty_like(order)
    where[order] = np.arange(len(order))
    cuts = list(zip((np.cumsum(sizes) - sizes).tolist(), sizes.tolist(), strict=True))
    try:
        columns = {name: _column(name, parts, where, cuts) for name in schema.names}
    except UNFIT:
        return None
    if any(found is None for found in columns.values()):
        return None
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _column(
    name: str, parts: Sequence[RowsAt], where: NDArray[np.int64], cuts: Sequence[tuple[int, int]]
) -> list[Any] | None:
    """Give a column of each batch; None where its type is none whose values are known beforehand."""
    seen = [part.pool.views(name) for part in parts]
    views = [view for view in seen if view is not None]
    if len(views) == len(seen):
        # Whoever takes the batch lists its values: in that thread they are made and dropped in the same cache.
        gathered = _gathered(name, views, parts, where)
        return [gathered.slice(low, size) for low, size in cuts]
    picked = [array for part in parts for array in part.picked(name)]
    joined = pa.chunked_array(picked).take(indices(where)).combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        return None  # more than 2 GiB of text or bytes do not fit into one array
    found = [column(joined.slice(low, size)) for low, size in cuts]
    return None if any(values is None for values in found) else found


def _gathered(name: str, views: Sequence[_Views], parts: Sequence[RowsAt], where: NDArray[np.int64]) -> pa.Array:
    """Pick from all parts, and copy each value once, into a row of them."""
    picked = np.concatenate([view.views[part.rows] for view, part in zip(views, parts, strict=True)])
    counts = np.array([len(view.buffers) for view in views])
    before = np.repeat(np.cumsum(counts) - counts, [len(part.rows) for part in parts])
    picked[:, 2] += np.where(picked[:, 0] > _INLINE, before, 0).astype(np.int32)
    buffers = [buffer for view in views for buffer in view.buffers]
    picks = pa.Array.from_buffers(views[0].type, len(where), [None, pa.py_buffer(picked[where]), *buffers])
    gathered = picks.cast(parts[0].pool.rows.schema.field(name).type)
    gathered.validate(full=True)  # text that is not UTF-8 is told by whoever knows the row
    return gathered


def _views_of(array: pa.Array) -> _Views | None:
    kind = _VIEWS.get(array.type)
    if kind is None or array.null_count or not len(array):
        return None
    try:
        cast = array.cast(kind)
    except pa.ArrowException:
        return None  # more than 2 GiB in one buffer, or a version of pyarrow that cannot
    _, views, *buffers = cast.buffers()
    first = cast.offset
    return _Views(kind, np.frombuffer(views, np.int32).reshape(-1, 4)[first : first + len(cast)], buffers)
