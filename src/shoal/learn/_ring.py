"""Sums over all workers, from each to the next: for libraries that have no way of their own to add up over processes.

Every number is added up in one place and handed round, so all workers have the same bits afterwards.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal._sockets import connected, knows, new_secret
from shoal.abc import Member
from shoal.errors import WorkerDiedError

__all__ = ["Ring"]

_PATIENCE = 60.0  # seconds for a neighbour to come
_BUFFER = 4 * 2**20  # bytes that the system may hold on their way: fewer, larger steps


class Ring:
    """The connections of a worker: it hears from the one before, and speaks to the one after."""

    def __init__(self, member: Member) -> None:
        self.rank, self.size = member.rank, member.size
        self._before: socket.socket | None = None
        self._after: socket.socket | None = None
        if member.size > 1:
            self._before, self._after = _neighbours(member)
        self._spare = np.empty(0, np.uint8)

    def add_up(self, numbers: NDArray[Any]) -> None:
        """Replace numbers, in one piece of memory, by their sums over all workers."""
        if self.size == 1 or not numbers.size:
            return
        ends = [len(numbers) * part // self.size for part in range(self.size + 1)]
        parts = [numbers[begin:end] for begin, end in pairwise(ends)]
        for step in range(self.size - 1):
            target = parts[(self.rank - step - 1) % self.size]
            heard = self._room(target)
            self._swap(parts[(self.rank - step) % self.size], heard)
            target += heard
        for step in range(self.size - 1):
            self._swap(parts[(self.rank - step + 1) % self.size], parts[(self.rank - step) % self.size])

    def total(self, numbers: Sequence[float]) -> list[float]:
        """Add up a few numbers over all workers."""
        found = np.asarray(numbers, np.float64).copy()
        self.add_up(found)
        return [float(each) for each in found]

    def hand_round(self, array: NDArray[Any]) -> None:
        """Replace an array, in one piece of memory, by that of the first worker, bit for bit."""
        if self.size == 1 or not array.size:
            return
        nothing = np.empty(0, np.uint8)
        flat = array.reshape(-1).view(np.uint8)
        if self.rank:
            self._swap(nothing, flat)
        if self.rank < self.size - 1:
            self._swap(flat, nothing)

    def close(self, done: bool = True) -> None:
        """Hang up: all at once, unless something went wrong."""
        if self._before is None or self._after is None:
            return
        if done:
            with suppress(WorkerDiedError):
                self.total([0.0])  # whoever hangs up while others still wait would look lost
        for end in (self._before, self._after):
            end.close()
        self._before = self._after = None

    def _room(self, like: NDArray[Any]) -> NDArray[Any]:
        """Give memory that is kept for what is heard: fresh pages would cost more than the transfer."""
        if self._spare.nbytes < like.nbytes:
            self._spare = np.empty(like.nbytes, np.uint8)
        return self._spare[: like.nbytes].view(like.dtype)

    def _swap(self, said: NDArray[Any], heard: NDArray[Any]) -> None:
        """Speak and hear at once: if all spoke first, nobody would listen."""
        assert self._before is not None
        assert self._after is not None
        left, room = said.view(np.uint8).data, heard.view(np.uint8).data
        try:
            while left or room:
                sent = _tried(self._after.send, left) if left else 0
                got = _tried(self._before.recv_into, room) if room else 0
                if got == 0 and room:
                    raise ConnectionResetError("the other end is closed")
                left, room = left[max(sent, 0) :], room[max(got, 0) :]
                if sent <= 0 and got <= 0:
                    self._wait(bool(left), bool(room))
        except OSError as error:
            text = f"rank {self.rank} has lost a neighbour while it added up numbers"
            raise WorkerDiedError(f"{text}: {error}") from error

    def _wait(self, speaking: bool, hearing: bool) -> None:
        assert self._before is not None
        assert self._after is not None
        watch = select.poll()
        if speaking:
            watch.register(self._after, select.POLLOUT)
        if hearing:
            watch.register(self._before, select.POLLIN)
        watch.poll()


def _tried(move: Any, data: memoryview) -> int:
    """Move as many bytes as can be moved now; -1 if it is none."""
    try:
        return int(move(data))
    except (BlockingIOError, InterruptedError):
        return -1


def _neighbours(member: Member) -> tuple[socket.socket, socket.socket]:
    """Meet the one before and the one after."""
    family = socket.AF_INET6 if ":" in member.host else socket.AF_INET
    with socket.create_server((member.host, 0), family=family) as door:
        door.settimeout(_PATIENCE)
        told = member.all_gather((member.host, door.getsockname()[1], new_secret()))
        host, port, _ = told[(member.rank + 1) % member.size]
        secret = told[0][2]
        after = connected((host, port), secret)
        before = _accepted(door, secret)
    for end in (before, after):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        end.setblocking(False)
    return before, after


def _accepted(door: socket.socket, secret: bytes) -> socket.socket:
    """Wait for the neighbour; whoever does not know the secret is sent away."""
    while True:
        end, _ = door.accept()
        if knows(end, secret):
            return end
