"""Gets values out of Vineyard, packed: as arrays, Arrow data and plain values, with the marks that they have.

What Vineyard's own resolvers would unpickle is given as the bytes of the pickle: nothing in here runs what it reads.
"""

from __future__ import annotations

import importlib
import json
from typing import Any

import numpy as np

__all__ = ["get", "mark_of"]

_LABEL = "shoal"
_TEXTS = ("str", "string", "std::string", "std::__1::string", "std::__cxx11::string")
#: What C++ calls types for which numpy has another name.
_CPP = {"float": "f4", "double": "f8", "int": "i4", "uint": "u4", "long": "i8", "long long": "i8"}


def get(client: Any, number: int) -> Any:
    """Get the object of an id."""
    return _packed(client.get_object(importlib.import_module("vineyard").ObjectID(number)))


def mark_of(meta: Any) -> Any:
    """Give what was noted when an object was put; others may label theirs as they like."""
    labels = json.loads(meta.get("__labels", None) or "{}")
    return json.loads(labels[_LABEL]) if _LABEL in labels else {}


def _packed(obj: Any) -> Any:
    for prefix, take in _FORMS.items():
        if obj.meta.typename.startswith(prefix):
            return dict(take(obj), mark=mark_of(obj.meta), id=int(obj.meta.id))
    return {"form": "object", "id": int(obj.meta.id), "typename": obj.meta.typename}


def _scalar(obj: Any) -> Any:
    meta = obj.meta
    value, typename = meta["value_"], meta.typename
    if typename == "vineyard::Scalar<int>":
        return {"form": "value", "value": bool(value) if meta.get("type_", "") == "bool" else int(value)}
    if typename in ("vineyard::Scalar<float>", "vineyard::Scalar<double>"):
        return {"form": "value", "value": float(value)}
    return {"form": "value", "value": value}


def _bytes(obj: Any) -> Any:
    return {"form": "bytes", "value": memoryview(obj)}


def _sequence(obj: Any) -> Any:
    return {
        "form": "sequence",
        "items": [_packed(item) for item in _members(obj, "__elements_", "__elements_-size")],
    }


def _tensor(obj: Any) -> Any:
    meta = obj.meta
    if meta["value_type_"] == "object":
        return {"form": "pickle", "value": memoryview(obj.member("buffer_"))}
    if meta["value_type_"] in _TEXTS and meta.typename == "vineyard::Tensor<std::string>":
        return {"form": "texts", "value": _arrow_array(obj.member("buffer_"), None)}
    dtype, shape = _dtype(meta), tuple(json.loads(meta["shape_"]))
    count = int(np.prod(shape, dtype=np.int64))
    order = json.loads(meta.get("order_", '"C"'))
    if not count:
        return {"form": "array", "value": np.zeros(shape, dtype, order)}
    data = memoryview(obj.member("buffer_"))[: count * dtype.itemsize]
    array = np.frombuffer(data, dtype).reshape(shape)
    return {"form": "array", "value": array if order == "C" else np.asfortranarray(array)}


def _dtype(meta: Any) -> Any:
    """Tell the type of an array: as numpy wrote it where numpy did, and else as C++ calls it."""
    text = meta.get("value_type_meta_", "")
    if not text:
        name = meta.typename.partition("<")[2].rpartition(">")[0].replace("_t", "")
        text = _CPP.get(name, name)
    return np.dtype(text)


def _index(obj: Any) -> Any:
    return {"form": "index", "name": json.loads(obj.meta["name"]), "values": _packed(obj.member("value_"))}


def _series(obj: Any) -> Any:
    name, index = json.loads(obj.meta["name"]), _packed(obj.member("index_"))
    return {"form": "series", "name": name, "index": index, "values": _packed(obj.member("value_"))}


def _frame(obj: Any) -> Any:
    count = int(obj.meta["__values_-size"])
    labels = [json.loads(obj.meta[f"__values_-key-{number}"]) for number in range(count)]
    columns = [_packed(obj.member(f"__values_-value-{number}")) for number in range(count)]
    index = _packed(obj.member("index_")) if "index_" in obj.meta else None
    return {"form": "frame", "labels": labels, "columns": columns, "index": index}


def _pickle(obj: Any) -> Any:
    return {"form": "pickle", "value": memoryview(obj.member("buffer_"))[: int(obj.meta["size_"])]}


def _schema_bytes(obj: Any) -> bytes:
    if "schema_binary_" in obj.meta:
        return bytes(json.loads(obj.meta["schema_binary_"])["bytes"])
    return bytes(memoryview(obj.member("buffer_")))


