"""Where the workers of a training meet before they read a pass over data, and agree on how many steps it has.

Each says whether it can read a share of its own. If all can, they do; else somebody else reads for them, or all read
everything. Those who read for themselves do not know how much the others have: who has run out asks whether there is
another step, which there is as soon as one of the others takes it.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct

from shoal._sockets import Door, connected, exactly
from shoal.engines import current
from shoal.errors import StateError

__all__ = ["Guest", "Join", "Meeting", "Ticket"]

_LOOK = 0.2  # seconds between two looks whether who waits is still there
_JOIN = Struct("<qqq??")
_TELL = Struct("<?q")
_NO, _YES, _LOST = b"\0", b"\1", b"\2"


@dataclass(frozen=True, slots=True)
class Join:
    """What a worker says when it comes."""

    rank: int
    number: int
    """The pass over the data that it wants to read."""
    batch_size: int
    drop: bool
    """Whether a batch that is not full is left out."""
    own: bool
    """Whether it can read a share of its own."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a worker needs to come; it can be pickled."""

    address: tuple[str, int]
    token: bytes

    def join(self, join: Join) -> Guest:
        """Come, and wait for the others."""
        try:
            end = connected(self.address, self.token)
            end.sendall(_JOIN.pack(join.rank, join.number, join.batch_size, join.drop, join.own))
        except OSError as error:
            raise StateError(f"the process that has the data has ended, or the data was released: {error}") from error
        return Guest(end)


class Guest:
    """A worker at a meeting."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self.own = self._heard() == _YES
        """Whether all read shares of their own."""

    def has(self, step: int) -> None:
        """Say that there is a step."""
        self._end.sendall(_TELL.pack(True, step))

    def more(self, step: int) -> bool:
        """Ask whether somebody else has a step, after one's own share has ended."""
        self._end.sendall(_TELL.pack(False, step))
        return self._heard() == _YES

    def leave(self) -> None:
        """Go."""
        self._end.close()

    def _heard(self) -> bytes:
        try:
            said = bytes(exactly(self._end, 1))
        except OSError as error:
            self.leave()
            raise StateError(f"the process that has the data has ended in the middle of a pass: {error}") from error
        if said == _LOST:
            self.leave()
            raise StateError("another worker has gone in the middle of a pass over the data")
        return said


class _Round:
    """A pass under way; all that it knows is guarded by the lock of the meeting."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.here: dict[int, tuple[Join, socket.socket]] = {}
        self.verdict: bool | None = None
        self.highest = -1
        self.ended: set[int] = set()
        self.gone: set[int] = set()

    def answer(self, step: int) -> bytes | None:
        """Say whether there is a step, if that is known by now."""
        if self.highest >= step:
            return _YES
        if len(self.ended) == self.size:
            return _NO
        return _LOST if self.gone - self.ended else None


class Meeting:
    """Receives workers. ``begin`` is called when all have come, with what the first said and whether all can read."""

    def __init__(self, size: int, begin: Callable[[Join, bool], None] | None = None) -> None:
        self._size, self._begin = size, begin
        self._lock = threading.Condition()
        self._next, self._closed = _Round(size), False
        self._door = Door(getattr(current(), "here", "127.0.0.1"), size, self._attend)
        self.ticket = Ticket(self._door.address, self._door.token)

    def close(self) -> None:
        """Let nobody in any more, and send away who is here."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._door.close()

    def _attend(self, end: socket.socket) -> None:
        with end, suppress(OSError):
            join = Join(*_JOIN.unpack(exactly(end, _JOIN.size)))
            found = self._together(join, end)
            if found is None:
                return
            try:
                end.sendall(_YES if found.verdict else _NO)
                while found.verdict:
                    self._listen(found, join.rank, end)
            finally:
                with self._lock:
                    found.gone.add(join.rank)
                    self._lock.notify_all()

    def _together(self, join: Join, end: socket.socket) -> _Round | None:
        """Wait until all have come; None if this one leaves before, or another comes in its place."""
        with self._lock:
            mine = self._next
            mine.here[join.rank] = join, end
            while mine.verdict is None:
                if self._closed or _is_gone(end) or mine.here.get(join.rank) != (join, end):
                    if mine.here.get(join.rank) == (join, end):
                        del mine.here[join.rank]
                    return None
                self._complete(mine)
                if mine.verdict is None:
                    self._lock.wait(_LOOK)
        return mine

    def _complete(self, mine: _Round) -> None:
        """Begin, if all are here; workers that were ended while they waited are not."""
        for rank, (_, end) in list(mine.here.items()):
            if _is_gone(end):
                del mine.here[rank]
        if len(mine.here) < mine.size:
            return
        joins = [join for join, _ in mine.here.values()]
        verdict = all(join.own for join in joins)
        if self._begin is not None:
            self._begin(mine.here[0][0], verdict)
        mine.verdict, self._next = verdict, _Round(self._size)
        self._lock.notify_all()

    def _listen(self, found: _Round, rank: int, end: socket.socket) -> None:
        has, step = _TELL.unpack(exactly(end, _TELL.size))
        with self._lock:
            if has:
                found.highest = max(found.highest, step)
                self._lock.notify_all()
                return
            found.ended.add(rank)
            self._lock.notify_all()
            while (answer := found.answer(step)) is None and not self._closed:
                self._lock.wait(_LOOK)
        end.sendall(answer or _LOST)


def _is_gone(end: socket.socket) -> bool:
    """Tell whether somebody who should only wait has hung up."""
    try:
        return bool(select.select([end], [], [], 0)[0])
    except (OSError, ValueError):
        return True
