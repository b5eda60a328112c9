"""What goes over the wire between stores: documents in JSON, bytes in messages of some megabytes, errors by name.

The blobs of an object travel as one sequence of bytes, in which each begins at a multiple of 64, as in its file. So a
part of an object is two numbers, and what arrives can be written where it belongs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from shoal._optional import require
from shoal.errors import CorruptObjectError, ObjectNotFoundError, PlanError, ShoalError, StoreError, StoreFullError
from shoal.store._ids import ObjectID
from shoal.store._meta import Blob, Link, Member, ObjectMeta

flight = require("pyarrow.flight", "a store of another host")

__all__ = [
    "MESSAGE",
    "Document",
    "as_id",
    "as_size",
    "blobs_of",
    "described",
    "flight",
    "layout",
    "pack",
    "raise_told",
    "read_meta",
    "schema",
    "telling",
    "unpack",
]

#: Bytes of a message: smaller and larger ones take longer.
MESSAGE = 2 * 2**20
_ALIGN = 64
_DOCUMENT = 64 * 2**20
_DEEP = 100
_LARGEST = 2**46
_TEXT = 1000  # characters of an error: what goes beside an answer is limited
_ERRORS: dict[str, type[ShoalError]] = {
    kind.__name__: kind for kind in (StoreError, ObjectNotFoundError, CorruptObjectError, StoreFullError, PlanError)
}


class Document(NamedTuple):
    """The description of an object as it is sent: a tree, and the sizes and names of its blobs."""

    tree: dict[str, Any]
    blobs: list[tuple[str | None, int]]


def pack(document: dict[str, Any]) -> bytes:
    """Write a document."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def unpack(data: Any) -> dict[str, Any]:
    """Read a document that somebody sent."""
    if len(data) > _DOCUMENT:
        raise StoreError(f"a document of {len(data)} bytes was sent; there are none of more than {_DOCUMENT}")
    try:
        found = json.loads(bytes(data).decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise StoreError(f"what was sent is no document: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise StoreError(f"what was sent is a {type(found).__name__}, and no document")
    return found


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


@contextmanager
def telling() -> Iterator[None]:
    """Let errors of the server arrive at who asked, by their names."""
    try:
        yield
    except flight.FlightError:
        raise
    except Exception as error:
        known = next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS), None)
        text = str(error) if known else f"the server of the store failed: {error!r}"
        told = {"error": known or "StoreError", "text": text[:_TEXT]}
        raise flight.FlightServerError("refused", extra_info=pack(told)) from error


def raise_told(error: Any, url: str) -> NoReturn:
    """Raise an error of a server as what it was there; what is not known by name is an error of the store."""
    if isinstance(error, flight.FlightUnauthenticatedError):
        text = f"the store at {url} does not know this token"
        raise StoreError(f"{text}; connect(url, token=...) takes that of its token file") from None
    extra = getattr(error, "extra_info", b"")
    if not extra:
        raise StoreError(f"the store at {url} failed: {str(error)[:_TEXT]}") from error
    told = unpack(extra)
    kind = _ERRORS.get(str(told.get("error")), StoreError)
    raise kind(str(told.get("text"))) from None


def schema() -> Any:
    """Give the schema of messages: bytes, and nothing else."""
    import pyarrow as pa

    return pa.schema([("bytes", pa.uint8())])
