"""Shards on their way into collections of other systems: as Arrow tables, and what must be known of them before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from shoal._tables import as_table
from shoal.errors import PlanError

__all__ = ["Look", "filled", "has_gaps", "look", "schema_of", "table_of"]


@dataclass(frozen=True, slots=True)
class Look:
    """What a shard is: a frame without its rows, or the shape and type of an array."""

    kind: str
    empty: Any = None
    shape: tuple[int, ...] = ()
    dtype: Any = None


def look(shard: Any) -> Look:
    """Look at a shard.

    >>> look(np.zeros((2, 3))).shape
    (2, 3)
    """
    if isinstance(shard, pd.DataFrame | pd.Series):
        return Look("frame", shard.iloc[:0])
    if isinstance(shard, np.ndarray):
        return Look("array", shape=shard.shape, dtype=shard.dtype)
    if isinstance(shard, list):
        return Look("list")
    raise PlanError(f"shards of type {type(shard).__name__} make no Dask collection; frames, arrays and lists do")


def table_of(shard: Any) -> pa.Table:
    """Make an Arrow table of a frame, or of a dict of arrays."""
    is_dict = isinstance(shard, dict) and all(isinstance(value, np.ndarray) and value.ndim for value in shard.values())
    if is_dict or isinstance(shard, pd.DataFrame):
        return as_table(shard)
    raise PlanError(f"a shard of type {type(shard).__name__} makes no table; frames and dicts of arrays do")


def schema_of(shard: Any) -> pa.Schema:
    """Give the schema of the table that a shard makes."""
    return table_of(shard).schema.remove_metadata()


def has_gaps(schema: pa.Schema) -> bool:
    """Tell whether there are columns without a type: those of a shard in which they have no value."""
    return any(pa.types.is_null(kind) for kind in schema.types)


def filled(schema: pa.Schema, others: Iterable[pa.Schema]) -> pa.Schema:
    """Give columns without a type that which they have in another shard.

    >>> filled(pa.schema({"a": pa.null()}), [pa.schema({"a": pa.null()}), pa.schema({"a": pa.int8()})]).types
    [DataType(int8)]
    """
    for other in others:
        for place, field in enumerate(schema):
            if pa.types.is_null(field.type) and other.get_field_index(field.name) >= 0:
                schema = schema.set(place, other.field(field.name))
    return schema
