"""Several samples as one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shoal import registry
from shoal._optional import tensor_library
from shoal._slabs import whole_slab
from shoal.abc import Sample
from shoal.errors import MissingFieldError
from shoal.pipeline._memory import Memory, joined, native

__all__ = ["collate", "column", "to_numpy"]

#: Whole numbers up to here are exact as float64.
_EXACT = 2**53


def collate(samples: Sequence[Sample], memory: Memory = None) -> Sample:
    """Make a batch: numbers, arrays of one shape and type, and tensors alike are stacked; the rest becomes lists.

    Nothing changes its value or turns into Python objects in an array: where numbers have no common type that holds
    them all (booleans among numbers, whole numbers beyond 64 bits), the field is a list.

    >>> collate([{"__key__": "a", "cls": 1}, {"__key__": "b", "cls": 2}])
    {'__key__': ['a', 'b'], 'cls': array([1, 2])}
    >>> collate([{"__key__": "a", "n": True}, {"__key__": "b", "n": 2}])
    {'__key__': ['a', 'b'], 'n': [True, 2]}
    """
    names = samples[0].keys()
    for sample in samples:
        if sample.keys() != names:
            odd = sorted(sample.keys() ^ names)
            text = f"the samples of a batch differ in their fields: {', '.join(odd)} is not in all of them"
            raise MissingFieldError(text, key=sample["__key__"])
    return {name: column([sample[name] for sample in samples], memory) for name in names}


def to_numpy(batch: Sample) -> Sample:
    """Leave a batch as it is: numpy is what batches are made of."""
    return batch


def column(values: list[Any], memory: Memory = None) -> Any:
    """Make one field of a batch.

    >>> column([1.5, 2])
    array([1.5, 2. ])
    """
    kinds = set(map(type, values))
    kind = type(values[0])
    if len(kinds) == 1:
        if kind is str or kind is bytes:
            return values
        if kind is np.ndarray:
            return _arrays(values, memory)
        if kind is int:
            return _integers(values)
        if kind.__module__ == "ml_dtypes":  # bfloat16 and its kin, which numpy counts among no family
            return np.array(values)
    if issubclass(kind, int | float | complex | np.generic):
        return _scalars(values, kinds)
    if issubclass(kind, np.ndarray):
        return _subclasses(values, kinds)
    return _tensors(values)


def _arrays(arrays: list[np.ndarray[Any, Any]], memory: Memory = None) -> Any:
    first = arrays[0]
    shape, dtype = first.shape, first.dtype
    for array in arrays:
        if array.shape != shape or (array.dtype is not dtype and array.dtype != dtype):
            return arrays
    if dtype.hasobject:
        return arrays
    if not shape:
        return native(np.stack(arrays))
    # Rows that were filled where the batch is to be are it already.
    slab = whole_slab(arrays) if dtype.isnative else None
    return joined([array[None] for array in arrays], memory) if slab is None else slab


def _subclasses(values: list[Any], kinds: set[type]) -> Any:
    """Stack memory maps and their like; masked arrays would lose their masks, so they stay a list."""
    if not all(issubclass(kind, np.ndarray) and not issubclass(kind, np.ma.MaskedArray) for kind in kinds):
        return values
    plain = [np.asarray(value) for value in values]
    stacked = _arrays(plain)
    return values if stacked is plain else stacked


def _tensors(values: list[Any]) -> Any:
    first = values[0]
    library = tensor_library(first)
    if library is None:
        return values
    alike = all(tensor_library(v) == library and v.shape == first.shape and v.dtype == first.dtype for v in values)
    return registry.load("stack", library)(values) if alike else values


def _scalars(values: list[Any], kinds: set[type]) -> Any:
    make = _MAKERS.get(frozenset(map(_family, kinds)))
    return values if make is None else make(values)


def _family(kind: type) -> Any:
    """Sort the types of scalars by what can share an array; a type of its own is its own family."""
    return next((name for types, name in _FAMILIES if issubclass(kind, types)), None)


def _integers(values: list[int]) -> Any:
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return values


def _numpy_integers(values: list[Any]) -> Any:
    array = np.array(values)
    return array if array.dtype.kind in "iu" else values  # int64 and uint64 would meet as float64


def _mixture(values: list[Any]) -> Any:
    exact = all(abs(int(value)) <= _EXACT for value in values if isinstance(value, int | np.integer))
    return np.array(values) if exact else values


def _dates(values: list[Any]) -> Any:
    units = {value.dtype for value in values if not np.isnat(value)}
    return np.array(values, *units) if len(units) <= 1 else values  # numpy wraps around where units differ


def _records(values: list[Any]) -> Any:
    dtype = values[0].dtype
    alike = not dtype.hasobject and all(value.dtype == dtype for value in values)
    return native(np.array(values, dtype)) if alike else values


#: The first that fits: numpy counts durations among the integers.
_FAMILIES: list[tuple[Any, str]] = [
    (bool | np.bool_, "bool"),
    (np.datetime64, "date"),
    (np.timedelta64, "duration"),
    (int | np.integer, "integer"),
    (float | complex | np.inexact, "real"),
    (np.void, "record"),
]

_MAKERS: dict[frozenset[str | None], Callable[[list[Any]], Any]] = {
    frozenset({"bool"}): np.array,
    frozenset({"date"}): _dates,
    frozenset({"duration"}): _dates,
    frozenset({"integer"}): _numpy_integers,
    frozenset({"real"}): np.array,
    frozenset({"integer", "real"}): _mixture,
    frozenset({"record"}): _records,
}
