"""Values between two processes: small frames through a socket, large messages in shared memory.

A frame is a head, the names of segments that are free again or gone, and the message if it is a small one. The
descriptor of a segment that the other side does not know yet travels with the frame.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from array import array
from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from shoal._segments import Owner, User
from shoal.engines.local._packing import INLINE, Packed, Packer, unpack

__all__ = ["Channel", "Frame", "Kind", "Lost"]

_HEAD = struct.Struct("<BQQQHH")  # kind, segment or 0, bytes of the stream, buffers, names free again, names gone
_NAMES = 512  # names of each sort in one frame; more wait for the next one
_FRAME = _HEAD.size + 2 * 8 * _NAMES + INLINE
_LENT = 32  # segments that may be in use; beyond that arrays are copied, so that one kept sample keeps no whole block


class Kind(IntEnum):
    """What a message is."""

    WORK = 1
    ITEM = 2
    RESULT = 3
    ERROR = 4


class Lost(Exception):  # noqa: N818  (never leaves the engine)
    """The other process is gone."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A message that has come and was not unpacked yet."""

    kind: Kind
    view: memoryview
    stream: int
    buffers: int
    copied: bool

    def unpack(self) -> Any:
        """Make the value; this runs code of its classes, and raises what that raises."""
        return unpack(self.view, self.stream, self.buffers, copied=self.copied)


class Channel:
    """One end of a pair of sockets of the kind that keeps messages apart."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._owner = Owner()
        self._user = User()
        self._packer = Packer(self._owner)
        self._buffer = bytearray(_FRAME)

    def pack(self, value: Any) -> Packed:
        """Make a message of a value; after that the value is not needed any more."""
        return self._packer.pack(value)

    def send(self, kind: Kind, packed: Packed) -> None:
        """Send a message, and with it the names of segments that are not in use any more."""
        segment = packed.segment
        unused, dropped = self._user.unused(_NAMES), _first(self._owner.dropped, _NAMES)
        name = 0 if segment is None else segment.name
        head = _HEAD.pack(kind, name, packed.stream, packed.buffers, len(unused), len(dropped))
        parts = [head, array("q", unused + dropped).tobytes(), packed.view if segment is None else b""]
        descriptors = [] if segment is None or segment.descriptor is None else [segment.descriptor]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
        try:
            self.socket.sendmsg(parts, rights)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Lost from error
        if segment is not None:
            segment.sent()

    def receive(self) -> Frame:
        """Wait for a message."""
        size, descriptor = self._receive()
        kind, name, stream, buffers, unused, dropped = _HEAD.unpack_from(self._buffer)
        start = _HEAD.size + 8 * (unused + dropped)
        names = array("q", bytes(self._buffer[_HEAD.size : start]))
        for mine in names[:unused]:
            self._owner.back(mine)
        for theirs in names[unused:]:
            self._user.forget(theirs)
        if not name:
            return Frame(Kind(kind), memoryview(self._buffer[start:size]), stream, buffers, copied=False)
        copied = self._user.lent >= _LENT
        return Frame(Kind(kind), self._lend(name, descriptor), stream, buffers, copied)

    def _receive(self) -> tuple[int, int | None]:
        """Fill the buffer; give the length of the frame and the descriptor that came with it."""
        room = socket.CMSG_SPACE(array("i").itemsize)
        try:
            size, ancillary, flags, _ = self.socket.recvmsg_into([self._buffer], room, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError as error:
            raise Lost from error
        if not size:
            raise Lost
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, "too many open files in this process to share memory with a worker")
        return size, next((array("i", bytes(data))[0] for *_, data in ancillary), None)

    def _lend(self, name: int, descriptor: int | None) -> memoryview:
        try:
            return self._user.lend(name, descriptor)
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def close(self) -> None:
        """Let go of the socket and of all segments that are not in use."""
        self.socket.close()
        self._owner.close()
        self._user.close()


def _first(names: deque[int], count: int) -> list[int]:
    return [names.popleft() for _ in range(min(count, len(names)))]
