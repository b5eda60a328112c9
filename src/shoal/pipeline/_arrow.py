"""Batches as Arrow record batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from shoal._optional import require
from shoal.abc import Sample
from shoal.errors import SampleError
from shoal.pipeline._memory import as_array, is_number, is_ragged, joined, native, widened

__all__ = ["to_arrow"]

#: What the offsets of a string, binary or list column can count to; longer ones get the "large" type.
_OFFSETS = 2**31 - 1

#: Units of time that Arrow lacks, and the nearest finer one that it has.
_DATES = {"Y": "D", "M": "D", "W": "D", "h": "s", "m": "s"}
_DURATIONS = {"W": "s", "D": "s", "h": "s", "m": "s"}


def to_arrow(batch: Sample) -> Any:
    """Turn a batch into a record batch, a row a sample, with ``"__key__"`` as its first column.

    Columns of numbers share the memory of the batch's arrays; only booleans are copied, into bits. An array with more
    dimensions becomes a column of Arrow's fixed-shape tensors, which share memory too and come back as one array by
    ``to_numpy_ndarray()``: booleans as uint8, and complex numbers, which Arrow lacks, with a last dimension of 2.
    Arrays of different lengths become lists; those of several dimensions become structs of ``data`` and ``shape``, as
    in Arrow's variable-shape tensors. Dicts become structs and None becomes null.

    >>> to_arrow({"cls": np.array([3, 5]), "x": np.zeros((2, 3)), "__key__": ["a", "b"]}).schema.names
    ['__key__', 'cls', 'x']
    """
    pa = require("pyarrow", 'to="arrow"')
    names = sorted(batch, key=lambda name: name != "__key__")
    return pa.RecordBatch.from_arrays([_named_column(pa, name, batch[name]) for name in names], names)


def _named_column(pa: ModuleType, name: str, value: Any) -> Any:
    try:
        return _from_list(pa, value) if isinstance(value, list) else _from_array(pa, as_array(value))
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        text = f"Arrow has no column for these values: {error}. Change them in a map(), or leave the field out"
        raise SampleError(text, field=name) from error


def _from_array(pa: ModuleType, array: np.ndarray[Any, Any]) -> Any:
    if array.dtype.names is not None:
        return pa.StructArray.from_arrays(
            [_from_array(pa, array[name]) for name in array.dtype.names], array.dtype.names
        )
    array = _storable(native(widened(array)))
    if array.ndim == 1:
        return pa.array(array)
    return _tensors(pa, array) if is_number(array.dtype) else pa.array([_plain(row) for row in array])


def _storable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """See numbers as a type that Arrow has."""
    kind = array.dtype.kind
    if kind == "c":  # real and imaginary part, as a last dimension
        return array.view(array.real.dtype).reshape(*array.shape, 2)
    if kind in "Mm":
        unit, _ = np.datetime_data(array.dtype)
        nearest = (_DATES if kind == "M" else _DURATIONS).get(unit)
        return array if nearest is None else array.astype(f"{kind}8[{nearest}]")
    return array


def _tensors(pa: ModuleType, array: np.ndarray[Any, Any]) -> Any:
    """Make a column of tensors; of uint8 where they are booleans, since Arrow's tensors know none."""
    values = pa.array((array.view(np.uint8) if array.dtype.kind == "b" else array).reshape(-1))
    kind = pa.fixed_shape_tensor(values.type, array.shape[1:])
    size = math.prod(array.shape[1:])
    if size:
        storage = pa.FixedSizeListArray.from_arrays(values, size)
    else:
        storage = pa.array([[]] * len(array), kind.storage_type)
    return pa.ExtensionArray.from_storage(kind, storage)


def _from_list(pa: ModuleType, values: list[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        return pa.array(values, pa.large_string() if 4 * sum(map(len, values)) > _OFFSETS else pa.string())
    if all(isinstance(value, bytes) for value in values):
        return pa.array(values, pa.large_binary() if sum(map(len, values)) > _OFFSETS else pa.binary())
    if is_ragged(values) and values[0].ndim == 1:
        return _lists(pa, values)
    if _differ_in_shape(values):
        return _shaped(pa, values)
    return pa.array([_plain(value) for value in values])


def _lists(pa: ModuleType, arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
    offsets = np.cumsum([0, *map(len, arrays)])
    values = _from_array(pa, joined(arrays))
    if offsets[-1] > _OFFSETS:
        return pa.LargeListArray.from_arrays(offsets, values)
    return pa.ListArray.from_arrays(offsets.astype(np.int32), values)


def _shaped(pa: ModuleType, arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
    """Lay arrays out as Arrow's variable-shape tensors are stored; pyarrow has no class for those yet."""
    arrays = [_storable(native(widened(array))) for array in arrays]
    shapes = np.array([array.shape for array in arrays], np.int32)
    data = _lists(pa, [array.reshape(-1) for array in arrays])
    return pa.StructArray.from_arrays(
        [data, pa.FixedSizeListArray.from_arrays(shapes.reshape(-1), arrays[0].ndim)], ["data", "shape"]
    )


def _differ_in_shape(values: Sequence[Any]) -> bool:
    return is_ragged([value.reshape(-1) if isinstance(value, np.ndarray) else value for value in values]) and (
        len({value.ndim for value in values}) == 1
    )


def _plain(value: Any) -> Any:
    """Make lists of arrays inside other values, down to one dimension: what pyarrow reads by itself."""
    value = as_array(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if not isinstance(value, np.ndarray):
        return value
    value = native(widened(value))
    return [_plain(row) for row in value] if value.ndim > 1 else value if value.ndim else value.item()
