"""Frames as Arrow: the values that pandas has, with the types that all parts of a table share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from shoal.errors import DecodeError, SchemaError

__all__ = ["agreed_schema", "arrow_types", "as_batch"]


def arrow_types(frame: pd.DataFrame) -> dict[str, pa.DataType]:
    """Tell what columns are in Arrow. Objects have to be looked at for that, and nothing but nan says nothing.

    >>> arrow_types(pd.DataFrame({"n": [1], "list": [[1, 2]], "none": [None]}))
    {'n': DataType(int64), 'list': ListType(list<item: int64>)}
    """
    found = {}
    for name in frame.columns[frame.notna().any()]:
        values = frame[name]
        found[str(name)] = _array(values if _is_object(values.dtype) else values.iloc[:0], None, str(name)).type
    return found


def agreed_schema(kinds: Mapping[Any, Any], seen: Sequence[Mapping[str, pa.DataType]]) -> pa.Schema:
    """Give types to columns: to those of objects the ones that hold what was seen in all parts."""
    fields = []
    for name, kind in kinds.items():
        if _is_object(kind):
            found = _common(str(name), [each[str(name)] for each in seen if str(name) in each])
        else:
            found = _array(pd.Series([], dtype=kind), None, str(name)).type
        fields.append(pa.field(str(name), found))
    return pa.schema(fields)


def as_batch(frame: pd.DataFrame, schema: pa.Schema, place: str) -> pa.RecordBatch:
    """Convert a frame. A missing number stays nan, as pandas has it; whatever else is missing is null.

    >>> frame = pd.DataFrame({"x": [1.5, None], "word": ["a", None]})
    >>> as_batch(frame, agreed_schema(frame.dtypes, []), "here").to_pylist()
    [{'x': 1.5, 'word': 'a'}, {'x': nan, 'word': None}]
    """
    names = {str(name): name for name in frame.columns}
    columns = [_array(frame[names[field.name]], field.type, place) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _common(name: str, kinds: Sequence[pa.DataType]) -> pa.DataType:
    try:
        schemas = [pa.schema([pa.field(name, kind)]) for kind in dict.fromkeys(kinds)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type if schemas else pa.string()
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        told = " and ".join(map(str, dict.fromkeys(kinds)))
        raise SchemaError(f"column {name!r} holds {told}, which have no type in common; choose one: dtype=") from error


def _is_object(kind: Any) -> bool:
    return bool(kind == np.dtype(object))


def _array(values: pd.Series, kind: pa.DataType | None, place: str) -> pa.Array:
    try:
        if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iufb":
            return pa.array(values.to_numpy(), kind, from_pandas=False)
        if isinstance(values.dtype, pd.CategoricalDtype):
            values = values.astype(values.dtype.categories.dtype)
        made = pa.array(values, kind, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        text = f"its values have no type in common, so they make no column of samples; choose one: dtype= ({error})"
        raise DecodeError(text, field=str(values.name), shard=place) from error
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
