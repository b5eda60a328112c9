"""Rows of Arrow columns as samples.

A column is turned into Python values as a whole, and the rows are dealt out of the columns. Numbers, text and times are
what pyarrow makes of them; numbers in lists are numpy arrays, which share Arrow's memory where they can.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shoal.abc import Sample
from shoal.errors import DecodeError, DuplicateFieldError, MissingFieldError, PlanError
from shoal.files import display

__all__ = ["RowForm", "Rows", "values"]

#: Numbers of the same shape, one for each element of a column, and which elements have no null in them.
Dense: TypeAlias = "tuple[NDArray[Any], NDArray[np.bool_]]"

#: What pyarrow raises about values that Python cannot hold: text that is not UTF-8, the year 300000.
_UNFIT = (pa.ArrowException, ValueError, TypeError, ArithmeticError, LookupError)


@dataclass(frozen=True, slots=True)
class RowForm:
    """Which columns of a file become fields, and what becomes the key."""

    url: str
    stem: str
    """Begins the keys of a file that has none of its own."""
    fields: tuple[str, ...]
    key: str | None

    @classmethod
    def of(cls, schema: pa.Schema, url: str, stem: str, columns: Sequence[str] | None, key: str | None) -> RowForm:
        """Check what is asked for against what is there."""
        names: list[str] = schema.names
        key = "__key__" if key is None and "__key__" in names else key
        chosen = dict.fromkeys(names if columns is None else columns)
        form = cls(url, stem, tuple(name for name in chosen if name != "__key__"), key)
        counts = Counter(names)
        for name in (*chosen, *form.columns):
            _check_present(name, counts, url)
        if key is not None and pa.types.is_nested(schema.field(key).type):
            raise PlanError(f"the column {key!r} of {display(url)} holds {schema.field(key).type}, which makes no keys")
        return form

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        return [*self.fields, *([] if self.key is None or self.key in self.fields else [self.key])]


def _check_present(name: str, names: Counter[str], url: str) -> None:
    if names[name] > 1:
        raise DuplicateFieldError("several columns have this name", field=name, shard=display(url))
    if not names[name]:
        near = difflib.get_close_matches(name, names, n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(names) or 'none'}"
        raise MissingFieldError(f"the file has no such column; {hint}", field=name, shard=display(url))


class Rows:
    """Consecutive rows of a file, as Arrow holds them."""

    def __init__(self, batch: pa.RecordBatch, first: int, form: RowForm) -> None:
        self._batch = batch.select(form.columns)
        self._form = form
        self.first = first
        self.stop = first + int(batch.num_rows)

    @property
    def nbytes(self) -> int:
        """The memory that is held for them."""
        return int(self._batch.get_total_buffer_size())

    def samples(self, rows: Sequence[int]) -> list[Sample]:
        """Make samples of some of the rows, which are counted from the beginning of the file."""
        if not rows:
            return []
        run = range(rows[0], rows[0] + len(rows))
        if rows == run or list(rows) == list(run):
            return self._made(self._batch.slice(run.start - self.first, len(run)), run)
        try:
            batch = self._batch.take(pa.array(np.asarray(rows, np.int64) - self.first))
        except pa.ArrowNotImplementedError:
            # pyarrow cannot pick from all of its newer types, but it can slice them.
            return [sample for row in rows for sample in self.samples(range(row, row + 1))]
        return self._made(batch, rows)

    def _made(self, batch: pa.RecordBatch, rows: Sequence[int]) -> list[Sample]:
        form = self._form
        columns = [self._values(batch, name) for name in form.fields]
        names = ("__key__", *form.fields)
        return [dict(zip(names, row, strict=True)) for row in zip(self._keys(batch, rows), *columns, strict=True)]

    def _values(self, batch: pa.RecordBatch, name: str) -> list[Any]:
        column = batch.column(name)
        try:
            return values(column)
        except _UNFIT as error:
            text = f"its values, of type {column.type}, cannot be had in Python: {error}"
            raise DecodeError(text, field=name, shard=display(self._form.url)) from error

    def _keys(self, batch: pa.RecordBatch, rows: Sequence[int]) -> Iterable[str]:
        stem, name = self._form.stem, self._form.key
        if name is None:
            return (f"{stem}-{row:09d}" for row in rows)
        found = self._values(batch, name)
        if None in found:
            text = f"row {rows[found.index(None)]} has no value here, and so no key"
            raise MissingFieldError(text, field=name, shard=display(self._form.url))
        return map(_text, found)


def _text(key: Any) -> str:
    return key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else str(key)


def values(array: pa.Array) -> list[Any]:
    """Turn a column into a list of Python values.

    >>> values(pa.array([[1, 2], None, [3, None]], pa.list_(pa.int16())))
    [array([1, 2], dtype=int16), None, [3, None]]
    """
    convert = _tensor if _is_tensor(array.type) else _CONVERTERS.get(array.type.id)
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
    lows = np.where(shown, _numpy(array.offsets), 0)
    highs = np.where(shown, lows + _numpy(array.sizes), 0)
    begin = int(lows[shown].min(initial=len(array.values)))
    end = max(int(highs.max(initial=0)), begin)
    cuts = zip((lows - begin).tolist(), (highs - begin).tolist(), strict=True)
    return _dealt(array.values.slice(begin, end - begin), [(low, high) if low >= 0 else (0, 0) for low, high in cuts])


def _tensor(array: pa.Array) -> list[Any]:
    """Deal out what has a fixed size: as arrays where that is possible."""
    dense = _dense(array)
    numbers, whole = dense if dense is not None else (None, np.zeros(len(array), bool))
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
    offsets = _numpy(array.offsets)
    begin, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return list(pairwise((offsets - begin).tolist())), begin, end - begin


def _dealt(child: pa.Array, cuts: list[tuple[int, int]]) -> list[Any]:
    """Cut elements into lists; numbers stay together as arrays, except in a list that holds a null."""
    dense = _dense(child)
    if dense is None:
        inside = values(child)
        return [inside[low:high] for low, high in cuts]
    numbers, whole = dense
    if whole.all():
        return [numbers[low:high] for low, high in cuts]
    inside = values(child)
    return [numbers[low:high] if whole[low:high].all() else inside[low:high] for low, high in cuts]


def _dense(array: pa.Array) -> Dense | None:
    """Give an array of numbers, or of equal shapes of numbers, as one numpy array; None where it is anything else."""
    kind = array.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return _dense_tensor(array)
    if pa.types.is_fixed_size_list(kind):
        child, size = _fixed_child(array)
        dense = _dense(child)
        if dense is None:
            return None
        numbers, whole = dense
        inner = whole.reshape(len(array), size).all(axis=1)
        return numbers.reshape(len(array), size, *numbers.shape[1:]), inner & _valid(array)
    return (_numpy(array), _valid(array)) if _is_number(kind) else None


def _dense_tensor(array: pa.Array) -> Dense | None:
    dense = _dense(array.storage)
    if dense is None:
        return None
    numbers, whole = dense
    order = array.type.permutation or range(len(array.type.shape))
    return numbers.reshape(len(array), *array.type.shape).transpose(0, *(axis + 1 for axis in order)), whole


def _fixed_child(array: pa.Array) -> tuple[pa.Array, int]:
    """Give the elements of lists of a fixed size, those of null lists among them."""
    lists = array.storage if isinstance(array, pa.ExtensionArray) else array
    size = lists.type.list_size
    return lists.values.slice(lists.offset * size, len(lists) * size), size


def _numpy(array: pa.Array) -> NDArray[Any]:
    """Give numbers as they lie in memory; in the place of a null there may be any."""
    if array.null_count:
        array = pa.Array.from_buffers(array.type, len(array), [None, array.buffers()[1]], offset=array.offset)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_tensor(kind: pa.DataType) -> bool:
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
