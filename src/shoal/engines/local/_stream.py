"""Parcels through steps, in order, several at a time."""

from __future__ import annotations

import os
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from threading import Event, Lock, current_thread
from typing import Any

from shoal import settings
from shoal.abc import PoolReading, Step, Stream
from shoal.engines.local._crew import Crew, Elsewhere, Load
from shoal.errors import StallWarning, StateError

__all__ = ["CrewStream", "InlineStream"]

#: How long a stream that is closed waits for threads that are in the middle of something.
_PATIENCE = 1.0
_ADAPT_EVERY = 0.25


class InlineStream(Stream[Any, Any]):
    """Does the work when its result is asked for.

    >>> from types import SimpleNamespace as Parcel
    >>> from shoal.abc import Pool
    >>> stream = InlineStream([Step("double", lambda parcel: Parcel(value=2 * parcel.value), Pool(0))])
    >>> stream.put(Parcel(value=21))
    >>> stream.get().value
    42
    """

    capacity = 1

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._busy, self._done = [0.0] * len(steps), 0
        self._waiting: deque[Any] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        return len(self._waiting) >= self.capacity

    def put(self, parcel: Any) -> None:
        self._waiting.append(parcel)

    def get(self) -> Any:
        parcel = self._waiting.popleft()
        for number, step in enumerate(self._steps):
            begun = time.perf_counter()
            parcel = step.work(parcel)
            self._busy[number] += time.perf_counter() - begun
        self._done += 1
        return parcel

    def close(self) -> None:
        self._waiting.clear()

    def readings(self) -> Sequence[PoolReading]:
        rows = zip(self._steps, self._busy, strict=True)
        return [PoolReading(step.name, "caller", 1, len(self._waiting), self._done, busy) for step, busy in rows]


class CrewStream(Stream[Any, Any]):
    """Does each step by a crew of its own; parcels pass one another, and leave in order.

    >>> from types import SimpleNamespace as Parcel
    >>> from shoal.abc import Pool
    >>> stream = CrewStream([Step("double", lambda parcel: Parcel(n=2 * parcel.n, nbytes=8), Pool(2))], 2**20, 1)
    >>> stream.put(Parcel(n=21)); stream.put(Parcel(n=4))
    >>> stream.get().n, stream.get().n, len(stream)
    (42, 8, 0)
    >>> stream.close()
    """

    def __init__(
        self,
        steps: Sequence[Step],
        memory: int,
        ahead: int,
        elsewhere: Callable[[Step], Elsewhere] | None = None,
    ) -> None:
        self._crews = [Crew(step, elsewhere) for step in steps]
        for crew, following in zip(self._crews, self._crews[1:], strict=False):
            crew.following, following.room_before = following, crew.room
        self.capacity = max(2 * sum(crew.most for crew in self._crews) + 1, ahead)
        self._memory, self._stall = memory, settings.current().stall
        self._live: deque[Load] = deque()
        self._typical: int | None = None
        self._owner, self._closed = os.getpid(), False
        self._adapted, self._waited = time.perf_counter(), 0.0
        # When nobody holds the stream any more, or at the end of the program, if nobody has closed it before.
        self._end = weakref.finalize(self, _dismiss, self._crews, self._owner)
        try:
            for crew in self._crews:
                crew.begin()
        except BaseException:
            self._end()
            raise

    def __len__(self) -> int:
        return len(self._live)

    @property
    def full(self) -> bool:
        live = len(self._live)
        if live >= self.capacity:
            return True
        done = [load.nbytes or 0 for load in self._live if load.arrived]
        typical = max(done, default=self._typical)
        if typical is None:  # nobody knows yet how large they are: as many as can be worked on
            return live >= self._crews[0].most
        coming = [max(load.nbytes or 0, typical) for load in self._live if not load.arrived]
        return live > 0 and sum(done) + sum(coming) + typical > self._memory

    def put(self, parcel: Any) -> None:
        self._check()
        gate = Lock()
        gate.acquire()
        load = Load(parcel, gate)
        self._live.append(load)
        self._crews[0].inbox.put(load)

    def get(self) -> Any:
        self._check()
        load = self._live[0]
        begun = time.perf_counter()
        self._await(load)
        self._waited += time.perf_counter() - begun
        self._check()  # another thread may have closed the stream meanwhile
        self._live.popleft()
        if load.error is not None:
            try:
                raise load.error
            finally:
                del load  # or the error would keep itself alive, and this stream with it
        self._typical = load.nbytes or self._typical or 0
        self._adapt()
        return load.parcel

    def close(self) -> None:
        left = list(self._live)
        self._live.clear()
        self._closed = True
        self._end()
        for load in left:
            load.arrive()

    def readings(self) -> Sequence[PoolReading]:
        return [crew.reading() for crew in self._crews]

    def _check(self) -> None:
        if self._owner != os.getpid():
            raise StateError("this run belongs to the process that forked this one: begin a new one here")
        if not self._end.alive:
            if not self._closed and current_thread().daemon:
                Event().wait()  # the program has ended, and daemons do not live to tell
            raise StateError("this run has been closed")

    def _await(self, load: Load) -> None:
        silent = self._stall or -1
        if not load.gate.acquire(timeout=silent):
            warnings.warn(self._story(load), StallWarning, stacklevel=2)
            load.gate.acquire()

    def _story(self, load: Load) -> str:
        """Say what keeps the oldest parcel."""
        silence = f"nothing was delivered for {self._stall:g} s"
        for crew in self._crews:
            for number, worker in enumerate(crew.workers):
                if worker.load is load:
                    since = time.perf_counter() - worker.since
                    who = f"worker {number}{worker.process} of {crew.step.name}"
                    return f"{silence}: {who} has had {load.parcel.address} for {since:.0f} s"
        waiting = ", ".join(f"{crew.inbox.qsize()} for {crew.step.name}" for crew in self._crews)
        return f"{silence}: {load.parcel.address} waits for a free worker ({waiting})"

    def _adapt(self) -> None:
        """Let crews that may grow or shrink do so, by how much waits for them and how much they rest."""
        now = time.perf_counter()
        elapsed = now - self._adapted
        if elapsed < _ADAPT_EVERY:
            return
        short = self._waited > 0.05 * elapsed
        for crew in self._crews:
            crew.adapt(elapsed, short=short)
        self._adapted, self._waited = now, 0.0


def _dismiss(crews: Sequence[Crew], owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child has none of the threads, and the processes are its parent's
    for crew in crews:
        crew.stop()
    deadline = time.perf_counter() + _PATIENCE
    for crew in crews:
        crew.join(deadline)
