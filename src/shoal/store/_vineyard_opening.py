"""Values out of a Vineyard: made of what the guest gives, as their marks say."""

from __future__ import annotations

import base64
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import CorruptObjectError, StoreError, TrustError
from shoal.store._contexts import trusted
from shoal.store._ids import ObjectID
from shoal.store._meta import Object
from shoal.store._vineyard_meta import NativeMeta

if TYPE_CHECKING:
    from shoal.store._base import BaseStore
    from shoal.store._vineyard_packing import Packed

__all__ = ["Opening"]


class Opening:
    """Makes values of what was packed; objects inside that are of our own making are resolved by ``resolver``."""

    def __init__(self, store: BaseStore, resolver: Any) -> None:
        self._store, self._resolver = store, resolver

    def open(self, packed: Packed) -> Any:
        """Make a value."""
        value: Any = getattr(self, f"_open_{packed['form']}")(packed)
        return value

    def _open_value(self, packed: Packed) -> Any:
        return packed["value"]

    def _open_bytes(self, packed: Packed) -> memoryview:
        return memoryview(packed["value"]).toreadonly()

    def _open_object(self, packed: Packed) -> Any:
        """Give what the guest knows nothing of: what we put ourselves, or an object as it is."""
        found = self._store.get_object(ObjectID(packed["id"]))
        return found if isinstance(found.meta, NativeMeta) else self._resolver(found)

    def _open_sequence(self, packed: Packed) -> Any:
        items = [self.open(item) for item in packed["items"]]
        return items if packed["mark"].get("kind") == "list" else tuple(items)

    def _open_array(self, packed: Packed) -> Any:
        array, mark = packed["value"], packed["mark"]
        if "bytes" in mark:
            array = np.ascontiguousarray(array).view(mark["bytes"])[..., 0]
        elif "dtype" in mark:
            array = array.astype(mark["dtype"])
        return array[()] if mark.get("scalar") else array

    def _open_texts(self, packed: Packed) -> Any:
        texts, mark = packed["value"], packed["mark"]
        if "text" in mark:
            from shoal.store._vineyard_frames import make_texts

            return make_texts(texts, mark["text"])
        kind = mark.get("dtype", "O")
        dtype = np.dtypes.StringDType() if kind == "StringDType" else np.dtype(kind)
        array = np.array(texts.to_pylist(), dtype).reshape(mark.get("shape", -1))
        return array[()] if mark.get("scalar") else array

    def _open_frame(self, packed: Packed) -> Any:
        from shoal.store._vineyard_frames import open_frame

        return open_frame(packed, self.open)

    def _open_series(self, packed: Packed) -> Any:
        from shoal.store._vineyard_frames import open_series

        return open_series(packed, self.open)

    def _open_index(self, packed: Packed) -> Any:
        from shoal.store._vineyard_frames import open_index

        return open_index(packed, self.open)

    def _open_pickle(self, packed: Packed) -> Any:
        object_id = ObjectID(packed["id"])
        if not trusted():
            text = f"object {object_id} is a pickle, which can run any code"
            raise TrustError(f"{text}; get it with trust=True if you know who put it")
        try:
            return pickle.loads(packed["value"])  # noqa: S301 - it was allowed
        except Exception as error:
            raise CorruptObjectError(f"object {object_id} cannot be unpickled: {error!r}") from error

    def _open_schema(self, packed: Packed) -> Any:
        return _schema(packed["value"])

    def _open_arrow(self, packed: Packed) -> Any:
        marked = packed["mark"].get("schema")
        return packed["value"] if marked is None else packed["value"].cast(_marked(marked).field(0).type)

    def _open_batch(self, packed: Packed) -> Any:
        import pyarrow as pa

        marked = packed.get("mark", {}).get("schema")
        schema = _schema(packed["schema"]) if marked is None else _marked(marked)
        columns = [_cast(self.open(column), field) for column, field in zip(packed["columns"], schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _open_table(self, packed: Packed) -> Any:
        import pyarrow as pa

        marked = packed["mark"].get("schema")
        schema = _schema(packed["schema"]) if marked is None else _marked(marked)
        batches = [self._open_batch({**batch, "mark": packed["mark"]}) for batch in packed["batches"]]
        return pa.Table.from_batches(batches, schema)


def _cast(column: Any, field: Any) -> Any:
    if isinstance(column, Object):
        raise StoreError(f"the column {field.name!r} is a {column.typename}, which cannot be read here")
    return column if column.type == field.type else column.cast(field.type)


def _schema(data: Any) -> Any:
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(data))


def _marked(text: str) -> Any:
    return _schema(base64.b64decode(text))
