"""The columns of pandas frames: what numpy has no type for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from shoal.errors import StoreError
from shoal.store._contexts import BuilderContext, ResolverContext
from shoal.store._meta import Object, ObjectMeta

if TYPE_CHECKING:
    from shoal.store._base import BaseStore


def build_column(store: BaseStore, value: Any, builder: BuilderContext) -> ObjectMeta:
    """Describe the array behind a column or an index."""
    if isinstance(value, np.ndarray):
        return _cells(store, value, builder) if value.dtype == object else builder(store, value)
    kind: Any
    for kind, parts_of in _TAKEN_APART.items():
        if isinstance(value, kind):
            keys, parts = parts_of(value)
            members = {name: builder(store, part) for name, part in parts.items()}
            return ObjectMeta(f"vineyard::Column<{value.dtype}>", {"kind_": kind.__name__, **keys}, **members)
    if isinstance(value, pd.arrays.NumpyExtensionArray):
        return build_column(store, value.to_numpy(), builder)
    raise StoreError(f"a column of the type {value.dtype} cannot be put; convert it first, with astype()")


def resolve_column(obj: Object, resolver: ResolverContext) -> Any:
    """Make the array of a column again, of parts that lie where they were put."""
    parts = {name: resolver(obj.member(name)) for name in obj.meta.members}
    return _PUT_TOGETHER[obj.meta["kind_"]](obj.meta, parts)


def _cells(store: BaseStore, value: np.ndarray[Any, Any], builder: BuilderContext) -> ObjectMeta:
    """Describe a column of objects; arrays of one shape and type are one array."""
    first = value[0] if len(value) else None
    if isinstance(first, np.ndarray) and not first.dtype.hasobject:
        like = (type(first), first.dtype, first.shape)
        if all(isinstance(cell, np.ndarray) and (type(cell), cell.dtype, cell.shape) == like for cell in value):
            return ObjectMeta("vineyard::Column<ndarray>", {"kind_": "cells"}, cells_=builder(store, _stacked(value)))
    return builder(store, value)


def _stacked(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Put arrays below each other, without a copy if they are the rows of one."""
    first = value[0]
    base, size = first.base, first.nbytes
    if isinstance(base, np.ndarray) and base.flags.c_contiguous and base.dtype == first.dtype and size:
        begin = _address(first)
        if all(
            cell.base is base and cell.flags.c_contiguous and _address(cell) == begin + number * size
            for number, cell in enumerate(value)
        ):
            at = (begin - _address(base)) // first.itemsize
            return base.reshape(-1)[at : at + len(value) * first.size].reshape(len(value), *first.shape)
    return np.stack(list(value))


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _unstacked(meta: ObjectMeta, parts: dict[str, Any]) -> np.ndarray[Any, Any]:
    stacked = parts["cells_"]
    made = np.empty(len(stacked), object)
    for number, row in enumerate(stacked):
        made[number] = row
    return made


def _categorical(value: pd.Categorical) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"ordered_": bool(value.ordered)}, {"codes_": value.codes, "categories_": value.categories}


def _make_categorical(meta: ObjectMeta, parts: dict[str, Any]) -> pd.Categorical:
    dtype = pd.CategoricalDtype(parts["categories_"], meta["ordered_"])
    return pd.Categorical.from_codes(parts["codes_"], dtype=dtype, validate=False)


