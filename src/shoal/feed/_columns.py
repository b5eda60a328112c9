"""Fields of some samples on their way to another host: arrays as their bytes, the rest as what can be told in JSON.

What is sent has to give there exactly what putting the samples together would have given here, also when the samples of
a batch come from several hosts. So a column remembers what its values were before they became an array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal import registry
from shoal._optional import require, tensor_library
from shoal.abc import Sample
from shoal.environments import Decoder, Encoder, Malformed, Unsendable
from shoal.errors import FeedError
from shoal.pipeline.runs import Rows, column

__all__ = ["ARRAYS", "Column", "Head", "columns_of", "decoded", "encoded", "samples_of", "type_of", "values_of"]

#: What is told of a column beside its bytes, in JSON: the kind, and what the kind needs.
Head: TypeAlias = "list[Any]"

#: Types whose values make arrays of one type, and the kind by which they are known.
_PLAIN: dict[type, str] = {int: "int", float: "float", bool: "bool", complex: "complex", np.ndarray: "rows"}
#: Kinds that travel as one array; those of tensors are "tensor" and the name of a library.
ARRAYS = frozenset([*_PLAIN.values(), "scalar", "tensor torch", "tensor tensorflow", "tensor jax"])
#: The name under which samples travel whole, because they do not have the same fields, or are batches themselves.
_WHOLE = ""
_LIBRARIES = ("numpy", "pandas", "pyarrow")
#: Begin what stands for a tensor, or an array of a type that numpy has no code for; no text of a user does.
_TENSOR, _SMALL = "\0tensor", "\0small"


@dataclass(frozen=True, slots=True)
class Column:
    """One field of some samples: an array with a row for each, or a list."""

    kind: str
    values: Any
    rows: Sequence[int] | None = None
    """Which rows of the array are meant, if it has those of others, too."""

    @property
    def signature(self) -> tuple[Any, ...]:
        """What columns must agree on to be parts of one array, or of one list."""
        if self.kind not in ARRAYS:
            return (self.kind,)
        return (self.kind, self.values.dtype, self.values.shape[1:])


def columns_of(rows: Rows, memory: Any) -> dict[str, Column]:
    """Make columns of rows; arrays that are put together are in memory of ``memory``."""
    made = rows.columns()
    if made is not None:
        return {name: _as_it_is(values) for name, values in made.items()}
    samples = rows.samples()
    if not samples:
        return {}
    names = samples[0].keys()
    if isinstance(samples[0]["__key__"], list) or any(sample.keys() != names for sample in samples):
        return {_WHOLE: Column("values", list(samples))}
    return {name: _column([sample[name] for sample in samples], memory) for name in names}


def samples_of(columns: dict[str, Column], count: int) -> list[Sample]:
    """Give the samples of which columns were made.

    >>> samples_of({"__key__": Column("text", ["a", "b"]), "n": Column("int", np.array([1, 2]))}, 2)
    [{'__key__': 'a', 'n': 1}, {'__key__': 'b', 'n': 2}]
    """
    if _WHOLE in columns:
        return list(columns[_WHOLE].values)
    lists = [values_of(each) for each in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)] if lists else [{}] * count


def values_of(one: Column) -> list[Any]:
    """List the values of a column as samples have them.

    >>> values_of(Column("int", np.array([1, 2])))
    [1, 2]
    """
    match one.kind.split():
        case ["int" | "float" | "bool" | "complex"]:
            values = one.values.tolist()
        case ["tensor", library]:
            values = registry.load("format", library)({"": one.values})[""]
        case ["rows"] if one.values.ndim == 1:  # arrays without a dimension are not what such a row gives
            values = [one.values[row, ...] for row in range(len(one.values))]
        case _:
            values = one.values
    return list(values) if one.rows is None else [values[row] for row in one.rows]


def _as_it_is(values: Any) -> Column:
    if isinstance(values, np.ndarray) and not values.dtype.hasobject:
        return Column("scalar" if values.ndim == 1 else "rows", values)
    return _column(list(values), None)


def _column(values: list[Any], memory: Any) -> Column:
    kinds = set(map(type, values))
    kind = type(values[0])
    if len(kinds) == 1 and kind in (str, bytes):
        return Column("text" if kind is str else "bytes", values)
    name = _PLAIN.get(kind) or ("scalar" if issubclass(kind, np.generic) else None)
    library = tensor_library(values[0])
    if len(kinds) > 1 or (name is None and library is None) or _is_foreign(values[0]):
        return Column("values", values)
    made = column(values, memory)
    if library is not None and made is not values:
        return Column(f"tensor {library}", _array_of(made))
    is_array = isinstance(made, np.ndarray) and (made.dtype.kind != "V" or _is_small(made.dtype))
    return Column(name, made) if is_array and name is not None else Column("values", values)


def _is_foreign(value: Any) -> bool:
    """Tell whether an array is in another byte order than this machine's, which it would lose in a column."""
    return isinstance(value, np.ndarray) and not value.dtype.isnative


