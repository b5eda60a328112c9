"""Batches as pandas data frames."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from shoal._optional import require
from shoal.abc import Sample
from shoal.pipeline._memory import as_array, widened

__all__ = ["to_pandas"]


def to_pandas(batch: Sample) -> Any:
    """Turn a batch into a data frame, a row a sample, with ``"__key__"`` as a column.

    Columns of numbers share the memory of the batch's arrays. An array with more dimensions becomes a column of arrays,
    each a view of one row. Text becomes a column of pandas' strings; any other list becomes a column of objects.

    >>> import numpy as np
    >>> print(to_pandas({"__key__": ["a", "b"], "cls": np.array([3, 5]), "x": np.zeros((2, 3))}))
      __key__  cls                x
    0       a    3  [0.0, 0.0, 0.0]
    1       b    5  [0.0, 0.0, 0.0]
    """
    pd = require("pandas", 'to="pandas"')
    return pd.DataFrame({name: _column(pd, value) for name, value in batch.items()}, copy=False)


def _column(pd: ModuleType, value: Any) -> Any:
    if isinstance(value, list):
        return _from_list(pd, value)
    array = widened(as_array(value))
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    # pandas has no fixed-length bytes and no records
    return pd.Series(list(array), dtype=object) if array.ndim > 1 or array.dtype.kind in "SV" else array


def _from_list(pd: ModuleType, values: list[Any]) -> Any:
    if not all(isinstance(value, str) for value in values):
        return pd.Series(values, dtype=object)
    try:
        return pd.Series(values)
    except UnicodeEncodeError:  # a file's name that is no UTF-8
        return pd.Series(values, dtype=object)
