"""What goes over the wire between stores: documents in JSON, bytes in messages of some megabytes, errors by name.

The blobs of an object travel as one sequence of bytes, in which each begins at a multiple of 64, as in its file. So a
part of an object is two numbers, and what arrives can be written where it belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from shoal._flight import Dialect
from shoal.errors import CorruptObjectError, ObjectNotFoundError, PlanError, ShoalError, StoreError, StoreFullError
from shoal.store._ids import ObjectID
from shoal.store._meta import Blob, Link, Member, ObjectMeta

__all__ = ["DIALECT", "Document", "as_id", "as_size", "blobs_of", "described", "layout", "read_meta"]

_ALIGN = 64
_DEEP = 100
_LARGEST = 2**46
DIALECT = Dialect(
    "the store",
    "connect(url, token=...) takes that of its token file",
    StoreError,
    (ObjectNotFoundError, CorruptObjectError, StoreFullError, PlanError),
)


class Document(NamedTuple):
    """The description of an object as it is sent: a tree, and the sizes and names of its blobs."""

    tree: dict[str, Any]
    blobs: list[tuple[str | None, int]]


def as_id(value: Any) -> ObjectID:
    """Take an id that somebody sent."""
    if not isinstance(value, str):
        raise StoreError(f"{value!r:.60} is not the id of an object; one looks like o0123456789abcdef")
    return ObjectID(value)


def as_size(value: Any) -> int:
    """Take a number of bytes that somebody sent."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
        raise StoreError(f"{value!r:.60} is not a number of bytes")
    return value


def described(meta: ObjectMeta) -> dict[str, Any]:
    """Describe an object without its bytes."""
    blobs = blobs_of(meta)
    numbers = iter(range(len(blobs)))
    table = [[None if blob.id is None else str(blob.id), blob.nbytes] for blob in blobs]
    return {"d": _node(meta, numbers), "b": table}


def _node(meta: ObjectMeta, numbers: Iterator[int]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, member in meta.members.items():
        if isinstance(member, ObjectMeta):
            members[name] = _node(member, numbers)
        else:
            members[name] = str(member.id) if isinstance(member, Link) else next(numbers)
    return {"t": meta.typename, "k": dict(meta.keys_), "g": meta.global_, "m": members}


def blobs_of(meta: ObjectMeta) -> list[Blob]:
    """List the blobs of an object in the order in which they are sent."""
    found: list[Blob] = []
    for member in meta.members.values():
        if isinstance(member, ObjectMeta):
            found += blobs_of(member)
        elif isinstance(member, Blob):
            found.append(member)
    return found


def layout(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Say where each blob begins, and where the last one ends."""
    begins, end = [], 0
    for size in sizes:
        begins.append(end + (-end % _ALIGN))
        end = begins[-1] + size
    return begins, end


def read_meta(document: dict[str, Any], make: Callable[[Document], Sequence[Blob]]) -> ObjectMeta:
    """Make a description of a document that somebody sent; ``make`` makes its blobs."""
    try:
        table = [(None if name is None else str(as_id(name)), as_size(size)) for name, size in document["b"]]
        blobs = make(Document(document["d"], table))
        meta = _read_node(document["d"], blobs, 0)
        if [id(blob) for blob in blobs_of(meta)] != [id(blob) for blob in blobs]:
            raise StoreError("what was sent has blobs that are not members, each once and in order")
        return meta
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        if isinstance(error, ShoalError):
            raise
        raise StoreError(f"what was sent describes no object: {error!r:.200}") from None


def _read_node(node: dict[str, Any], blobs: Sequence[Blob], depth: int) -> ObjectMeta:
    if depth > _DEEP or not isinstance(node["t"], str) or not isinstance(node["k"], dict):
        raise StoreError("what was sent describes no object")
    members: dict[str, Member] = {}
    for name, member in node["m"].items():
        if isinstance(member, dict):
            members[name] = _read_node(member, blobs, depth + 1)
        elif isinstance(member, str):
            members[name] = Link(as_id(member))
        else:
            members[name] = blobs[as_size(member)]
    return ObjectMeta.sealed(node["t"], node["k"], members, bool(node["g"]))
