"""Bytes of objects in other stores: they come when they are looked at, once, for all who look."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shoal._flight import MESSAGE
from shoal._slabs import Slabs
from shoal.errors import StoreError
from shoal.store._flight_line import Line, Write
from shoal.store._flight_wire import Document, as_id, blobs_of, layout
from shoal.store._ids import ObjectID
from shoal.store._meta import Blob, LazyBlob, ObjectMeta

__all__ = ["Cargo", "RemoteBlob", "messages", "pieces", "write_all"]

#: Bytes up to which all blobs of an object come with the first that is looked at.
_TOGETHER = 16 * 2**20
_PASSED = 8 * MESSAGE
_BYTES = np.dtype(np.uint8)
_SLABS = Slabs()


class RemoteBlob(LazyBlob):
    """Bytes in the store of another host."""

    __slots__ = ("_begin", "_cargo")

    def __init__(self, cargo: Cargo, begin: int, size: int, blob_id: ObjectID | None) -> None:
        super().__init__(size, blob_id)
        self._cargo, self._begin = cargo, begin

    @property
    def cargo(self) -> Cargo:
        """All bytes of its object."""
        return self._cargo

    def place(self) -> tuple[int, int]:
        """Say where among the bytes of its object it begins and ends."""
        return self._begin, self._begin + self._size

    def _bring(self) -> None:
        self._cargo.bring(self)

    def part(self, begin: int, end: int, write: Write) -> None:
        """Fetch a part, for who does not want to keep it."""
        self._cargo.fetch(self._begin + begin, self._begin + end, write)


class Cargo:
    """All bytes of one remote object."""

    def __init__(
        self, line: Line, object_id: ObjectID, document: Document, *, joined: bool, data: memoryview | None = None
    ) -> None:
        """Have them; ``data`` are all of them, where they came with the description."""
        self._line, self._ticket = line, {"id": str(object_id), "joined": joined}
        begins, self.size = layout([size for _, size in document.blobs])
        if data is not None and len(data) != self.size:
            raise StoreError(f"{len(data)} bytes came with {object_id}, which has {self.size}")
        self._data = data
        self._lock = threading.Lock()
        self.blobs = [
            RemoteBlob(self, begin, size, None if name is None else as_id(name))
            for begin, (name, size) in zip(begins, document.blobs, strict=True)
        ]

    def fetch(self, begin: int, end: int, write: Write) -> None:
        """Bring a part of the bytes."""
        if self._data is None:
            self._line.fetch(self._ticket, begin, end, write)
        else:
            write(begin, self._data[begin:end])

    def bring(self, blob: RemoteBlob) -> None:
        """Have the bytes of a blob, and those of all others where these are few."""
        with self._lock:
            if blob.is_here:
                return
            together = self.size <= _TOGETHER
            begin, end = (0, self.size) if together else blob.place()
            memory = _SLABS.empty((end - begin,), _BYTES)
            self.fetch(begin, end, _writing(memory, begin))
            for each in self.blobs if together else [blob]:
                first, last = each.place()
                each.arrive(memoryview(memory[first - begin : last - begin]).toreadonly())  # type: ignore[arg-type]


def pieces(meta: ObjectMeta, blobs: Sequence[Blob], begin: int, end: int) -> Iterator[Any]:
    """Give a part of the bytes of an object as they are sent, with the gaps between blobs."""
    begins, size = layout([blob.nbytes for blob in blobs])
    if not begin <= end <= size:
        raise StoreError(f"bytes {begin} to {end} of {meta.id} were asked for, which has {size}")
    if blobs and isinstance(blobs[0], RemoteBlob):
        yield from _passed_on(blobs[0].cargo, begin, end)
        return
    at = begin
    for first, blob in zip(begins, blobs, strict=True):
        if first + blob.nbytes <= at or first >= end:
            continue
        if first > at:
            yield bytes(first - at)
        until = min(end, first + blob.nbytes)
        yield blob.view[max(at, first) - first : until - first]
        at = until
    if at < end:
        yield bytes(end - at)


def _passed_on(cargo: Cargo, begin: int, end: int) -> Iterator[Any]:
    """Give bytes of a third store, some at a time: all of them could be too much."""
    for first in range(begin, end, _PASSED):
        memory = _SLABS.empty((min(_PASSED, end - first),), _BYTES)
        cargo.fetch(first, first + len(memory), _writing(memory, first))
        yield memoryview(memory)  # type: ignore[arg-type]


def _writing(memory: np.ndarray[Any, np.dtype[np.uint8]], begin: int) -> Write:
    """Give a function that writes what comes into memory, which holds what begins there."""

    def write(at: int, data: Any) -> None:
        # Not by a slice of a memoryview, which would keep other threads waiting.
        np.copyto(memory[at - begin : at - begin + len(data)], np.frombuffer(data, np.uint8))

    return write


def write_all(meta: ObjectMeta, write: Write) -> None:
    """Write all bytes of an object, wherever they are, in the order in which they are sent."""
    blobs = blobs_of(meta)
    if blobs and isinstance(blobs[0], RemoteBlob):
        blobs[0].cargo.fetch(0, blobs[0].cargo.size, write)
        return
    begins, _ = layout([blob.nbytes for blob in blobs])
    for begin, blob in zip(begins, blobs, strict=True):
        write(begin, blob.view)


def messages(parts: Iterator[Any]) -> Iterator[Any]:
    """Join parts that are small, and cut large ones."""
    waiting = bytearray()
    for part in parts:
        if len(part) < MESSAGE // 8 and len(waiting) + len(part) <= MESSAGE:
            waiting += part
            continue
        if waiting:
            yield waiting
            waiting = bytearray()
        for at in range(0, len(part), MESSAGE):
            yield part[at : at + MESSAGE]
    if waiting:
        yield waiting
