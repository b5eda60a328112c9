"""Values of records as cells of a table, and back."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import files
from shoal.data.image._schema import DType, FeatureType, Schema, SchemaField
from shoal.errors import DecodeError, EncodeError, ShoalError
from shoal.shards.codecs import DecodeOptions, decode

__all__ = ["array_of", "column_of", "stored", "values_of"]

#: The name of the array in its npz.
_ARRAY = "arr"


def stored(record: Any, number: int, schema: Schema) -> dict[str, Any]:
    """Make cells of a record; errors name the record and the column."""
    if not isinstance(record, dict):
        raise EncodeError(f"record {number} is a {type(record).__name__}; a record is a dict")
    missing, extra = sorted(schema.keys() - record.keys()), sorted(map(str, record.keys() - schema.keys()))
    if missing or extra:
        parts = [f"lacks {', '.join(missing)}"] if missing else []
        parts += [f"has {', '.join(extra)}, of which the schema knows nothing"] if extra else []
        raise EncodeError(f"record {number} {' and '.join(parts)}; the columns are {', '.join(schema)}")
    return {name: _cell(field, record[name], number, name) for name, field in schema.items()}


def array_of(data: bytes, options: DecodeOptions) -> NDArray[Any]:
    """Read the array in a cell; nothing is unpickled.

    >>> array_of(_packed(np.arange(3)), DecodeOptions())
    array([0, 1, 2])
    """
    arrays = decode("npz", data, options)
    if _ARRAY not in arrays:
        raise DecodeError(f"expected an npz with {_ARRAY!r} in it, found {', '.join(arrays) or 'nothing'}")
    array: NDArray[Any] = arrays[_ARRAY]
    return array


def values_of(name: str, field: SchemaField, cells: Sequence[Any]) -> Sequence[Any]:
    """Turn the cells of a column into values: arrays, numbers or text; pictures stay as their bytes."""
    if field.feature_type is not FeatureType.NDARRAY:
        return cells
    options = DecodeOptions()
    try:
        return [array_of(cell, options) for cell in cells]
    except DecodeError as error:
        error.field = name
        raise


def column_of(field: SchemaField, values: Sequence[Any]) -> Any:
    """Stack the values of a column; pictures, bytes and arrays of several shapes are lists."""
    if field.feature_type is FeatureType.NDARRAY:
        return np.stack(values) if len({value.shape for value in values}) == 1 else values
    if field.feature_type is FeatureType.IMAGE or field.dtype is DType.BYTES:
        return values
    return np.array(values, field.dtype.value)


def _cell(field: SchemaField, value: Any, number: int, name: str) -> Any:
    try:
        match field.feature_type:
            case FeatureType.IMAGE:
                return _file_bytes(value)
            case FeatureType.NDARRAY:
                return _packed(_shaped(_typed(np.asarray(value), field.dtype), field.shape))
        return _scalar(value, field.dtype)
    except EncodeError as error:
        raise EncodeError(f"record {number}: {error.args[0]}", field=name) from None
    except ShoalError as error:
        error.add_note(f"in record {number}, column {name!r}")
        raise


def _file_bytes(value: Any) -> bytes:
    if not isinstance(value, str | os.PathLike):
        raise EncodeError(f"a picture is given by the path of its file, not by a {type(value).__name__}")
    with files.open_read(value) as file:
        return file.read()


def _packed(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **{_ARRAY: array})
    return file.getvalue()


def _shaped(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    fits = len(shape) == array.ndim and all(want in (-1, size) for want, size in zip(shape, array.shape, strict=True))
    if shape and not fits:
        raise EncodeError(f"an array of shape {array.shape} is not of the schema's {shape}")
    return array


def _scalar(value: Any, dtype: DType) -> Any:
    if dtype in (DType.STRING, DType.BYTES):
        if not isinstance(value, str if dtype is DType.STRING else bytes):
            raise EncodeError(f"{value!r} is a {type(value).__name__}, and not of the schema's {dtype.name}")
        return value
    array = np.asarray(value)
    if array.ndim:
        raise EncodeError(f"an array of shape {array.shape} is no scalar; its column is a FeatureType.NDARRAY")
    return _typed(array, dtype).item()


def _typed(array: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """Give an array of the schema's type: floats may be rounded, whole numbers must stay what they are."""
    if dtype in (DType.STRING, DType.BYTES):
        if array.dtype.kind != ("U" if dtype is DType.STRING else "S"):
            raise EncodeError(f"an array of {array.dtype} is not of the schema's {dtype.name}")
        return array
    wanted = np.dtype(dtype.value)
    allowed = "biuf" if wanted.kind == "f" else "biu"
    if array.dtype.kind not in allowed:
        raise EncodeError(f"{_shown(array)} cannot be {dtype.name} without losing something")
    if wanted.kind == "f":
        return array.astype(wanted)
    limits = np.iinfo(wanted)
    if array.size and not (limits.min <= int(array.min()) and int(array.max()) <= limits.max):
        raise EncodeError(f"{_shown(array)} goes beyond {dtype.name}, which is from {limits.min} to {limits.max}")
    return array.astype(wanted)


def _shown(array: NDArray[Any]) -> str:
    return repr(array.item()) if array.ndim == 0 else f"an array of {array.dtype}"
