"""A gang as whoever started it sees it: where members meet, who is at work, and what to do when one is lost.

It is the same on every engine. What an engine does is to start a process for each member and to end them: a `Squad`.
"""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

from shoal._ending import ends_with_program
from shoal.abc import Gang, Member
from shoal.engines._checks import named
from shoal.engines._member import Call
from shoal.engines._message import Loose, Message, joined, pack, unpack
from shoal.engines._pickling import shipped
from shoal.engines._task import Caught
from shoal.engines._wire import Door, Kind, Lost, Wire
from shoal.errors import PlanError, ShoalError, StateError, WorkerDiedError

__all__ = ["RunningGang", "Squad"]

#: Seconds for members to come after they were started.
_MUSTER = 180.0
#: Seconds after the first bad news in which worse may come: those who wait for a dead member fail before it is missed.
_GRACE = 1.0
#: Seconds between two looks at members who have not come.
_LOOK = 0.2


class Squad(ABC):
    """The processes of a gang, as an engine starts and ends them."""

    host = "127.0.0.1"
    """The address at which members reach this process."""

    @abstractmethod
    def start(self, call: Call) -> None:
        """Start a process for each member, which calls `serve`."""

    @abstractmethod
    def missing(self) -> str | None:
        """Say why a member will never come, if that is known."""

    @abstractmethod
    def stop(self) -> None:
        """End all processes that still run."""

    def fetch(self, number: int) -> Message:
        """Give the message of a shard, where members ask for them."""
        raise NotImplementedError("members have their shards")


@dataclass(frozen=True, slots=True)
class _News:
    rank: int
    kind: Kind | None
    """None when the connection is gone."""
    message: Any = None


class _Death(Exception):  # noqa: N818  (never leaves this file)
    """A member is gone, and all begin again if they may."""


class RunningGang(Gang):
    """Members that are being looked after by a thread."""

    def __init__(
        self, squad: Squad, function: Callable[[Member], Any], size: int, *, shards: int | None, restarts: int
    ) -> None:
        self._squad, self._restarts = squad, restarts
        name = named(function)
        self._call = Call(shipped(function, name), name, size, 0, ("", 0), b"", shards)
        self._reports: SimpleQueue[tuple[int, Any] | None] = SimpleQueue()
        self._outcome: list[Any] | BaseException | None = None
        self._ended, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="shoal-gang", daemon=True)
        self._thread.start()
        ends_with_program(self)

    def results(self) -> list[Any]:
        """Wait for all members."""
        self._ended.wait()
        if isinstance(self._outcome, list):
            return self._outcome
        assert self._outcome is not None
        raise self._outcome

    def reports(self) -> Iterator[tuple[int, Any]]:
        """Give what members tell."""
        while (told := self._reports.get()) is not None:
            yield told
        self._reports.put(None)  # for whoever asks again

    def close(self) -> None:
        """End all members."""
        self._closing.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _watch(self) -> None:
        try:
            self._outcome = self._worked()
        except BaseException as error:
            self._outcome = error
        finally:
            self._ended.set()
            self._reports.put(None)

    def _worked(self) -> list[Any]:
        deaths = 0
        while True:
            attempt = _Attempt(self._squad, replace(self._call, attempt=deaths), self._reports, self._closing)
            try:
                return attempt.results()
            except _Death as death:
                deaths += 1
                if deaths > self._restarts:
                    text = f"{self._call.name}: {death}; the gang began {deaths} times, and was given up"
                    raise WorkerDiedError(text) from None
            finally:
                attempt.close()


