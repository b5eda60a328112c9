"""numpy arrays."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.lib.recfunctions

from shoal.errors import CorruptObjectError, StoreError
from shoal.store._contexts import BuilderContext, ResolverContext
from shoal.store._meta import Object, ObjectMeta

if TYPE_CHECKING:
    from shoal.store._base import BaseStore

#: What C++ calls types for which numpy has another name.
_ML = "ml_dtypes."
_CPP = {"float32": "float", "float64": "double", "bool": "bool", "object": "object"}


def build_array(
    store: BaseStore, value: np.ndarray[Any, Any], builder: BuilderContext, partition_index: Any = None
) -> ObjectMeta:
    """Describe an array; ``partition_index`` says which part of a larger one it is."""
    try:
        name, described = _described_type(value.dtype)
    except ValueError:  # fields that overlap, or are in another order than their bytes
        value = np.lib.recfunctions.repack_fields(value)
        name, described = _described_type(value.dtype)
    keys = {"shape_": list(value.shape), "partition_index_": [int(number) for number in partition_index or ()]}
    if value.dtype.hasobject or value.dtype.kind == "T":
        return _described_objects(store, ObjectMeta(f"vineyard::Tensor<{name}>", keys), value, builder)
    is_fortran = value.flags.f_contiguous and not value.flags.c_contiguous
    kind = {"value_type_": name, "value_type_meta_": described, "order_": "F" if is_fortran else "C"}
    return ObjectMeta(f"vineyard::Tensor<{name}>", {**keys, **kind}, buffer_=value)


def resolve_array(obj: Object, resolver: ResolverContext) -> np.ndarray[Any, Any]:
    """Give an array that lies where it was put."""
    meta = obj.meta
    shape = tuple(meta["shape_"])
    if "items_" in meta:
        return _objects(resolver(obj.member("items_")), shape, _text_type(obj, resolver))
    dtype = _type(meta["value_type_meta_"])
    data = obj.blob("buffer_")
    if not data.nbytes:
        array = np.zeros(shape, dtype, order=meta["order_"])
        array.flags.writeable = False
    else:
        try:
            array = np.frombuffer(data, dtype).reshape(shape, order=meta["order_"])
        except ValueError as error:
            raise CorruptObjectError(f"object {obj.id} is no array of {shape} and {dtype}: {error}") from error
    return array[()] if meta.get("scalar_") else array


def build_number(store: BaseStore, value: np.generic, builder: BuilderContext) -> ObjectMeta:
    """Describe a number of numpy's."""
    meta = builder(store, np.asarray(value))
    meta["scalar_"] = True
    return meta


def build_masked(store: BaseStore, value: np.ma.MaskedArray[Any, Any], builder: BuilderContext) -> ObjectMeta:
    """Describe an array of which some values are masked."""
    if value is np.ma.masked:
        return ObjectMeta("vineyard::MaskedTensor", {"constant_": True})
    parts = {"data_": value.data, "mask_": np.ma.getmaskarray(value), "fill_": np.asarray(value.fill_value)}
    meta = ObjectMeta("vineyard::MaskedTensor")
    for name, part in parts.items():
        meta.add_member(name, builder(store, part))
    return meta


def resolve_masked(obj: Object, resolver: ResolverContext) -> np.ma.MaskedArray[Any, Any]:
    """Give it back."""
    if "constant_" in obj.meta:
        return np.ma.masked
    data, mask, fill = (resolver(obj.member(name)) for name in ("data_", "mask_", "fill_"))
    return np.ma.MaskedArray(data, mask, fill_value=fill[()], copy=False)


def _described_objects(
    store: BaseStore, meta: ObjectMeta, value: np.ndarray[Any, Any], builder: BuilderContext
) -> ObjectMeta:
    """Describe objects: texts as Arrow holds them, anything else one by one."""
    meta["value_type_"] = "object"
    if value.dtype.kind not in "OT":
        raise StoreError(f"records that hold Python objects ({value.dtype}) cannot be put; put their fields one by one")
    items = value.reshape(-1).tolist()
    if value.dtype.kind == "T":
        meta["value_type_meta_"] = "StringDType"
        if hasattr(value.dtype, "na_object"):
            meta.add_member("na_", builder(store, value.dtype.na_object))
    meta.add_member("items_", builder(store, _texts(items)))
    return meta


def _texts(items: list[Any]) -> Any:
    """Let Arrow hold texts, unless there is something else, or what UTF-8 cannot write."""
    if not items or not all(type(item) is str for item in items):
        return items
    import pyarrow as pa

    try:
        return pa.array(items, pa.large_string())
    except UnicodeEncodeError:
        return items


def _text_type(obj: Object, resolver: ResolverContext) -> Any:
    """Tell of which type of numpy's texts are; None for objects."""
    if obj.meta.get("value_type_meta_") != "StringDType":
        return None
    missing = {"na_object": resolver(obj.member("na_"))} if "na_" in obj.meta else {}
    return np.dtypes.StringDType(**missing)


def _objects(items: Any, shape: tuple[int, ...], kind: Any) -> np.ndarray[Any, Any]:
    values = items.to_pylist() if hasattr(items, "to_pylist") else items
    if kind is not None:
        made = np.array(values, kind).reshape(shape)
        made.flags.writeable = False
        return made
    made = np.empty(len(values), object)
    for number, value in enumerate(values):
        made[number] = value
    return made.reshape(shape)


@lru_cache
def _described_type(dtype: np.dtype[Any]) -> tuple[str, str]:
    """Name a type as C++ does, and as numpy does."""
    name = _CPP.get(dtype.name, dtype.name)
    if dtype.names is not None:
        return name, repr(np.lib.format.dtype_to_descr(dtype))
    if dtype.type.__module__.startswith("ml_dtypes"):
        return name, f"{_ML}{dtype.name}"
    return name, dtype.str


def _type(text: str) -> np.dtype[Any]:
    if text.startswith(("[", "(", "{")):
        return np.lib.format.descr_to_dtype(ast.literal_eval(text))
    if text.startswith(_ML):
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, text.removeprefix(_ML)))
        return found
    return np.dtype(text)
