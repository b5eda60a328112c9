"""Batches of rows from many places: put into their order by Arrow, and turned into Python values batch by batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shoal.abc import Columns
from shoal.sources._columns import column
from shoal.sources._rows import UNFIT, indices

__all__ = ["cut_into_batches"]


def cut_into_batches(
    parts: Sequence[pa.RecordBatch], places: Sequence[NDArray[np.int64]], sizes: NDArray[np.int64]
) -> list[Columns] | None:
    """Put the rows of all parts, keys in front, to their places, and cut them into batches of so many.

    None where that cannot be done at once: files differ in their columns, or values cannot be had in Python, which is
    said better by whoever looks at them one by one.
    """
    order = np.concatenate(places)
    where = np.empty_like(order)
    where[order] = np.arange(len(order))
    if any(part.schema != parts[0].schema for part in parts[1:]):
        return None
    try:
        found = pa.Table.from_batches(parts).take(indices(where)).combine_chunks().to_batches()
        return _cut(found[0], sizes) if len(found) == 1 else None
    except (pa.ArrowNotImplementedError, *UNFIT):
        return None


def _cut(rows: pa.RecordBatch, sizes: NDArray[np.int64]) -> list[Columns] | None:
    batches: list[Columns] = []
    ends = np.cumsum(sizes)
    for low, size in zip((ends - sizes).tolist(), sizes.tolist(), strict=True):
        batch: Columns = {}
        for name, array in zip(rows.schema.names, rows.columns, strict=True):
            found = column(array.slice(low, size))
            if found is None:
                return None
            batch[name] = found
        batches.append(batch)
    return batches
