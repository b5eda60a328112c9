"""What the columns of a table hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from shoal.errors import PlanError

__all__ = ["DType", "FeatureType", "Schema", "SchemaField", "check_schema", "schema_from_json", "schema_to_json"]


class FeatureType(Enum):
    """How values are stored.

    >>> [each.name for each in FeatureType]
    ['IMAGE', 'NDARRAY', 'SCALAR']
    """

    IMAGE = "image"
    """A picture: a record names its file, and the bytes of this are stored as they are."""
    NDARRAY = "ndarray"
    """An array, compressed."""
    SCALAR = "scalar"
    """A number, a text or some bytes."""


class DType(Enum):
    """The type of a value, or of the values in an array; the value of each is numpy's name for it.

    >>> DType.FLOAT32.value
    'float32'
    """

    STRING = "str"
    BYTES = "bytes"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    UINT8 = "uint8"


@dataclass(frozen=True, slots=True)
class SchemaField:
    """One column.

    >>> SchemaField(FeatureType.NDARRAY, DType.FLOAT32, (-1, 5)).shape
    (-1, 5)
    """

    feature_type: FeatureType
    dtype: DType
    shape: tuple[int, ...] = ()
    """That of an array; -1 stands for any length, and () says nothing."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        for name, kind in (("feature_type", FeatureType), ("dtype", DType)):
            given = getattr(self, name)
            if not isinstance(given, kind):
                raise PlanError(f"{name} is {given!r}; it is one of {', '.join(map(str, kind))}")
        if not all(isinstance(size, int) and size >= -1 for size in self.shape):
            raise PlanError(f"shape is {self.shape}; it holds lengths, and -1 for any length")
        if self.feature_type is FeatureType.SCALAR and self.shape:
            raise PlanError(f"a scalar has no shape, and this one has {self.shape}; an array is a FeatureType.NDARRAY")


#: name of a column -> what it holds
Schema: TypeAlias = Mapping[str, SchemaField]


def check_schema(schema: Any) -> None:
    """Refuse what is no schema."""
    if not isinstance(schema, Mapping) or not schema:
        raise PlanError(f"a schema is a dict of name -> SchemaField, not {schema!r}")
    for name, field in schema.items():
        if not isinstance(name, str) or not name or name.startswith("__"):
            raise PlanError(f"a column cannot be called {name!r}; it takes a text that does not begin with two _")
        if not isinstance(field, SchemaField):
            raise PlanError(f"column {name!r} is described by {field!r}; it takes a SchemaField")


def schema_to_json(schema: Schema) -> dict[str, Any]:
    """Write a schema with names and numbers alone."""
    return {
        name: {"feature_type": field.feature_type.name, "dtype": field.dtype.name, "shape": list(field.shape)}
        for name, field in schema.items()
    }


def schema_from_json(written: Mapping[str, Any]) -> dict[str, SchemaField]:
    """Read what `schema_to_json` wrote.

    >>> fields = {"id": SchemaField(FeatureType.SCALAR, DType.STRING)}
    >>> schema_from_json(schema_to_json(fields)) == fields
    True
    """
    return {
        name: SchemaField(FeatureType[field["feature_type"]], DType[field["dtype"]], tuple(field["shape"]))
        for name, field in written.items()
    }