def _schema(obj: Any) -> Any:
    return {"form": "schema", "value": _schema_bytes(obj)}


def _batch(obj: Any) -> Any:
    schema = _schema_bytes(obj.member("schema_"))
    pyarrow = importlib.import_module("pyarrow")
    types = pyarrow.ipc.read_schema(pyarrow.py_buffer(schema)).types
    columns = _members(obj, "__columns_", "__columns_-size")
    packed = [_column(column, kind) for column, kind in zip(columns, types)]  # noqa: B905 (Python 3.8 knows no strict)
    return {"form": "batch", "schema": schema, "columns": packed}


def _column(obj: Any, kind: Any) -> Any:
    if any(obj.meta.typename.startswith(prefix) for prefix in _ARROW):
        return {"form": "arrow", "value": _arrow_array(obj, kind), "mark": {}}
    return _packed(obj)


def _table(obj: Any) -> Any:
    batches = [_batch(batch) for batch in _members(obj, "partitions_", "batch_num_")]
    return {"form": "table", "schema": _schema_bytes(obj.member("schema_")), "batches": batches}


def _arrow(obj: Any) -> Any:
    return {"form": "arrow", "value": _arrow_array(obj, None)}


def _arrow_array(obj: Any, kind: Any) -> Any:
    """Make an array of the buffers of an object; ``kind`` is its type where a schema tells it."""
    pyarrow = importlib.import_module("pyarrow")
    meta, typename = obj.meta, obj.meta.typename
    length = int(meta["length_"])
    if typename.startswith("vineyard::NullArray"):
        return pyarrow.nulls(length)
    nulls, offset = int(meta["null_count_"]), int(meta["offset_"])
    valid = _buffer(obj, "null_bitmap_") if nulls else None
    if typename.startswith("vineyard::LargeListArray"):
        values = _arrow_array(obj.member("values_"), getattr(kind, "value_type", None))
        buffers = [valid, _buffer(obj, "buffer_offsets_")]
        made = pyarrow.large_list(values.type)
        return pyarrow.Array.from_buffers(made, length, buffers, nulls, offset, [values])
    if "buffer_offsets_" in meta:
        made = pyarrow.large_string() if "String" in typename else pyarrow.large_binary()
        buffers = [valid, _buffer(obj, "buffer_offsets_"), _buffer(obj, "buffer_data_")]
        return pyarrow.Array.from_buffers(made, length, buffers, nulls, offset)
    made = kind if kind is not None and kind.num_buffers == 2 else _arrow_type(pyarrow, meta)
    return pyarrow.Array.from_buffers(made, length, [valid, _buffer(obj, "buffer_")], nulls, offset)


def _arrow_type(pyarrow: Any, meta: Any) -> Any:
    if meta.typename.startswith("vineyard::BooleanArray"):
        return pyarrow.bool_()
    if "byte_width_" in meta:
        return pyarrow.binary(int(meta["byte_width_"]))
    name = meta.typename.partition("<")[2].rpartition(">")[0].replace("_t", "")
    return pyarrow.type_for_alias({"int": "int32", "long": "int64"}.get(name, name))


def _buffer(obj: Any, name: str) -> Any:
    return importlib.import_module("pyarrow").py_buffer(memoryview(obj.member(name)))


def _members(obj: Any, prefix: str, size: str) -> Any:
    return [obj.member(f"{prefix}-{number}") for number in range(int(obj.meta[size]))]


_ARROW = (
    "vineyard::NumericArray",
    "vineyard::BooleanArray",
    "vineyard::BaseBinaryArray",
    "vineyard::FixedSizeBinaryArray",
    "vineyard::LargeStringArray",
    "vineyard::LargeBinaryArray",
    "vineyard::LargeListArray",
    "vineyard::NullArray",
)
_FORMS = {
    "vineyard::Scalar": _scalar,
    "vineyard::Blob": _bytes,
    "vineyard::RemoteBlob": _bytes,
    "vineyard::Sequence": _sequence,
    "vineyard::Tensor": _tensor,
    "vineyard::Index": _index,
    "vineyard::Series": _series,
    "vineyard::DataFrame": _frame,
    "vineyard::PickleBuffer": _pickle,
    "vineyard::SchemaProxy": _schema,
    "vineyard::RecordBatch": _batch,
    "vineyard::Table": _table,
    **dict.fromkeys(_ARROW, _arrow),
}
