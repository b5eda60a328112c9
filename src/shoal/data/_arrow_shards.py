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
    tables: list[pa.Table] = []
    form = _described(shard, tables)
    sink = pa.BufferOutputStream()
    parts = [_serialised(table).to_pybytes() for table in tables]
    cover = pa.table({"part": pa.array(parts, pa.large_binary())}).replace_schema_metadata({_KEY: json.dumps(form)})
    with pa.ipc.new_file(sink, cover.schema) as writer:
        writer.write_table(cover)
    return sink.getvalue()


def from_bytes(data: Any) -> Any:
    """Read a shard."""
    try:
        cover = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        form = json.loads((cover.schema.metadata or {})[_KEY])
        parts = [pa.ipc.open_stream(part.as_buffer()).read_all() for part in cover.column("part")]
        return _made(form, parts)
    except (pa.ArrowException, KeyError, IndexError, ValueError, TypeError) as error:
        raise CorruptShardError(f"this is no shard that was saved here: {error}") from error


def _serialised(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _described(value: Any, tables: list[pa.Table]) -> Any:
    """Say how a value is made of tables, and add these."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcSUmM":
        tables.append(_of_array(value))
        return {"array": len(tables) - 1, "dtype": value.dtype.str, "shape": value.shape}
    kind = type(value).__module__.partition(".")[0]
    if kind == "pandas" and hasattr(value, "to_frame") and value.ndim == 1:
        tables.append(pa.Table.from_pandas(value.to_frame("values")))
        return {"series": len(tables) - 1, "name": value.name}
    if kind == "pandas" and getattr(value, "ndim", 0) == 2:
        tables.append(pa.Table.from_pandas(value))
        return {"frame": len(tables) - 1}
    if isinstance(value, pa.Table):
        tables.append(value)
        return {"table": len(tables) - 1}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_described(each, tables) for each in value]}
    if type(value) is dict and all(isinstance(name, str) for name in value):
        return {"dict": [[name, _described(each, tables)] for name, each in value.items()]}
    if value is None or type(value) in (bool, int, float, str):
        return {"value": value}
    if isinstance(value, np.generic):
        return {"value": value.item()}
    if isinstance(value, bytes):
        tables.append(pa.table({"bytes": pa.array([value], pa.large_binary())}))
        return {"bytes": len(tables) - 1}
    raise PlanError(f"a {type(value).__name__} cannot be saved as Arrow; save_pickle writes any value")


def _of_array(array: np.ndarray[Any, Any]) -> pa.Table:
    return pa.table({"bytes": pa.array([np.ascontiguousarray(array).tobytes()], pa.large_binary())})


def _made(form: dict[str, Any], tables: list[pa.Table]) -> Any:
    ((kind, what),) = [item for item in form.items() if item[0] not in ("dtype", "shape", "name")]
    if kind == "array":
        raw = bytearray(tables[what].column("bytes")[0].as_buffer())
        return np.frombuffer(raw, np.dtype(form["dtype"])).reshape(form["shape"])
    if kind == "frame":
        return tables[what].to_pandas()
    if kind == "series":
        return tables[what].to_pandas()["values"].rename(form["name"])
    if kind == "bytes":
        return tables[what].column("bytes")[0].as_py()
    if kind == "table":
        return tables[what]
    if kind == "dict":
        return {name: _made(each, tables) for name, each in what}
    if kind in ("list", "tuple"):
        made = [_made(each, tables) for each in what]
        return made if kind == "list" else tuple(made)
    return what
