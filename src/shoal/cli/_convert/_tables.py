"""Parquet and Arrow files out of samples: a sample is a row, a field a column.

Columns are settled by the first samples, since a file says what they are before its rows; a field that a sample does
not have is null. Files also say what ``datasets`` calls features, which tells pictures and sound from other bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shoal.abc import Sample
from shoal.cli._convert._fields import SETTLING, SETTLING_BYTES, content, is_sound, size_of
from shoal.errors import EncodeError
from shoal.files import Target, Unclosed
from shoal.shards import FileField
from shoal.shards.codecs import is_picture

__all__ = ["TableWriter"]

_KEY = "__key__"
#: What pyarrow raises about values that it cannot take.
_UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)
_FILE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


class TableWriter:
    """Writes one Parquet file, or one Arrow stream, which is what ``datasets`` keeps."""

    def __init__(
        self, target: Target, *, parquet: bool, schema: pa.Schema | None = None, fields: Sequence[str] = ()
    ) -> None:
        self._target, self._parquet, self._fields = target, parquet, tuple(fields)
        self._schema = None if schema is None else _described(_chosen(schema, self._fields))
        self._writer: Any = None
        self._rows: list[Sample] = []
        self._size = 0

    def write(self, sample: Sample) -> int:
        """Append a row."""
        size = sum(size_of(value) for name, value in sample.items() if name != _KEY)
        self._rows.append(sample)
        self._size += size
        if len(self._rows) >= SETTLING or self._size >= SETTLING_BYTES:
            self._flush()
        return size

    def close(self) -> None:
        """Write what is left, and let the file appear."""
        self._flush()
        self._writer.close()
        self._target.commit()

    def abort(self) -> None:
        """Throw the file away."""
        self._target.abort()

    def _flush(self) -> None:
        if self._schema is None:
            self._schema = _described(_schema_of(self._rows, self._fields))
        if self._writer is None:
            begin = pq.ParquetWriter if self._parquet else pa.ipc.new_stream
            self._writer = begin(Unclosed(self._target), self._schema)
        if self._rows:
            columns = [_column(field, self._rows) for field in self._schema]
            self._check_names()
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._rows, self._size = [], 0

    def _check_names(self) -> None:
        known = set(self._schema.names)  # type: ignore[union-attr]
        for sample in self._rows:
            more = sample.keys() - known
            if more and not self._fields:
                text = f"this field comes after the columns were settled: {', '.join(sorted(known - {_KEY}))}"
                raise EncodeError(f"{text}; name all of them with -f", key=sample[_KEY], field=min(more))


def _schema_of(rows: Sequence[Sample], fields: Sequence[str]) -> pa.Schema:
    names = fields or sorted({name for sample in rows for name in sample} - {_KEY})
    columns = {name: _type(name, [row[name] for row in rows if row.get(name) is not None]) for name in names}
    return pa.schema({_KEY: pa.string(), **columns})


def _chosen(schema: pa.Schema, fields: Sequence[str]) -> pa.Schema:
    return pa.schema([field for field in schema if not fields or field.name in fields], schema.metadata)


def _type(name: str, values: Sequence[Any]) -> pa.DataType:
    """Find the type of a column by its first values; one without any holds bytes."""
    first = content(values[0]) if values else b""
    if isinstance(first, bytes):
        return _FILE if values and isinstance(values[0], dict) else pa.binary()
    if not isinstance(first, np.ndarray):
        return _inferred(name, values)
    kind = pa.from_numpy_dtype(first.dtype)
    for _ in range(max(first.ndim, 1)):
        kind = pa.list_(kind)
    return kind


def _inferred(name: str, values: Sequence[Any]) -> pa.DataType:
    try:
        return pa.array(values).type
    except _UNFIT as error:
        kinds = ", ".join(sorted({type(value).__name__ for value in values}))
        raise EncodeError(f"values of {kinds} make no column: {error}", field=name) from error


def _column(field: pa.Field, rows: Sequence[Sample]) -> pa.Array:
    values = [_cell(sample.get(field.name), field.type) for sample in rows]
    try:
        return pa.array(values, field.type)
    except _UNFIT as error:
        wrong = next((place for place, value in enumerate(values) if not _fits(value, field.type)), 0)
        text = f"its column holds {field.type}, and this value does not fit: {error}"
        raise EncodeError(text, key=rows[wrong][_KEY], field=field.name) from error


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except _UNFIT:
        return False
    return True


def _cell(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, np.ndarray) and value.ndim != 1:
        return value.tolist() if value.ndim else [value.item()]
    return content(value) if isinstance(value, FileField) or pa.types.is_binary(kind) else value


def _described(schema: pa.Schema) -> pa.Schema:
    """Add keys to columns that have none, and what ``datasets`` calls features to those that say nothing of them."""
    if _KEY not in schema.names:
        schema = schema.insert(0, pa.field(_KEY, pa.string()))
    before = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    known = before.get("info", {}).get("features", {})
    features = {field.name: known.get(field.name) or _feature(field.name, field.type) for field in schema}
    metadata = {name: value for name, value in (schema.metadata or {}).items() if name != b"huggingface"}
    if all(features.values()):
        info = {**before.get("info", {}), "features": features}
        metadata[b"huggingface"] = json.dumps({**before, "info": info}).encode()
    return schema.with_metadata(metadata)


def _feature(name: str, kind: pa.DataType) -> dict[str, Any] | None:
    """Describe a column; None where there is no short word for it, so that ``datasets`` looks for itself."""
    if kind == _FILE and (is_picture(name) or is_sound(name)):
        return {"_type": "Image" if is_picture(name) else "Audio"}
    if pa.types.is_list(kind):
        inner = _feature("", kind.value_type)
        return None if inner is None else {"feature": inner, "_type": "Sequence"}
    plain = pa.types.is_integer(kind) or kind in (pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.bool_())
    words = {pa.float64(): "float64", pa.float32(): "float32"}
    return {"dtype": words.get(kind, str(kind)), "_type": "Value"} if plain else None
