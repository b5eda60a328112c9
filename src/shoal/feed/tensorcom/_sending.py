"""Messages on their way out: copied once, followed until they are taken, and ended with a mark for every receiver."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from shoal._optional import require
from shoal.feed.tensorcom._arrays import Buffer, encode_chunks
from shoal.feed.tensorcom._marks import EMPTY, Mark
from shoal.feed.tensorcom._peers import Peers
from shoal.feed.tensorcom._terms import Terms
from shoal.feed.tensorcom._urls import Address
from shoal.feed.tensorcom._wire import Wire

__all__ = ["Sending"]

#: Messages that ZeroMQ keeps for each receiver unless it is told.
_HWM = 1000
#: Messages behind one that stays, among which those that have left are not looked for yet.
_FEW = 64
#: Seconds after which it is looked again who has left.
_PAUSE = 0.02
#: Seconds without anything taken after which those who have room are told of the end before the others.
_STALL = 0.5
#: Seconds for what ZeroMQ has in its own buffers, when there is more that nobody takes.
_FLUSH = 1.0


class _Message(NamedTuple):
    """A message that may not have been taken yet."""

    tracker: Any
    parts: list[bytes]
    """What ZeroMQ reads from."""
    is_end: bool


class Sending:
    """The end of a connection that sends."""

    def __init__(self, wire: Wire, terms: Terms, *, multipart: bool) -> None:
        self._library: Any = require("zmq", "a Tensorcom connection")
        self._wire, self._multipart = wire, multipart
        self._peers = Peers(wire)
        wire.before_close.append(self._peers.settle)
        self._mark = Mark.new() if terms.marks else None
        self._under_way: list[_Message] = wire.kept
        self._many = _FEW
        self._last: Sequence[bytes] | None = None
        self._room = _HWM if terms.hwm is None else terms.hwm or sys.maxsize
        self._told = 0
        """How many receivers know for sure that this is the end."""

    def attached(self, address: Address) -> None:
        """Take note of a place where a receiver is, or of one where receivers connect."""
        self._peers.expect(address)

    def begin(self) -> None:
        """Have a stream, of which the end is told even if there is nothing in it."""
        self._last = self._last or tuple(map(bytes, EMPTY))

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send headers and data; they are copied, so the arrays may be changed at once."""
        self._wire.check()
        self._last = tuple(map(bytes, parts))
        while not self._wire.is_ready():
            pass
        self._post(self._last, self._mark)
        self._peers.look()
        self._forget_taken()

    def close(self, linger: float) -> int:
        """Tell all receivers of the end when all has been taken; count what nobody took for so many seconds."""
        if not self._wire.is_mine:
            self._wire.close(0)
            return 0
        if left := self._drain(min(_STALL, linger)):
            # One who is full may wait for another to end, as workers of a DataLoader do for one another.
            self._tell_the_end(left)
        left = self._drain(linger)
        lost = sum(not each.is_end for each in self._under_way)
        self._tell_the_end(left)
        self._drain(linger, lambda: left + self._peers.absent)
        self._wire.close(min(linger, _FLUSH) if self._under_way else linger)
        return lost

    def _tell_the_end(self, left: int) -> None:
        """Send a mark to each receiver that has room; they are served in turn.

        All have, if few messages are left. A sender learns of room when half of what may wait for one has been taken.
        """
        count = self._peers.count
        if self._mark is None or self._last is None or self._peers.all_gone or count <= self._told:
            return
        self._catch_up()
        with contextlib.suppress(self._library.Again):
            for _ in range(count):
                self._post(self._last, self._mark.end())
        self._told = count if left < self._room // 2 else 0

    def _post(self, parts: Sequence[bytes], mark: Mark | None) -> None:
        """Send a message, if somebody has room for it: if there is room for its first part, there is for all."""
        message = [*parts] if mark is None else [mark.on(parts[0]), *parts[1:]]
        *first, last = message if self._multipart else [encode_chunks(message)]
        for part in first:
            self._wire.socket.send(part, self._library.NOBLOCK | self._library.SNDMORE, copy=False)
        tracker = self._wire.socket.send(self._tracked(last), self._library.NOBLOCK, copy=False, track=True)
        self._under_way.append(_Message(tracker, [*first, last], is_end=mark is not None and mark.ended))

    def _tracked(self, part: bytes) -> Any:
        """Wrap a part to be followed. Who holds the wrapping holds up the tracking, so nobody gives it a name."""
        return self._library.Frame(part, track=True, copy=False, copy_threshold=0)

    def _catch_up(self) -> None:
        """Let the socket hear at once of receivers that have room again, or have gone: it does so when it is asked."""
        self._wire.socket.get(self._library.EVENTS)

    def _forget_taken(self) -> None:
        """Let go of what has been taken: of the oldest at once, of the others when they have become many."""
        while self._under_way and self._under_way[0].tracker.done:
            del self._under_way[0]
        if len(self._under_way) > self._many:
            self._many = max(_FEW, 2 * self._left())

    def _left(self) -> int:
        """Let go of what has been taken, and count the rest."""
        self._catch_up()
        self._under_way[:] = [each for each in self._under_way if not each.tracker.done]
        return len(self._under_way)

    def _drain(self, linger: float, spare: Callable[[], int] = int) -> int:
        """Wait until all but a few are taken, as long as some are within so many seconds; count what is left."""
        left, until = self._left(), time.monotonic() + linger
        while left > spare() and time.monotonic() < until:
            with contextlib.suppress(self._library.NotDone):
                self._under_way[0].tracker.wait(min(_PAUSE, linger))
            before, left = left, self._left()
            until = until if left == before else time.monotonic() + linger
        return left
