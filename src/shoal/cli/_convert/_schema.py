"""The columns of a Parquet or Arrow file, without its rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from shoal.files import open_seekable

__all__ = ["schema_of"]

_FILE = b"ARROW1"


def schema_of(url: str, kind: str) -> pa.Schema | None:
    """Read the schema of a file, with what it says about its columns; None where types of others are in it."""
    with open_seekable(url) as file:
        if kind == "parquet":
            schema = pq.read_schema(file)
        else:
            begin = file.read(len(_FILE))
            file.seek(0)
            schema = (pa.ipc.open_file(file) if begin == _FILE else pa.ipc.open_stream(file)).schema
    return None if any(isinstance(field.type, pa.BaseExtensionType) for field in schema) else schema
