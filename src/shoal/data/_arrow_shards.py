"""One shard as the bytes of an Arrow file, and back: equal shards give equal bytes, and reading runs nobody's code."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from shoal.errors import CorruptShardError, PlanError

__all__ = ["from_bytes", "to_bytes"]

_KEY = b"shoal"


def to_bytes(shard: Any) -> pa.Buffer:
    """Write a shard.

    >>> from_bytes(to_bytes({"x": np.arange(3), "y": [np.zeros(2), "text"]}))
    {'x': array([0, 1, 2]), 'y': [array([0., 0.]), 'text']}
    """
    parts: list[pa.Buffer] = []
    form = _described(shard, parts)
    ends = np.cumsum([0, *(part.size for part in parts)], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(parts))]
    column = pa.Array.from_buffers(pa.large_binary(), len(parts), buffers)
    cover = pa.table({"part": column}).replace_schema_metadata({_KEY: json.dumps(form)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, cover.schema) as writer:
        writer.write_table(cover)
    return sink.getvalue()


def from_bytes(data: Any) -> Any:
    """Read a shard."""
    try:
        cover = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        form = json.loads((cover.schema.metadata or {})[_KEY])
        return _made(form, [part.as_buffer() for part in cover.column("part")])
    except (pa.ArrowException, KeyError, IndexError, ValueError, TypeError) as error:
        raise CorruptShardError(f"this is no shard that was saved here: {error}") from error


def _serialised(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _described(value: Any, parts: list[pa.Buffer]) -> Any:
    """Say how a value is made of parts, and add these."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcSUmM":
        parts.append(pa.py_buffer(np.ascontiguousarray(value).reshape(-1).view(np.uint8)))
        return {"array": len(parts) - 1, "dtype": value.dtype.str, "shape": value.shape}
    kind = type(value).__module__.partition(".")[0]
    if kind == "pandas" and hasattr(value, "to_frame") and value.ndim == 1:
        parts.append(_serialised(pa.Table.from_pandas(value.to_frame("values"))))
        return {"series": len(parts) - 1, "name": value.name}
    if kind == "pandas" and getattr(value, "ndim", 0) == 2:
        parts.append(_serialised(pa.Table.from_pandas(value)))
        return {"frame": len(parts) - 1}
    if isinstance(value, pa.Table):
        parts.append(_serialised(value))
        return {"table": len(parts) - 1}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_described(each, parts) for each in value]}
    if type(value) is dict and all(isinstance(name, str) for name in value):
        return {"dict": [[name, _described(each, parts)] for name, each in value.items()]}
    if value is None or type(value) in (bool, int, float, str):
        return {"value": value}
    if isinstance(value, np.generic):
        return {"value": value.item()}
    if isinstance(value, bytes):
        parts.append(pa.py_buffer(value))
        return {"bytes": len(parts) - 1}
    raise PlanError(f"a {type(value).__name__} cannot be saved as Arrow; save_pickle writes any value")


def _made(form: dict[str, Any], parts: list[pa.Buffer]) -> Any:
    ((kind, what),) = [item for item in form.items() if item[0] not in ("dtype", "shape", "name")]
    if kind == "array":
        return np.frombuffer(bytearray(parts[what]), np.dtype(form["dtype"])).reshape(form["shape"])
    if kind == "bytes":
        return parts[what].to_pybytes()
    if kind in ("frame", "series", "table"):
        table = pa.ipc.open_stream(parts[what]).read_all()
        if kind == "series":
            return table.to_pandas()["values"].rename(form["name"])
        return table.to_pandas() if kind == "frame" else table
    if kind == "dict":
        return {name: _made(each, parts) for name, each in what}
    if kind in ("list", "tuple"):
        made = [_made(each, parts) for each in what]
        return made if kind == "list" else tuple(made)
    return what
