"""Columns of Arrow as lists of Python values.

Numbers, text and times are what pyarrow makes of them; numbers in lists are numpy arrays, which share Arrow's memory
where they can.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["as_numpy", "dense", "is_number", "is_tensor", "values"]

#: Numbers of the same shape, one for each element of a column, and which elements have no null in them.
Dense: TypeAlias = "tuple[NDArray[Any], NDArray[np.bool_]]"


def values(array: pa.Array) -> list[Any]:
    """Turn a column into a list of Python values.

    >>> values(pa.array([[1, 2], None, [3, None]], pa.list_(pa.int16())))
    [array([1, 2], dtype=int16), None, [3, None]]
    """
    convert = _tensor if is_tensor(array.type) else _CONVERTERS.get(array.type.id)
    if convert is None:
        found: list[Any] = array.to_pylist()
        return found
    made = convert(array)
    for place in _null_places(array):
        made[place] = None
    return made


def _null_places(array: pa.Array) -> list[int]:
    return np.flatnonzero(~_valid(array)).tolist() if array.null_count else []


def _valid(array: pa.Array) -> NDArray[np.bool_]:
    if not array.null_count:
        return np.ones(len(array), bool)
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), bool)


# What the functions below make of a null does not matter: `values` puts None in its place.


def _dictionary(array: pa.DictionaryArray) -> list[Any]:
    try:
        # Not all words are made Python values first: a dictionary may be much longer than the column.
        return values(array.dictionary.take(array.indices))
    except pa.ArrowNotImplementedError:
        found: list[Any] = array.to_pylist()
        return found


def _struct(array: pa.StructArray) -> list[Any]:
    names = [field.name for field in array.type]
    if len(set(names)) < len(names):
        raise ValueError("two fields of a struct have the same name")
    # Flattened, fields are null where their struct is; what would lie there otherwise may be anything.
    columns = [values(column) for column in array.flatten()]
    rows = zip(*columns, strict=True) if columns else ((),) * len(array)
    return [dict(zip(names, row, strict=True)) for row in rows]


def _map(array: pa.MapArray) -> list[Any]:
    cuts, begin, count = _cuts(array)
    pairs = list(zip(values(array.keys.slice(begin, count)), values(array.items.slice(begin, count)), strict=True))
    return [pairs[low:high] for low, high in cuts]


def _list(array: pa.ListArray) -> list[Any]:
    cuts, begin, count = _cuts(array)
    return _dealt(array.values.slice(begin, count), cuts)


def _list_view(array: pa.ListViewArray) -> list[Any]:
    shown = _valid(array)
    lows = np.where(shown, as_numpy(array.offsets), 0)
    highs = np.where(shown, lows + as_numpy(array.sizes), 0)
    begin = int(lows[shown].min(initial=len(array.values)))
    end = max(int(highs.max(initial=0)), begin)
    cuts = zip((lows - begin).tolist(), (highs - begin).tolist(), strict=True)
    return _dealt(array.values.slice(begin, end - begin), [(low, high) if low >= 0 else (0, 0) for low, high in cuts])


def _tensor(array: pa.Array) -> list[Any]:
    """Deal out what has a fixed size: as arrays where that is possible."""
    found = dense(array)
    numbers, whole = found if found is not None else (None, np.zeros(len(array), bool))
    rows: list[Any] = [None] * len(array) if numbers is None else list(numbers)
    if not whole.all():
        lists = array.storage if isinstance(array, pa.ExtensionArray) else array
        # Flattened, the elements of null lists are left out; they may be anything.
        inside, size = values(lists.flatten()), lists.type.list_size
        for place, row in enumerate(np.flatnonzero(_valid(lists)).tolist()):
            rows[row] = rows[row] if whole[row] else inside[size * place : size * (place + 1)]
    return rows


def _cuts(array: pa.Array) -> tuple[list[tuple[int, int]], int, int]:
    """Tell where the elements of each list lie, in what part of all elements; null lists may claim some, too."""
    offsets = as_numpy(array.offsets)
    begin, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return list(pairwise((offsets - begin).tolist())), begin, end - begin


def _dealt(child: pa.Array, cuts: list[tuple[int, int]]) -> list[Any]:
    """Cut elements into lists; numbers stay together as arrays, except in a list that holds a null."""
    found = dense(child)
    if found is None:
        inside = values(child)
        return [inside[low:high] for low, high in cuts]
    numbers, whole = found
    if whole.all():
        return [numbers[low:high] for low, high in cuts]
    inside = values(child)
    return [numbers[low:high] if whole[low:high].all() else inside[low:high] for low, high in cuts]


def dense(array: pa.Array) -> Dense | None:
    """Give an array of numbers, or of equal shapes of numbers, as one numpy array; None where it is anything else."""
    kind = array.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return _dense_tensor(array)
    if pa.types.is_fixed_size_list(kind):
        child, size = _fixed_child(array)
        found = dense(child)
        if found is None:
            return None
        numbers, whole = found
        inner = whole.reshape(len(array), size).all(axis=1)
        return numbers.reshape(len(array), size, *numbers.shape[1:]), inner & _valid(array)
    return (as_numpy(array), _valid(array)) if is_number(kind) else None


def _dense_tensor(array: pa.Array) -> Dense | None:
    found = dense(array.storage)
    if found is None:
        return None
    numbers, whole = found
    order = array.type.permutation or range(len(array.type.shape))
    return numbers.reshape(len(array), *array.type.shape).transpose(0, *(axis + 1 for axis in order)), whole


def _fixed_child(array: pa.Array) -> tuple[pa.Array, int]:
    """Give the elements of lists of a fixed size, those of null lists among them."""
    lists = array.storage if isinstance(array, pa.ExtensionArray) else array
    size = lists.type.list_size
    return lists.values.slice(lists.offset * size, len(lists) * size), size


def as_numpy(array: pa.Array) -> NDArray[Any]:
    """Give numbers as they lie in memory; in the place of a null there may be any."""
    if array.null_count:
        array = pa.Array.from_buffers(array.type, len(array), [None, array.buffers()[1]], offset=array.offset)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def is_tensor(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.FixedShapeTensorType | pa.FixedSizeListType)


_CONVERTERS: dict[int, Callable[[pa.Array], list[Any]]] = {
    pa.lib.Type_LIST: _list,
    pa.lib.Type_LARGE_LIST: _list,
    pa.lib.Type_LIST_VIEW: _list_view,
    pa.lib.Type_LARGE_LIST_VIEW: _list_view,
    pa.lib.Type_STRUCT: _struct,
    pa.lib.Type_MAP: _map,
    pa.lib.Type_DICTIONARY: _dictionary,
}