def _times(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    name = str(value.dtype)
    if not _is_named(value.dtype, name):
        raise StoreError(f"times of the type {name} cannot be put, whose zone has no name; convert them: tz_convert")
    return {"dtype_": name}, {"values_": np.asarray(value.asi8)}


def _is_named(dtype: Any, name: str) -> bool:
    """Tell whether the name of a type says all about it."""
    try:
        return bool(pd.api.types.pandas_dtype(name) == dtype)
    except TypeError:
        return False


def _make_times(meta: ObjectMeta, parts: dict[str, Any]) -> Any:
    dtype = pd.api.types.pandas_dtype(meta["dtype_"])
    if isinstance(dtype, pd.PeriodDtype):
        return pd.arrays.PeriodArray(parts["values_"], dtype=dtype)
    if isinstance(dtype, pd.DatetimeTZDtype):  # numbers are taken for times in UTC
        return pd.DatetimeIndex(parts["values_"], dtype=dtype, copy=False).array
    plain = parts["values_"].view(dtype)
    return (pd.TimedeltaIndex if dtype.kind == "m" else pd.DatetimeIndex)(plain, copy=False).array


def _intervals(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"closed_": value.closed}, {"left_": value.left, "right_": value.right}


def _make_intervals(meta: ObjectMeta, parts: dict[str, Any]) -> Any:
    return pd.arrays.IntervalArray.from_arrays(parts["left_"], parts["right_"], closed=meta["closed_"])


def _arrow(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    import pyarrow as pa

    dtype = value.dtype
    keys: dict[str, Any] = {"arrow_": isinstance(dtype, pd.ArrowDtype)}
    if isinstance(dtype, pd.StringDtype):
        keys |= {"storage_": dtype.storage, "nan_": dtype.na_value is not pd.NA}
    found = pa.chunked_array(value.__arrow_array__())
    return keys, {"array_": found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)}


def _make_arrow(meta: ObjectMeta, parts: dict[str, Any]) -> Any:
    import pyarrow as pa

    array = pa.chunked_array([parts["array_"]])
    if meta["arrow_"]:
        return pd.arrays.ArrowExtensionArray(array)
    dtype = pd.StringDtype(meta["storage_"], na_value=np.nan if meta["nan_"] else pd.NA)
    if meta["storage_"] == "pyarrow":
        return pd.arrays.ArrowStringArray(array, dtype=dtype)
    return dtype.construct_array_type()._from_sequence(array.to_pylist(), dtype=dtype)


def _masked(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"dtype_": str(value.dtype)}, {"data_": value._data, "mask_": value._mask}


def _make_masked(meta: ObjectMeta, parts: dict[str, Any]) -> Any:
    kind = pd.api.types.pandas_dtype(meta["dtype_"]).construct_array_type()
    return kind(parts["data_"], parts["mask_"], copy=False)


def _sparse(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    parts = {"values_": value.sp_values, "indices_": value.sp_index.indices, "fill_": np.asarray(value.fill_value)}
    return {"length_": len(value), "subtype_": str(value.dtype.subtype), "index_": value.kind}, parts


def _make_sparse(meta: ObjectMeta, parts: dict[str, Any]) -> Any:
    values, indices, fill = parts["values_"], parts["indices_"], parts["fill_"][()]
    array: Any = pd.arrays.SparseArray
    if hasattr(array, "from_indices"):
        return array.from_indices(values, indices, meta["length_"], fill, meta["index_"], np.dtype(meta["subtype_"]))
    from pandas._libs.sparse import IntIndex  # before pandas 3.1

    dtype = pd.SparseDtype(meta["subtype_"], fill)
    return array(values, sparse_index=IntIndex(meta["length_"], indices), dtype=dtype)


_TIMES = (pd.arrays.DatetimeArray, pd.arrays.TimedeltaArray, pd.arrays.PeriodArray)
_MASKED = (pd.arrays.IntegerArray, pd.arrays.FloatingArray, pd.arrays.BooleanArray)
_TEXTS = (pd.arrays.ArrowExtensionArray, pd.arrays.ArrowStringArray, pd.arrays.StringArray)
_TAKEN_APART: dict[type, Any] = {
    pd.Categorical: _categorical,
    pd.arrays.IntervalArray: _intervals,
    pd.arrays.SparseArray: _sparse,
    **dict.fromkeys(_TIMES, _times),
    **dict.fromkeys(_MASKED, _masked),
    **dict.fromkeys(_TEXTS, _arrow),
}
_PUT_TOGETHER: dict[str, Any] = {
    "cells": _unstacked,
    "Categorical": _make_categorical,
    "IntervalArray": _make_intervals,
    "SparseArray": _make_sparse,
    **{kind.__name__: _make_times for kind in _TIMES},
    **{kind.__name__: _make_masked for kind in _MASKED},
    **{kind.__name__: _make_arrow for kind in _TEXTS},
}
