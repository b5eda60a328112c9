"""Objects that have rows: frames, tables, arrays and dicts of arrays, as columns that are read where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.errors import PlanError, StoreError
from shoal.store._contexts import ResolverContext, trusted, trusting
from shoal.store._globals import partitions
from shoal.store._meta import Object

__all__ = ["Rows", "chosen", "columns", "frame_of", "full_columns", "of_arrow", "plain_resolvers", "row_partitions"]

_VALUES = "__values_-value"


def columns(obj: Object) -> dict[Any, NDArray[Any]]:
    """Give the columns of an object that has rows, as arrays where they lie; those of an array are one, called ``x``.

    A column of arrays of one shape is one array with a row for each. What numpy has no type for is objects, with None
    for what is missing.

    >>> import tempfile
    >>> from shoal.store import connect
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> columns(store.get_object(store.put({"a": np.arange(2), "b": np.zeros((2, 3))})))["b"].shape
    (2, 3)
    """
    with trusting(trusted() or obj.store.trust):
        return _columns(obj, obj.typename.partition("<")[0])


def _columns(obj: Object, kind: str) -> dict[Any, NDArray[Any]]:
    if kind == "vineyard::DataFrame":
        return _of_frame(obj)
    if kind in ("vineyard::Table", "vineyard::RecordBatch"):
        table = plain_resolvers()(obj)
        return {name: of_arrow(table.column(name)) for name in table.column_names}
    if kind == "vineyard::Series":
        name = obj.meta.get("name_")
        return {name if isinstance(name, str | int) else "x": _of_column(obj.member("values_"))}
    if kind == "vineyard::Tensor":
        return _checked(obj, {"x": _as_array(plain_resolvers()(obj))})
    found = plain_resolvers()(obj) if kind == "vineyard::Map" else None
    if isinstance(found, dict) and found and all(hasattr(value, "__len__") for value in found.values()):
        return _checked(obj, {name: _as_array(value) for name, value in found.items()})
    raise StoreError(f"{obj!r} has no rows; frames, tables, arrays and dicts of arrays have")


def row_partitions(
    obj: Object, which: str = "mine", rank: int | None = None, world_size: int | None = None
) -> list[Object]:
    """Give the parts of an object one below the other: its partitions as in `partitions`, or the object itself.

    >>> import tempfile
    >>> from shoal.store import connect
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> stored = store.get_object(store.put({"a": np.arange(2)}))
    >>> row_partitions(stored) == [stored]
    True
    """
    if not obj.meta.isglobal:
        return [obj]
    found = partitions(obj, which, rank, world_size)
    if not found:
        owners = obj.meta["owners_"]
        here = sum(owner == obj.store.instance_id for owner in owners)
        text = f"{obj!r} has no partition for this worker: {here} of its {len(owners)} are in the store of this host"
        raise StoreError(f"{text}; use fewer workers, cut it into more partitions, or get it with partitions='all'")
    for part in found:
        if any(part.meta.get("partition_index_", ())[1:]):
            text = f"the rows of {obj!r} are cut: its partitions lie beside each other, too"
            raise PlanError(f"{text}; put it with whole rows, with Dask as in x.rechunk({{1: -1}})")
    return found


def full_columns(
    obj: Object, which: str = "mine", rank: int | None = None, world_size: int | None = None
) -> list[tuple[Object, dict[Any, NDArray[Any]]]]:
    """Give the parts that have rows, each with its columns; one without rows if there are no others.

    A part without rows may not know of which type its columns are.
    """
    parts = [(part, columns(part)) for part in row_partitions(obj, which, rank, world_size)]
    full = [(part, found) for part, found in parts if any(len(column) for column in found.values())]
    return full or parts[:1]


class Rows(NamedTuple):
    """What a model is given, and what it is to find."""

    data: Any
    """An array, or a dict of arrays by column."""
    label: Any
    """An array, or None."""


def chosen(found: dict[Any, Any], data: Any = None, label: Any = None, *, default: str | None = "label") -> Rows:
    """Choose columns: one for an array, several or (None) all others for a dict; without a label there may be one.

    >>> chosen({"a": [1], "b": [2], "label": [0]})
    Rows(data={'a': [1], 'b': [2]}, label=[0])
    >>> chosen({"a": [1], "b": [2]}, data="b", label="a")
    Rows(data=[2], label=[1])
    """
    missing = [name for name in (*(data if isinstance(data, list) else [data]), label) if name not in (None, *found)]
    if missing:
        raise PlanError(f"there is no column {missing[0]!r}; there are {', '.join(map(repr, found))}")
    if label is None and default in found and data != default:
        label = default
    target = None if label is None else found[label]
    if isinstance(data, list):
        return Rows({name: found[name] for name in data}, target)
    if data is not None:
        return Rows(found[data], target)
    return Rows({name: column for name, column in found.items() if name != label}, target)


def frame_of(found: Mapping[Any, NDArray[Any]]) -> Any:
    """Make a frame of columns; those of more than one dimension have arrays for cells."""
    import pandas as pd

    return pd.DataFrame({name: _cells(column) for name, column in found.items()})


def _cells(column: NDArray[Any]) -> Any:
    if column.ndim == 1 and column.dtype == object and all(type(value) is bytes for value in column):
        import pandas as pd
        import pyarrow as pa

        return pd.arrays.ArrowExtensionArray(pa.array(column, pa.large_binary()))
    if column.ndim == 1:
        return column
    made = np.empty(len(column), object)
    for place, row in enumerate(column):
        made[place] = row
    return made


@lru_cache
def plain_resolvers() -> ResolverContext:
    """Give the resolvers that hold where nobody registered others."""
    from shoal.store.types import default_resolvers

    return default_resolvers()


def _of_frame(obj: Object) -> dict[Any, NDArray[Any]]:
    keys = obj.meta.keys_
    labels = keys["columns_"] if "columns_" in keys else plain_resolvers()(obj.member("columns_")).tolist()
    return {label: _of_column(obj.member(f"{_VALUES}-{number}")) for number, label in enumerate(labels)}


def _of_column(member: Any) -> NDArray[Any]:
    if member.typename == "vineyard::Column<ndarray>":
        return _as_array(plain_resolvers()(member.member("cells_")))
    found = plain_resolvers()(member)
    if isinstance(found, np.ndarray):
        return found
    kind = getattr(found.dtype, "numpy_dtype", found.dtype)
    if not found.isna().any() and isinstance(kind, np.dtype) and not kind.hasobject:
        return np.asarray(found.to_numpy(dtype=kind, copy=False))
    if getattr(found.dtype, "kind", "O") in "Mm" and isinstance(found.dtype, np.dtype):
        return np.asarray(found)
    made = np.array(found.astype(object), object)
    made[np.asarray(found.isna())] = None
    return made


def of_arrow(column: Any) -> NDArray[Any]:
    """Make an array of a column of Arrow's: lists of one length are its rows; what is ragged, or no number, is objects.

    >>> import pyarrow as pa
    >>> of_arrow(pa.array([[1.0, 2.0], [3.0, 4.0]])).shape
    (2, 2)
    """
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # too large for one piece, or without any
        parts = [of_arrow(chunk) for chunk in column.chunks]
        return np.concatenate(parts) if parts else of_arrow(pa.array([], column.type))
    kind = column.type
    if isinstance(column, pa.ExtensionArray) and hasattr(column, "to_numpy_ndarray"):
        return np.asarray(column.to_numpy_ndarray())
    if pa.types.is_primitive(kind) and not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    width = _width(column)
    if width is not None:
        inner = of_arrow(column.flatten())
        return inner.reshape(len(column), width, *inner.shape[1:])
    return _objects(column)


def _width(column: Any) -> int | None:
    """Tell how long the lists of a column are, if all are of one length and hold numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not lists or column.null_count or not len(column) or _leaf(kind).num_fields or column.flatten().null_count:
        return None
    if not pa.types.is_primitive(_leaf(kind)):
        return None
    ends = pc.min_max(pc.list_value_length(column)).as_py()
    return int(ends["min"]) if ends["min"] == ends["max"] else None


def _leaf(kind: Any) -> Any:
    while hasattr(kind, "value_type"):
        kind = kind.value_type
    return kind


def _objects(column: Any) -> NDArray[Any]:
    made = np.empty(len(column), object)
    for place, value in enumerate(column.to_pylist()):
        made[place] = value
    return made


def _as_array(value: Any) -> NDArray[Any]:
    return value if isinstance(value, np.ndarray) else np.asarray(value)


def _checked(obj: Object, found: dict[Any, NDArray[Any]]) -> dict[Any, NDArray[Any]]:
    counts = {array.shape[:1] for array in found.values()}
    if counts == {()} or len(counts) > 1:
        raise StoreError(f"{obj!r} has no rows: {', '.join(f'{name} is {a.shape}' for name, a in found.items())}")
    return found
