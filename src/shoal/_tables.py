"""Arrow tables of what has rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["as_table"]


def as_table(rows: Any) -> pa.Table:
    """Make a table of a frame, a series, a record batch, a table, or a dict of arrays.

    Arrays of more dimensions become lists in lists; the index of a frame is left out.

    >>> as_table({"x": np.zeros((2, 3)), "y": np.arange(2)}).column_names
    ['x', 'y']
    """
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, dict):
        return pa.table({name: _column(np.asarray(values)) for name, values in rows.items()})
    return pa.Table.from_pandas(rows.to_frame() if rows.ndim == 1 else rows, preserve_index=False)


def _column(array: np.ndarray[Any, Any]) -> pa.Array:
    column = pa.array(array.reshape(-1))
    for length in reversed(array.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, length)
    return column
