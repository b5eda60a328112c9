"""Records of one chunk as the bytes of a Parquet file, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shoal import files
from shoal.data.image._schema import DType, FeatureType, Schema, SchemaField
from shoal.errors import CorruptShardError

__all__ = ["read_columns", "to_parquet"]

_SCALARS = {
    DType.STRING: pa.string(),
    DType.BYTES: pa.large_binary(),
    DType.INT32: pa.int32(),
    DType.INT64: pa.int64(),
    DType.FLOAT32: pa.float32(),
    DType.FLOAT64: pa.float64(),
    DType.UINT8: pa.uint8(),
}


def to_parquet(rows: Sequence[dict[str, Any]], schema: Schema) -> bytes:
    """Write cells, one group of rows for all; what is compressed already is not compressed again."""
    columns = {name: pa.array([row[name] for row in rows], _type(field)) for name, field in schema.items()}
    scalars = [name for name, field in schema.items() if field.feature_type is FeatureType.SCALAR]
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(columns),
        sink,
        row_group_size=max(len(rows), 1),
        compression={name: "zstd" if name in scalars else "none" for name in columns},
        use_dictionary=scalars,
        write_statistics=scalars,
    )
    return bytes(sink.getvalue())


def read_columns(url: str, rows: int, schema: Schema) -> dict[str, list[Any]]:
    """Read the cells of a chunk, which must hold what the list of the table says."""
    with files.open_read(url) as file:
        data = file.read()
    try:
        table = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True).read()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise CorruptShardError(f"it is no Parquet file, or damaged: {error}", shard=files.display(url)) from error
    if set(table.column_names) != schema.keys() or table.num_rows != rows:
        seen = f"{table.num_rows} rows of {', '.join(sorted(table.column_names))}"
        text = f"it holds {seen}, and the table has {rows} rows of {', '.join(sorted(schema))} there"
        raise CorruptShardError(text, shard=files.display(url))
    return {name: table.column(name).to_pylist() for name in schema}


def _type(field: SchemaField) -> pa.DataType:
    return _SCALARS[field.dtype] if field.feature_type is FeatureType.SCALAR else pa.large_binary()
