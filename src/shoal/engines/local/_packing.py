"""Python values as bytes that lie in memory the way they are used: a pickle, and behind it the arrays it speaks of.

A packed message is a pickle stream, then the lengths of its buffers, then the buffers, each at a multiple of 64 bytes.
Arrays that are unpacked are views of the message.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal._segments import Owned, Owner, copy
from shoal.engines._pickling import Plain, Thorough, refusal

__all__ = ["INLINE", "Packed", "Packer", "unpack"]

INLINE = 2**15  # bytes; a message up to this size is copied through the socket sooner than shared
_SMALL = 2**10  # bytes; an array up to this size goes into the stream, so that keeping it keeps no segment
_ALIGNMENT = 64


@dataclass(slots=True)
class Packed:
    """A message: where it lies, and what is needed to unpack it."""

    view: memoryview
    segment: Owned | None
    """None if the message is small enough to be sent as it is."""
    stream: int
    """Bytes of the pickle stream."""
    buffers: int
    """Number of buffers behind it."""


class Packer:
    """Packs one message after the other."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._kind: Callable[..., pickle.Pickler] = Plain
        self._last = 0  # bytes of the last message: the next one is expected to need as many

    def pack(self, value: Any) -> Packed:
        """Write a value into a segment, or into a small buffer if that is enough."""
        try:
            return self._packed(value, self._kind)
        except (OSError, MemoryError):  # of the segments
            raise
        except Exception as error:  # whatever refuses to be pickled does so in its own way
            if self._kind is Thorough:
                raise refusal(value, error) from error
        try:
            packed = self._packed(value, Thorough)
        except Exception as error:
            raise refusal(value, error) from error
        self._kind = Thorough  # the next messages will hold the like
        return packed

    def _packed(self, value: Any, kind: Callable[..., pickle.Pickler]) -> Packed:
        room = _Room(self._owner, self._last)
        try:
            return self._write(room, value, kind)
        except BaseException:
            room.give_up()
            raise

    def _write(self, room: _Room, value: Any, kind: Callable[..., pickle.Pickler]) -> Packed:
        buffers: list[memoryview] = []

        def keep(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes > _SMALL:
                buffers.append(raw)
            return raw.nbytes <= _SMALL

        kind(room, protocol=5, buffer_callback=keep).dump(value)
        stream = room.used
        sizes = [buffer.nbytes for buffer in buffers]
        room.reserve(stream + (len(sizes) + 1) * (8 + _ALIGNMENT) + _ALIGNMENT + sum(sizes))
        for part in [memoryview(array("Q", sizes)).cast("B"), *buffers] if sizes else []:
            room.align()
            room.write(part)
        self._last = room.used
        return Packed(room.view[: room.used], room.segment, stream, len(buffers))


def unpack(view: memoryview, stream: int, buffers: int, *, copied: bool) -> Any:
    """Make the value again; its arrays are views of the message, or copies."""
    parts: list[memoryview | bytearray] = []
    place = _aligned(stream)
    sizes = view[place : place + 8 * buffers].cast("Q")
    place += sizes.nbytes
    for size in sizes:
        place = _aligned(place)
        part = view[place : place + size]
        parts.append(bytearray(part) if copied else part)
        place += size
    return pickle.loads(view[:stream], buffers=parts)  # noqa: S301  (of our own process)


def _aligned(place: int) -> int:
    return -(-place // _ALIGNMENT) * _ALIGNMENT


class _Room:
    """A file for a pickler that lies in memory: small at first, then in ever larger segments."""

    def __init__(self, owner: Owner, expected: int) -> None:
        self._owner = owner
        self._expected = expected
        self.view = memoryview(bytearray(INLINE))
        self.segment: Owned | None = None
        self.used = 0

    def write(self, data: Any) -> int:
        source = data if isinstance(data, bytes | bytearray) else memoryview(data).cast("B")
        end = self.used + len(source)
        if end > len(self.view):
            self.reserve(2 * end)
        copy(self.view[self.used : end], source)
        self.used = end
        return len(source)

    def align(self) -> None:
        self.used = _aligned(self.used)

    def reserve(self, size: int) -> None:
        if size <= len(self.view):
            return
        segment = self._owner.take(max(size, self._expected))  # pages that are not written cost nothing
        view = segment.mapping.view()
        copy(view[: self.used], self.view[: self.used])
        self.give_up()
        self.view, self.segment = view, segment

    def give_up(self) -> None:
        if self.segment is not None:
            self._owner.back(self.segment.name)
            self.segment = None
