"""Arrow: arrays, record batches and tables, buffer by buffer, so that what lies in the store is not copied again."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from shoal.store._contexts import BuilderContext
from shoal.store._meta import Object, ObjectMeta

if TYPE_CHECKING:
    from shoal.store._base import BaseStore


def build_schema(store: BaseStore, value: pa.Schema) -> ObjectMeta:
    """Describe the columns of a table."""
    return ObjectMeta("vineyard::SchemaProxy", {"schema_": _text(value)})


def resolve_schema(obj: Object) -> pa.Schema:
    """Give them back."""
    return _schema(obj.meta["schema_"])


def build_array(store: BaseStore, value: pa.Array, builder: BuilderContext) -> ObjectMeta:
    """Describe an array."""
    meta = ObjectMeta(f"vineyard::ArrowArray<{value.type}>", {"schema_": _text(pa.schema([("", value.type)]))})
    meta.add_member("array_", _described(value))
    return meta


def resolve_array(obj: Object) -> pa.Array:
    """Give an array whose buffers lie where they were put."""
    return _array(obj.member("array_"), _schema(obj.meta["schema_"]).field(0).type)


def build_chunkedarray(store: BaseStore, value: pa.ChunkedArray) -> ObjectMeta:
    """Describe an array in several pieces."""
    meta = ObjectMeta("vineyard::ChunkedArray", {"schema_": _text(pa.schema([("", value.type)]))})
    return _numbered(meta, "chunks_", [_described(chunk) for chunk in value.chunks])


def resolve_chunkedarray(obj: Object) -> pa.ChunkedArray:
    """Give it back, in the same pieces."""
    kind = _schema(obj.meta["schema_"]).field(0).type
    return pa.chunked_array([_array(chunk, kind) for chunk in obj.members("chunks_")], kind)


def build_recordbatch(store: BaseStore, value: pa.RecordBatch) -> ObjectMeta:
    """Describe a record batch."""
    keys = {"schema_": _text(value.schema), "row_num_": value.num_rows, "column_num_": value.num_columns}
    return _numbered(ObjectMeta("vineyard::RecordBatch", keys), "__columns_", list(map(_described, value.columns)))


def resolve_recordbatch(obj: Object) -> pa.RecordBatch:
    """Give it back."""
    schema = _schema(obj.meta["schema_"])
    if not len(schema):
        return _without_columns(obj.meta["row_num_"], schema)
    pairs = zip(obj.members("__columns_"), schema, strict=True)
    return pa.RecordBatch.from_arrays([_array(column, field.type) for column, field in pairs], schema=schema)


def build_table(store: BaseStore, value: pa.Table, builder: BuilderContext) -> ObjectMeta:
    """Describe a table, column by column, each in the pieces that it has."""
    keys = {"schema_": _text(value.schema), "num_rows_": value.num_rows, "num_columns_": value.num_columns}
    columns = [build_chunkedarray(store, column) for column in value.columns]
    return _numbered(ObjectMeta("vineyard::Table", keys), "__columns_", columns)


def resolve_table(obj: Object) -> pa.Table:
    """Give it back."""
    schema = _schema(obj.meta["schema_"])
    if not len(schema):
        return pa.Table.from_batches([_without_columns(obj.meta["num_rows_"], schema)])
    return pa.Table.from_arrays([resolve_chunkedarray(column) for column in obj.members("__columns_")], schema=schema)


def _without_columns(rows: int, schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch({"": pa.nulls(rows)}).select([]).replace_schema_metadata(schema.metadata)


def _numbered(meta: ObjectMeta, prefix: str, members: list[ObjectMeta]) -> ObjectMeta:
    meta[f"{prefix}-size"] = len(members)
    for number, member in enumerate(members):
        meta.add_member(f"{prefix}-{number}", member)
    return meta


def _text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _described(array: pa.Array) -> ObjectMeta:
    """Describe an array by its buffers, those of its children, and the dictionary that it may have."""
    if isinstance(array, pa.ExtensionArray):
        return _numbered(ObjectMeta("vineyard::ArrowExtension"), "children_", [_described(array.storage)])
    if isinstance(array, pa.DictionaryArray):
        parts = [_described(array.indices), _described(array.dictionary)]
        return _numbered(ObjectMeta("vineyard::ArrowDictionary"), "children_", parts)
    array = _compact(array)
    if not _is_simple(array.type):
        return ObjectMeta("vineyard::ArrowStream", buffer_=_stream(array))
    meta = ObjectMeta("vineyard::ArrowBuffers", {"length_": len(array), "null_count_": array.null_count})
    own, children = _own_buffers(array), list(_children(array))
    meta["buffers_"] = [buffer is not None for buffer in own]
    for number, buffer in enumerate(own):
        if buffer is not None:
            meta.add_member(f"buffer_-{number}", buffer)
    return _numbered(meta, "children_", [_described(child) for child in children])


def _array(obj: Object, kind: pa.DataType) -> pa.Array:
    """Make an array of the buffers of a description."""
    if obj.typename == "vineyard::ArrowExtension":
        if not isinstance(kind, pa.BaseExtensionType):  # nobody has registered it here, so it is what it consists of
            return _array(obj.member("children_-0"), kind)
        return pa.ExtensionArray.from_storage(kind, _array(obj.member("children_-0"), kind.storage_type))
    if obj.typename == "vineyard::ArrowDictionary":
        indices, values = obj.members("children_")
        return pa.DictionaryArray.from_arrays(
            _array(indices, kind.index_type), _array(values, kind.value_type), ordered=kind.ordered, safe=False
        )
    if obj.typename == "vineyard::ArrowStream":
        return pa.ipc.open_stream(pa.py_buffer(obj.blob("buffer_"))).read_all().column(0).chunk(0)
    there = obj.meta["buffers_"]
    buffers = [pa.py_buffer(obj.blob(f"buffer_-{number}")) if has else None for number, has in enumerate(there)]
    types = [kind.field(number).type for number in range(kind.num_fields)]
    children = [_array(child, inner) for child, inner in zip(obj.members("children_"), types, strict=True)]
    return pa.Array.from_buffers(kind, obj.meta["length_"], buffers, obj.meta["null_count_"], children=children or None)


def _is_simple(kind: pa.DataType) -> bool:
    """Tell whether buffers and children are all that there is to a type, as far as pyarrow lets one see them."""
    odd = (pa.types.is_union, pa.types.is_run_end_encoded, pa.types.is_string_view, pa.types.is_binary_view)
    return not any(check(kind) for check in odd) and not _is_list_view(kind)


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _is_dense_union(kind: pa.DataType) -> bool:
    return bool(pa.types.is_union(kind) and kind.mode == "dense")


def _in_order(array: pa.Array) -> pa.Array:
    """Copy lists, whose values may lie anywhere and in any order, so that they lie one behind the other."""
    is_large = pa.types.is_large_list_view(array.type)
    make, number = (pa.LargeListViewArray, pa.int64()) if is_large else (pa.ListViewArray, pa.int32())
    sizes = pc.list_value_length(array).fill_null(0)
    begins = pc.subtract(pc.cumulative_sum(sizes), sizes).cast(number)
    values = _compact(array.flatten())
    return make.from_arrays(begins, sizes.cast(number), values, type=array.type, mask=array.is_null())


def _compact(array: pa.Array) -> pa.Array:
    """Copy what is a part of something larger: its buffers would bring all of that."""
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        large = pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
        return array.cast(large).cast(kind)  # of which only what is looked at goes on
    if _is_list_view(kind):
        return _in_order(array)
    if _is_dense_union(kind):
        return array.take(pa.array(range(len(array)), pa.int64()))
    if array.offset == 0 and _fits(array):
        return array
    table = pa.ipc.open_stream(pa.py_buffer(_stream(array))).read_all()
    return table.column(0).chunk(0) if table.column(0).num_chunks else array


def _fits(array: pa.Array) -> bool:
    """Tell whether the buffers of an array hold hardly more than its values."""
    size = sum(buffer.size for buffer in array.buffers() if buffer is not None)
    return bool(size <= array.nbytes + 256 * (1 + len(array.buffers())))


def _stream(array: pa.Array) -> Any:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([array], names=[""])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _children(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if pa.types.is_struct(kind):
        yield from (array.field(number) for number in range(kind.num_fields))
    elif pa.types.is_map(kind):
        yield pa.StructArray.from_arrays([array.keys, array.items], fields=list(kind.field(0).type))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield array.values


def _own_buffers(array: pa.Array) -> list[pa.Buffer | None]:
    """Give the buffers of an array without those of its children, which come behind them."""
    kind = array.type
    count = 1 if pa.types.is_struct(kind) or pa.types.is_fixed_size_list(kind) else 2
    if _has_data(kind):
        count = 3
    elif pa.types.is_null(kind):
        count = 1
    return [*array.buffers()[:count]]


def _has_data(kind: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(check(kind) for check in checks)
