"""The bytes of an object: a head, a document in JSON, and blobs.

The head has the size of the document, and its checksum; that of blobs would cost more than getting them. Each blob
begins at a multiple of 64 bytes, so that whatever it holds can be used where it lies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from shoal.errors import CorruptObjectError
from shoal.store._ids import ObjectID
from shoal.store._meta import Blob, Link, Member, ObjectMeta

if TYPE_CHECKING:
    from shoal.store._mapping import Opened, Place

__all__ = ["HEAD", "Laid", "document_end", "lay_out", "linked_ids", "parse"]

_MAGIC = b"shoalob1"
_HEAD = Struct("<8sII")
HEAD = _HEAD.size
_ALIGN = 64
_LINKS = b'{"l":['  # how the document of an object begins that has something to do with others
_WRONG = (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError)
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class Laid(NamedTuple):
    """An object that is ready to be written."""

    parts: list[bytes | memoryview]
    size: int
    strangers: frozenset[ObjectID]
    """Objects to which blobs of this one belong."""
    links: frozenset[ObjectID]
    """Members that have a life of their own."""


class _Writing:
    """Collects the blobs of a description while its document is made."""

    def __init__(self, new_id: Callable[[], ObjectID], find: Callable[[Blob], Place | None]) -> None:
        self._new_id, self._find = new_id, find
        self.table: list[list[Any]] = []
        self.blobs: list[memoryview] = []
        self.strangers: set[ObjectID] = set()
        self.links: set[ObjectID] = set()
        self._end = 0

    def node(self, meta: ObjectMeta) -> dict[str, Any]:
        made: dict[str, Any] = {"t": meta.typename}
        if meta.keys_:
            made["k"] = meta.keys_
        if meta.global_:
            made["g"] = 1
        if meta.members:
            made["m"] = {name: self.member(member) for name, member in meta.members.items()}
        return made

    def member(self, member: Member) -> Any:
        if isinstance(member, ObjectMeta):
            return self.node(member)
        if isinstance(member, Link):
            self.links.add(member.id)
            return str(member.id)
        return self._blob(member)

    def _blob(self, blob: Blob) -> int:
        place = self._find(blob)
        if place is None:
            self.table.append([int(self._new_id()), self._end, blob.nbytes])
            self.blobs.append(blob.view)
            self._end += blob.nbytes + (-blob.nbytes % _ALIGN)
        else:
            self.strangers.add(place.owner)
            self.table.append([int(place.blob_id), place.offset, place.size, int(place.owner)])
        return len(self.table) - 1


def lay_out(meta: ObjectMeta, new_id: Callable[[], ObjectID], find: Callable[[Blob], Place | None]) -> Laid:
    """Say what to write of an object; blobs that ``find`` finds in the store are only named."""
    writing = _Writing(new_id, find)
    tree = writing.node(meta)
    others = {}
    if writing.links or writing.strangers:
        others = {"l": [int(link) for link in writing.links], "x": len(writing.strangers)}
    text = _dumps({**others, "d": tree, "b": writing.table}).encode("utf-8", "surrogatepass")
    begin = HEAD + len(text)
    parts: list[bytes | memoryview] = [_HEAD.pack(_MAGIC, len(text), crc32(text)), text]
    size = begin
    for view in writing.blobs:
        if gap := -size % _ALIGN:
            parts.append(bytes(gap))
        parts.append(view)
        size += gap + view.nbytes
    return Laid(parts, size, frozenset(writing.strangers), frozenset(writing.links))


def linked_ids(begin: bytes, fd: int) -> tuple[list[ObjectID], bool]:
    """Read which objects are members of one, and whether it shares blobs, given its first bytes and its file."""
    if begin[HEAD : HEAD + len(_LINKS)] != _LINKS:
        return [], False
    try:
        end = document_end(begin, "to be removed")
        document = _document(begin if end <= len(begin) else os.pread(fd, end, 0), end)
        return [ObjectID(number) for number in document["l"]], document["x"] > 0
    except _WRONG:
        return [], False  # it is damaged, and goes all the same


def document_end(head: bytes | memoryview, name: object) -> int:
    """Read where the document ends."""
    if len(head) < HEAD:
        raise CorruptObjectError(f"object {name} ends in the middle of its head")
    magic, size, _ = _HEAD.unpack_from(head)
    if magic != _MAGIC:
        raise CorruptObjectError(f"object {name} begins with {bytes(magic)!r}: it was not written by this store")
    return HEAD + int(size)


def _document(data: bytes | memoryview, end: int) -> Any:
    text = bytes(data[HEAD:end])
    if crc32(text) != _HEAD.unpack_from(data)[2]:
        raise ValueError("the checksum of its document is wrong")
    return json.loads(text.decode("utf-8", "surrogatepass"))


def parse(opened: Opened, name: ObjectID, open_stranger: Callable[[ObjectID], Opened]) -> ObjectMeta:
    """Make the description of an object out of its bytes, whose blobs stay where they are."""
    end = document_end(opened.head, name)
    try:
        document = _document(opened.head if end <= len(opened.head) else opened.data, end)
        first = end + (-end % _ALIGN)
        blobs = [_blob(row, opened, first, open_stranger) for row in document["b"]]
        return _node(document["d"], blobs)
    except _WRONG as error:
        raise CorruptObjectError(f"object {name} cannot be read: {error}") from error


def _blob(row: list[int], opened: Opened, first: int, open_stranger: Callable[[ObjectID], Opened]) -> Blob:
    number, begin, size, *owner = row
    blob_id = ObjectID(number)
    if owner:
        opened = open_stranger(ObjectID(owner[0]))
    else:
        begin += first
    if begin + size > len(opened.data):
        raise CorruptObjectError(f"blob {blob_id} of {size} bytes ends behind the {len(opened.data)} that there are")
    if opened.region is not None:
        opened.region.blobs[begin, size] = blob_id
    return Blob(opened.data[begin : begin + size], blob_id)


def _node(node: dict[str, Any], blobs: list[Blob]) -> ObjectMeta:
    members: dict[str, Member] = {}
    for name, member in node.get("m", {}).items():
        if isinstance(member, dict):
            members[name] = _node(member, blobs)
        elif isinstance(member, str):
            members[name] = Link(ObjectID(member))
        else:
            members[name] = blobs[member]
    return ObjectMeta.sealed(node["t"], node.get("k", {}), members, bool(node.get("g")))