def _array_of(tensor: Any) -> NDArray[Any]:
    try:
        return np.asarray(tensor)
    except TypeError as error:
        raise FeedError(f"a tensor of type {tensor.dtype} cannot be sent; make it one that numpy has") from error


def encoded(name: str, one: Column) -> tuple[Head, list[Any]]:
    """Tell of a column in JSON, and give its bytes, without a copy of arrays.

    >>> encoded("n", Column("int", np.array([1, 2], "i8")))[0]
    ['int', '<i8', [2]]
    """
    if one.kind in ARRAYS:
        array = np.ascontiguousarray(one.values)
        return [one.kind, _type_name(array.dtype), list(array.shape)], [_raw(array)]
    if one.kind == "text":
        return ["text", one.values], []
    if one.kind == "bytes":
        lengths = np.fromiter(map(len, one.values), np.int64, len(one.values))
        return ["bytes", len(one.values)], [_raw(lengths), memoryview(b"".join(one.values))]
    encoder = Encoder(_LIBRARIES)
    try:
        tree = encoder.encode(_told(one.values))
    except Unsendable as error:
        place = f"field {name!r}: " if name else ""
        raise FeedError(f"{place}{error}; a feeder sends what is made of arrays, numbers, text and bytes") from None
    return ["values", tree], encoder.buffers


def decoded(head: Head, buffers: Sequence[Any]) -> Column:
    """Make a column of what was told of it and its bytes; arrays are views of these."""
    try:
        match head:
            case ["text", list(values)]:
                return Column("text", values)
            case ["bytes", int(count)]:
                return Column("bytes", _cut(np.frombuffer(buffers[0], np.int64, count), memoryview(buffers[1])))
            case ["values", tree]:
                return Column("values", _made(Decoder([memoryview(each) for each in buffers]).decode(tree)))
            case [str(kind), str(dtype), list(shape)] if kind in ARRAYS:
                return Column(kind, np.frombuffer(buffers[0], type_of(dtype)).reshape(shape))
    except (Malformed, ValueError, TypeError, IndexError) as error:
        raise FeedError(f"what a feeder sent is no column: {error!r:.200}") from error
    raise FeedError(f"what a feeder sent is no column: {head!r:.200}")


def type_of(name: str) -> np.dtype[Any]:
    """Give the type of an array that was told by its name."""
    try:
        dtype = np.dtype(name)
    except TypeError:
        require("ml_dtypes", f"an array of type {name}")
        dtype = np.dtype(name)
    if dtype.hasobject:
        raise ValueError(f"an array of {dtype} cannot have been sent")
    return dtype


def _type_name(dtype: np.dtype[Any]) -> str:
    return dtype.name if _is_small(dtype) else dtype.str


def _is_small(dtype: np.dtype[Any]) -> bool:
    """Tell whether a type is one of ``ml_dtypes``, which has a name and no code."""
    return dtype.type.__module__.partition(".")[0] == "ml_dtypes"


def _raw(array: NDArray[Any]) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8)) if array.nbytes else memoryview(b"")  # type: ignore[arg-type]


def _cut(lengths: NDArray[np.int64], data: memoryview) -> list[bytes]:
    ends = [0, *np.cumsum(lengths).tolist()]
    if ends[-1] != len(data) or (len(lengths) and lengths.min() < 0):
        raise ValueError("the lengths of byte strings do not add up")
    return [bytes(data[low:high]) for low, high in pairwise(ends)]


def _told(value: Any) -> Any:
    """Give values with plain arrays in the place of tensors and of arrays of small numbers, and what they were."""
    if type(value) is dict:
        return {name: _told(each) for name, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_told, value))
    if isinstance(value, np.ndarray | np.generic) and _is_small(value.dtype):
        return _SMALL, value.dtype.name, np.asarray(value).view(f"u{value.dtype.itemsize}")
    library = tensor_library(value)
    return value if library is None else (_TENSOR, library, _array_of(value))


def _made(value: Any) -> Any:
    """Give values with tensors where `_told` put something in their place."""
    if type(value) is dict:
        return {name: _made(each) for name, each in value.items()}
    if type(value) is tuple and value[:1] == (_TENSOR,):
        _, library, array = value
        return registry.load("format", library)({"": array})[""]
    if type(value) is tuple and value[:1] == (_SMALL,):
        return value[2].view(type_of(value[1]))
    return type(value)(map(_made, value)) if type(value) in (list, tuple) else value
