"""Puts values into Vineyard.

A packed value is a dict: its ``form``, what that form needs, and perhaps a ``mark``: what Vineyard would forget of it.
Where Vineyard has a type for a value, it is put by Vineyard's own client, so that any program finds what it expects.
The mark is a label of the object.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import struct
from typing import Any

__all__ = ["LABEL", "put"]

#: The label that holds the mark of an object.
LABEL = "shoal"

#: Forms whose members may be objects that were there before.
_LINKING = frozenset(["sequence", "tree", "global"])


def put(client: Any, packed: Any, persist: bool) -> int:
    """Put a value, and give its id; what was made of it on the way to an error is removed."""
    putting = _Putting(client)
    try:
        made = _id(putting.put(packed))
        if persist:
            client.persist(made)
    except BaseException:
        putting.undo()
        raise
    return int(made)


class _Putting:
    """Puts a value and all that is in it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.made: list[Any] = []
        self._vineyard: Any = importlib.import_module("vineyard")
        self._buffers: Any = importlib.import_module("vineyard.data.utils")
        self._builders: Any = importlib.import_module("vineyard.core.builder")

    def put(self, packed: Any) -> Any:
        """Put a packed value; gives what can be a member: an id, or a blob."""
        if packed["form"] == "id":
            return self._there(packed["value"])
        made = getattr(self, "_put_" + packed["form"])(packed)
        self.made.append((_id(made), packed["form"] not in _LINKING))
        if packed.get("mark"):
            self.client.label(_id(made), LABEL, json.dumps(packed["mark"]))
        return made

    def undo(self) -> None:
        """Remove what was made, and nothing that was there before."""
        with contextlib.suppress(Exception):  # the error that is under way says more
            for each, deep in reversed(self.made):
                if self.client.exists(each):
                    self.client.delete(each, True, deep)

    def _there(self, number: int) -> Any:
        """Give an object that is there already; a blob is no member by its id alone."""
        found = self._vineyard.ObjectID(number)
        return self.client.get_meta(found) if number >> 63 else found

    def _put_value(self, packed: Any) -> Any:
        return self._built(packed["value"])

    def _put_number(self, packed: Any) -> Any:
        """Put a float. Vineyard would round it to 32 bits; its resolver takes a text as well."""
        value = packed["value"]
        meta = self._meta("vineyard::Scalar<double>")
        meta["value_"] = value if _is_short(value) else repr(value)
        meta["type_"] = "float"
        return self._created(meta)

    def _put_bytes(self, packed: Any) -> Any:
        return self._blob(packed["value"])

    def _put_array(self, packed: Any) -> Any:
        return self._built(packed["value"], partition_index=packed.get("place") or [])

    def _put_texts(self, packed: Any) -> Any:
        texts = packed["value"].to_numpy(zero_copy_only=False)
        return self._built(texts, partition_index=packed.get("place") or [])

    def _put_sequence(self, packed: Any) -> Any:
        items = tuple(self.put(item) for item in packed["items"])
        return self._built(items, global_=True) if packed["global"] else self._built(items)

    def _put_index(self, packed: Any) -> Any:
        meta = self._meta("vineyard::Index")
        meta["name"] = json.dumps(packed["name"])
        meta["value_type_"] = packed["type"]
        meta.add_member("value_", self.put(packed["values"]))
        return self._created(meta)

    def _put_series(self, packed: Any) -> Any:
        meta = self._meta("vineyard::Series")
        meta["name"] = json.dumps(packed["name"])
        meta.add_member("index_", self.put(packed["index"]))
        meta.add_member("value_", self.put(packed["values"]))
        return self._created(meta)

    def _put_frame(self, packed: Any) -> Any:
        meta = self._meta("vineyard::DataFrame")
        labels, columns = packed["labels"], packed["columns"]
        meta["columns_"] = json.dumps(labels)
        meta.add_member("index_", self.put(packed["index"]))
        for number, label in enumerate(labels):
            meta[f"__values_-key-{number}"] = json.dumps(label)
            meta.add_member(f"__values_-value-{number}", self.put(columns[number]))
        meta["__values_-size"] = len(columns)
        meta["partition_index_row_"], meta["partition_index_column_"] = packed["place"]
        meta["row_batch_index_"] = packed["batch"]
        return self._created(meta)

    def _put_pickle(self, packed: Any) -> Any:
        meta = self._meta("vineyard::PickleBuffer")
        meta["size_"] = len(packed["value"])
        meta.add_member("buffer_", self._blob(packed["value"]))
        return self._created(meta)

    def _put_tree(self, packed: Any) -> Any:
        """Put what Vineyard has no type for: one object with a document, the bytes it names, and links."""
        meta = self._meta(packed["typename"])
        meta["shoal_document_"] = packed["document"]
        for number, data in enumerate(packed["blobs"]):
            meta.add_member(f"blob_-{number}", self._blob(data))
        for number, link in enumerate(packed["links"]):
            meta.add_member(f"link_-{number}", self._there(link))
        return self._created(meta)

    def _put_global(self, packed: Any) -> Any:
        """Put an object whose members may be on other hosts."""
        meta = self._meta(packed["typename"])
        meta.set_global(True)
        for key, value in packed["keys"].items():
            meta[key] = value if isinstance(value, (bool, int, str)) else json.dumps(value)
        for name, link in packed["members"].items():
            meta.add_member(name, self._vineyard.ObjectID(link))
        return self._created(meta)

    def _built(self, value: Any, **options: Any) -> Any:
        """Put a value as the client does; but that would go to another instance if this one had no room."""
        return self._builders.put(self.client, value, **options)

    def _meta(self, typename: str) -> Any:
        meta = self._vineyard.ObjectMeta()
        meta["typename"] = typename
        meta["nbytes"] = 0
        return meta

    def _created(self, meta: Any) -> Any:
        return self.client.create_metadata(meta).id

    def _blob(self, data: Any) -> Any:
        view = memoryview(data)
        if not view.nbytes:
            return self.client.create_empty_blob()
        array = importlib.import_module("numpy").frombuffer(view, "u1")
        return self._buffers.build_numpy_buffer(self.client, array)


def _is_short(value: float) -> bool:
    """Tell whether 32 bits are enough for a float."""
    return math.isfinite(value) and abs(value) < 1e38 and struct.unpack("f", struct.pack("f", value))[0] == value


def _id(made: Any) -> Any:
    return getattr(made, "id", made)
