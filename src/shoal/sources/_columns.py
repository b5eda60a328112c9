"""Columns of Arrow as columns of a batch: what stacking the values of all rows gives, without making the values."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shoal.sources._values import as_numpy, dense, is_number, is_tensor, values

__all__ = ["Column", "column"]

Column: TypeAlias = "list[Any] | NDArray[Any]"

#: Types whose values are never stacked: text, bytes, times, decimals, dicts, pairs. Some are newer than others.
_LISTED = frozenset(
    getattr(pa.lib, f"Type_{name}", None)
    for name in (
        *("NA", "STRING", "LARGE_STRING", "STRING_VIEW", "BINARY", "LARGE_BINARY", "BINARY_VIEW", "FIXED_SIZE_BINARY"),
        *("DATE32", "DATE64", "TIME32", "TIME64", "TIMESTAMP", "DURATION", "INTERVAL_MONTH_DAY_NANO"),
        *("DECIMAL32", "DECIMAL64", "DECIMAL128", "DECIMAL256", "STRUCT", "MAP"),
    )
)


def column(array: pa.Array) -> Column | None:
    """Give a column that is not empty as a batch has it; None for types whose values are not known beforehand.

    Arrays are copies, which belong to nobody else. What a column becomes is decided by the values that are in it, as it
    is where samples are read one by one: whole numbers are an array if none of these is null.

    >>> column(pa.array([1, 2], pa.int8())), column(pa.array([1, None], pa.int8()))
    (array([1, 2]), [1, None])
    >>> column(pa.array([[1, 2], [3, 4]], pa.list_(pa.float32())))
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _dictionary(array)
    if is_number(kind):
        return _numbers(array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or is_tensor(kind):
        return _lists(array)
    return values(array) if kind.id in _LISTED else None


def _dictionary(array: pa.DictionaryArray) -> Column | None:
    try:
        words = array.dictionary.take(array.indices)
    except pa.ArrowNotImplementedError:
        return None
    return column(words)


def _numbers(array: pa.Array) -> Column:
    if array.null_count:
        return values(array)
    kind = array.type
    if pa.types.is_float16(kind):
        return np.array(values(array))  # older versions of pyarrow make numpy's float16 of them
    found = as_numpy(array)
    if pa.types.is_boolean(kind):
        return found.astype(np.bool_)
    if pa.types.is_floating(kind):
        return found.astype(np.float64)
    if pa.types.is_uint64(kind) and int(found.max()) > np.iinfo(np.int64).max:
        return values(array)
    return found.astype(np.int64)


def _lists(array: pa.Array) -> Column:
    stacked = None if array.null_count else _fixed(array) if is_tensor(array.type) else _equally_long(array)
    return values(array) if stacked is None else np.array(stacked, order="C")


def _fixed(array: pa.Array) -> NDArray[Any] | None:
    """Give numbers, or equal shapes of numbers, if there is no null among them."""
    found = dense(array)
    return found[0] if found is not None and found[1].all() else None


def _equally_long(array: pa.Array) -> NDArray[Any] | None:
    """Give lists of numbers as rows, if all have the same length and none has a null in it."""
    offsets = as_numpy(array.offsets)
    begin, length = int(offsets[0]), int(offsets[1]) - int(offsets[0])
    if (np.diff(offsets) != length).any():
        return None
    numbers = _fixed(array.values.slice(begin, length * len(array)))
    return None if numbers is None else numbers.reshape(len(array), length, *numbers.shape[1:])
