"""The workers of one step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Semaphore, Thread
from typing import Any, Protocol

from shoal.abc import PoolReading, Step
from shoal.errors import WorkerDiedError

__all__ = ["Crew", "Elsewhere", "Load"]


class Load:
    """A parcel on its way, and a gate that opens when it has come to its end."""

    __slots__ = ("arrived", "error", "gate", "nbytes", "parcel")

    def __init__(self, parcel: Any, gate: Lock) -> None:
        self.parcel, self.gate = parcel, gate
        self.error: BaseException | None = None
        self.nbytes: int | None = None
        """What it weighs after the last step that it has passed; the next one may make more of it."""
        self.arrived = False

    def arrive(self) -> None:
        """Open the gate; it may be open already, because the stream was closed."""
        self.arrived = True
        with suppress(RuntimeError):
            self.gate.release()


class Elsewhere(Protocol):
    """Does a step in another process, one call at a time."""

    deaths: int
    """How many processes died in a call."""

    def __call__(self, item: Any) -> Any:
        """Do it, and raise what it raises."""

    @property
    def pid(self) -> int | None:
        """The process, if there is one on this machine."""

    def close(self) -> None:
        """End the process at once, also in the middle of a call."""


class Crew:
    """Threads that do a step on what comes into their inbox; each has a process of its own if the step wants that."""

    def __init__(self, step: Step, elsewhere: Callable[[Step], Elsewhere] | None = None) -> None:
        self.step, self.elsewhere = step, elsewhere or _process
        self.least, self.most = (max(number, 1) for number in step.pool.bounds)
        self.inbox: SimpleQueue[Load | None] = SimpleQueue()
        self.following: Crew | None = None
        self.stopping = False
        self.room = None if step.room is None else Semaphore(step.room)
        """Counts how many more parcels may wait behind this step."""
        self.room_before: Semaphore | None = None
        """That of the step before, of which each parcel comes that is taken here."""
        self._past = [0, 0.0, 0]  # parcels, seconds and deaths of workers that have left
        self._busy_before = 0.0
        self._leaving = 0  # workers that were sent home, and are not seen to have gone yet
        self.workers: list[_Worker] = []

    def begin(self) -> None:
        """Take on the workers that there are at least."""
        for _ in range(self.least):
            self.grow()

    def grow(self) -> None:
        """Take on a worker."""
        self.workers.append(_Worker(self))

    def adapt(self, elapsed: float, *, short: bool) -> None:
        """Take on a worker if parcels queue up while the consumer waits; let one go if more than one rests."""
        if self.least == self.most:
            return
        self._strike_off()
        reading = self.reading()
        staying = reading.workers - self._leaving
        busy, self._busy_before = reading.busy - self._busy_before, reading.busy
        if short and reading.waiting >= reading.workers and reading.workers < self.most:
            self.grow()
        elif staying > self.least and busy < (staying - 1.5) * elapsed:
            self._leaving += 1
            self.inbox.put(None)  # whoever comes next to it goes home

    def reading(self) -> PoolReading:
        """Tell how the crew is doing."""
        records = zip(self._past, *(worker.record() for worker in self.workers), strict=True)
        done, busy, deaths = (sum(numbers) for numbers in records)
        pool, waiting = self.step.pool, max(self.inbox.qsize() - self._leaving, 0)
        return PoolReading(self.step.name, pool.mode, len(self.workers), waiting, int(done), busy, int(deaths))

    def take(self) -> Load | None:
        """Wait for a parcel, and before that for room behind this step; None is the sign to go home."""
        if self.room is not None:
            self.room.acquire()
        load = self.inbox.get()
        _release(self.room if load is None else self.room_before)
        return load

    def hand_on(self, load: Load) -> None:
        """Pass a parcel to the next step, or to the one who waits for it."""
        if load.error is not None or self.following is None:
            _release(self.room)
            load.arrive()
        elif not self.stopping:
            self.following.inbox.put(load)

    def stop(self) -> None:
        """Send everybody home; processes at once."""
        self.stopping = True
        for _ in self.workers:
            self.inbox.put(None)
            _release(self.room)
        for worker in self.workers:
            worker.end_process()

    def join(self, deadline: float) -> None:
        """Wait for the threads until then; one that is held up in somebody's code goes when that lets it."""
        for worker in self.workers:
            if worker.thread is not threading.current_thread():
                worker.thread.join(max(deadline - time.perf_counter(), 0))
        with suppress(Empty):
            while True:
                self.inbox.get_nowait()  # who keeps a run that has ended, keeps no samples
        for _ in self.workers:
            self.inbox.put(None)

    def _strike_off(self) -> None:
        """Take those who have gone off the list, and remember what they did."""
        self.workers, gone = _parted(self.workers)
        self._leaving = max(self._leaving - len(gone), 0)
        for worker in gone:
            self._past = [a + b for a, b in zip(self._past, worker.record(), strict=True)]


class _Worker:
    """One thread of a crew."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._remote = crew.elsewhere(crew.step) if crew.step.pool.mode == "process" else None
        self._call: Callable[[Any], Any] = crew.step.work if self._remote is None else self._remote
        self.load: Load | None = None
        self.since = 0.0
        self._done, self._busy = 0, 0.0
        self.thread = Thread(target=self._serve, name=f"shoal-{crew.step.name}", daemon=True)
        self.thread.start()

    @property
    def process(self) -> str:
        """Name the process, if there is one, for a message."""
        pid = None if self._remote is None else self._remote.pid
        return "" if pid is None else f" (process {pid})"

    def record(self) -> tuple[int, float, int]:
        """Give the parcels done, the seconds worked and the processes lost; the one in hand counts as far as it is."""
        begun = self.since
        under_way = time.perf_counter() - begun if self.load is not None else 0.0
        return self._done, self._busy + under_way, 0 if self._remote is None else self._remote.deaths

    def end_process(self) -> None:
        """Let go of the process, whatever it does."""
        if self._remote is not None:
            self._remote.close()

    def _serve(self) -> None:
        try:
            while (load := self._crew.take()) is not None and not self._crew.stopping:
                self.since, self.load = time.perf_counter(), load
                load.parcel, load.nbytes, load.error = self._tried(load.parcel)
                self._busy, self.load = self._busy + time.perf_counter() - self.since, None
                self._done += 1
                self._crew.hand_on(load)
                del load  # not to be kept alive while waiting for the next
        finally:
            self.end_process()

    def _tried(self, parcel: Any) -> tuple[Any, int | None, BaseException | None]:
        """Do the step. An error refers to the calls it came through, so these must not know the load that keeps it."""
        try:
            treated = self._treated(parcel)
            return treated, treated.nbytes, None
        except BaseException as error:
            return parcel, None, error

    def _treated(self, parcel: Any) -> Any:
        rescue = self._crew.step.rescue
        try:
            return self._call(parcel)
        except WorkerDiedError as error:
            if rescue is None:
                raise
            return rescue(self._call, parcel, error)


def _release(room: Semaphore | None) -> None:
    if room is not None:
        room.release()


def _process(step: Step) -> Elsewhere:
    from shoal.engines.local._remote import Remote  # few runs have processes, and it takes a while to import

    return Remote(step.work, name=step.name)


def _parted(workers: list[_Worker]) -> tuple[list[_Worker], list[_Worker]]:
    here = [worker for worker in workers if worker.thread.is_alive()]
    return here, [worker for worker in workers if not worker.thread.is_alive()]
