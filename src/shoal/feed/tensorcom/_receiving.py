"""Messages as they come in: checked to be headers and data, until all who sent have ended."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from shoal.errors import DecodeError, StreamEndedError, StreamTimeoutError
from shoal.feed.tensorcom._arrays import decode_chunks
from shoal.feed.tensorcom._marks import Senders, mark_of
from shoal.feed.tensorcom._terms import Terms
from shoal.feed.tensorcom._wire import Wire

__all__ = ["Receiving"]

#: Bytes of a part from which on it is used where ZeroMQ has put it. Smaller ones lie anywhere, not where words begin.
_LARGE = 1 << 16


class Receiving:
    """The end of a connection that receives."""

    def __init__(self, wire: Wire, terms: Terms) -> None:
        self._wire, self._senders = wire, Senders(terms.senders)
        self._timeout = math.inf if terms.timeout is None else terms.timeout

    def receive(self) -> list[memoryview]:
        """Give the headers and data of the next message; what ends a stream is not given."""
        self._wire.check()
        while not self._senders.ended:
            parts = self._parts()
            mark = mark_of(parts[0])
            self._senders.saw(mark)
            if mark is None or not mark.ended:
                return parts
        raise StreamEndedError("the stream has ended: all who sent have said so; open another connection for more")

    def _parts(self) -> list[memoryview]:
        parts = [_buffer(frame) for frame in self._frames()]
        if len(parts) == 1:  # which has all in it
            parts = [*decode_chunks(parts[0])]
        if not parts or len(parts) % 2:
            raise DecodeError(f"a message of {len(parts)} parts came, and headers with their data come in pairs")
        return parts

    def _frames(self) -> Sequence[Any]:
        until = time.monotonic() + self._timeout
        while not self._wire.is_ready(max(until - time.monotonic(), 0)):
            if time.monotonic() >= until:
                raise StreamTimeoutError(f"nothing came for {self._timeout:g} s; {self._senders}")
        frames: Sequence[Any] = self._wire.socket.recv_multipart(copy=False)
        return frames


def _buffer(frame: Any) -> memoryview:
    view: memoryview = frame.buffer
    return view if len(view) >= _LARGE else memoryview(bytearray(view))