class _Attempt:
    """One beginning of a gang, and what came of it."""

    def __init__(
        self, squad: Squad, call: Call, reports: SimpleQueue[tuple[int, Any] | None], closing: threading.Event
    ) -> None:
        self._squad, self._reports, self._closing = squad, reports, closing
        self._news: SimpleQueue[_News] = SimpleQueue()
        self._wires: dict[int, Wire] = {}
        self._brought: dict[int, bytearray] = {}
        self._results: dict[int, Any] = {}
        self._over = False
        self._door = Door(squad.host, call.size, self._attend)
        self._call = replace(call, address=self._door.address, token=self._door.token)

    def results(self) -> list[Any]:
        """Start the members, and wait until all have returned."""
        self._squad.start(self._call)
        late = time.monotonic() + _MUSTER
        while len(self._results) < self._call.size:
            news = self._next()
            if news is not None:
                self._hear(news)
            elif len(self._wires) < self._call.size:
                self._look_for_others(late)
        return [self._results[rank] for rank in range(self._call.size)]

    def close(self) -> None:
        """End everybody, and leave nothing open."""
        self._over = True
        self._door.close()
        for wire in list(self._wires.values()):
            wire.close()
        self._squad.stop()

    def _next(self, seconds: float = _LOOK) -> _News | None:
        if self._closing.is_set():
            raise StateError(f"{self._call.name}: the gang was closed before its members were done")
        with suppress(queue.Empty):
            return self._news.get(timeout=seconds)
        return None

    def _hear(self, news: _News) -> None:
        match news.kind:
            case Kind.GATHER:
                self._brought[news.rank] = news.message
            case Kind.REPORT:
                self._reports.put((news.rank, unpack(news.message)))
            case Kind.SHARD:
                self._send(news.rank, Kind.SHARD, self._shard(unpack(news.message)))
            case Kind.RESULT:
                self._results[news.rank] = unpack(news.message)
            case Kind.ERROR | None if news.rank not in self._results:
                self._mourn(news)
        if self._brought:
            self._deal_out()

    def _deal_out(self) -> None:
        """Answer those who gather, when all are there."""
        if len(self._brought) == self._call.size:
            together = joined([self._brought[rank] for rank in range(self._call.size)])
            self._brought.clear()
            for rank in self._wires:
                self._send(rank, Kind.GATHER, together)
        elif left := set(self._results) - set(self._brought):
            waiting, gone = min(self._brought), min(left)
            text = f"rank {waiting} waits in all_gather for rank {gone}, which has returned already"
            raise PlanError(f"{self._call.name}: {text}; every member has to call it equally often")

    def _shard(self, number: int) -> Message:
        try:
            return self._squad.fetch(number)
        except Exception as error:  # whatever went wrong with the shard is for who wants it
            return pack(Caught.of(error))

    def _send(self, rank: int, kind: Kind, message: Message) -> None:
        assert not isinstance(message, Loose)  # the engines that have those do not send them from here
        whole = joined(message) if isinstance(message, list) else message
        with suppress(Lost):  # that is news of its own
            self._wires[rank].send_packed(kind, whole)

    def _mourn(self, first: _News) -> None:
        """Find out what went wrong first: an error may be only of somebody who waited for another one."""
        bad, until = [first], time.monotonic() + _GRACE
        while (left := until - time.monotonic()) > 0 and all(news.kind for news in bad):
            news = self._next(left)
            if news is None or news.rank in {other.rank for other in bad}:
                continue  # who told of an error hangs up after that
            if news.kind in (Kind.ERROR, None):
                bad.append(news)
            elif news.kind is not Kind.GATHER:
                self._hear(news)
        dead = next((news.rank for news in bad if news.kind is None), None)
        if dead is not None:
            raise _Death(f"the worker of rank {dead} died")
        told = [(unpack(news.message), news.rank) for news in bad]
        (_, caught), rank = min(told, key=_when)
        where = f"in {self._call.name}, rank {rank} of {self._call.size}, in a worker"
        raise replace(caught, where=where).revived()

    def _look_for_others(self, late: float) -> None:
        why = self._squad.missing()
        if why is not None:
            raise _Death(why)
        if time.monotonic() > late:
            have = f"{len(self._wires)} of {self._call.size} workers came within {_MUSTER:g} seconds"
            raise ShoalError(f"{self._call.name}: only {have}")

    def _attend(self, wire: Wire) -> None:
        rank: int | None = None
        try:
            rank = int(wire.value(Kind.JOIN))
            if self._over or rank in self._wires:
                return  # an engine started it again, by itself
            self._wires[rank] = wire
            while True:
                self._news.put(_News(rank, *wire.receive()))
        except Lost:
            if rank is not None:
                self._news.put(_News(rank, None))
        finally:
            wire.close()


def _when(told: tuple[tuple[float, Caught], int]) -> float:
    return told[0][0]
