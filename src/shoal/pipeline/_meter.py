"""Counts what a run does as it goes, for its statistics."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shoal.abc import PoolReading, Stream
from shoal.pipeline._parcel import Parcel, Spent
from shoal.pipeline.statistics import StageStatistics, Statistics

__all__ = ["CALLER", "Meter"]

#: In the place of a stream: whoever asks for samples, and does something for that.
CALLER = -1


@dataclass(slots=True)
class Meter:
    """Collects what the statistics of a run are made of.

    >>> meter = Meter()
    >>> meter.samples += 3
    >>> meter.end()
    >>> meter.statistics().samples
    3
    """

    begun: float = field(default_factory=time.perf_counter)
    samples: int = 0
    bytes: int = 0
    waited: float = 0.0
    skipped: int = 0
    ended: float | None = None
    elsewhere: Callable[[], Sequence[StageStatistics]] = tuple
    """Tells of stages that are done for this run by others."""
    _cpu: float = field(default_factory=time.process_time)
    _load: float = 0.0
    _streams: list[Stream[Any, Any]] = field(default_factory=list)
    _last: list[Sequence[PoolReading]] = field(default_factory=list)
    _before: dict[int, Sequence[PoolReading]] = field(default_factory=dict)
    _spent: dict[tuple[int, int, str], list[float]] = field(default_factory=dict)

    def watch(self, stream: Stream[Any, Any], number: int | None = None) -> int:
        """Count what a stream does; gives its number. It may go on where one that has ended left off."""
        if number is None:
            self._streams.append(stream)
            return len(self._streams) - 1
        self._before[number] = self._reading(number)
        self._streams[number] = stream
        return number

    def received(self, number: int) -> Parcel:
        """Wait for the next parcel of a stream, and count the time of that and what was done with it."""
        begun = time.perf_counter()
        parcel: Parcel = self._streams[number].get()
        self.waited += time.perf_counter() - begun
        self.add(number, parcel.spent)
        return parcel

    def add(self, stream: int, spent: Sequence[Spent]) -> None:
        """Add what was done with a parcel of a stream, or by the `CALLER`, who waits for it."""
        for step, name, seconds, samples in spent:
            self.waited += seconds if stream == CALLER else 0.0
            sums = self._spent.setdefault((stream, step, name), [0.0, 0])
            sums[0] += seconds
            sums[1] += samples

    def end(self) -> None:
        """Stop the clock, and remember how the workers were doing."""
        if self.ended is None:
            self._last = self._readings()
            self._load = os.getloadavg()[0]
            self.ended = time.perf_counter()
            self._cpu = (time.process_time() - self._cpu) / max(self.ended - self.begun, 1e-9)

    def statistics(self) -> Statistics:
        """Read the meter."""
        now = self.ended or time.perf_counter()
        elapsed = max(now - self.begun, 1e-9)
        readings = self._last if self.ended else self._readings()
        cpu = self._cpu if self.ended else (time.process_time() - self._cpu) / elapsed
        spent = dict(self._spent)  # another thread may be adding to it
        stages = [
            self._stage(name, seconds, int(samples), readings, (stream, step), elapsed)
            for (stream, step, name), (seconds, samples) in [*spent.items(), *_crossings(spent, readings)]
        ]
        stages += self.elsewhere()
        waiting = min(self.waited / elapsed, 1.0)
        load = self._load if self.ended else os.getloadavg()[0]
        return Statistics(elapsed, self.samples, self.bytes, waiting, self.skipped, cpu, tuple(stages), load)

    def _readings(self) -> list[Sequence[PoolReading]]:
        return [self._reading(number) for number in range(len(self._streams))]

    def _reading(self, number: int) -> Sequence[PoolReading]:
        """Tell how the steps of a stream are doing, with what was done before by those it goes on from."""
        now = self._streams[number].readings()
        pairs = zip(self._before.get(number, ()), now, strict=False)
        return [
            replace(b, done=a.done + b.done, busy=a.busy + b.busy, deaths=a.deaths + b.deaths) for a, b in pairs
        ] or now

    def _stage(
        self,
        name: str,
        seconds: float,
        samples: int,
        readings: list[Sequence[PoolReading]],
        at: tuple[int, int],
        elapsed: float,
    ) -> StageStatistics:
        stream, step = at
        pool = PoolReading("", "caller", 1, 0, 0, 0.0) if stream == CALLER else readings[stream][step]
        number = CALLER if stream == CALLER else sum(map(len, readings[:stream])) + step
        rate, busy = samples / elapsed, min(seconds / (elapsed * max(pool.workers, 1)), 1.0)
        queue = min(pool.waiting / max(2 * pool.workers, 1), 1.0)
        return StageStatistics(name, pool.mode, pool.workers, samples, rate, seconds, busy, queue, pool.deaths, number)


def _crossings(
    spent: Mapping[tuple[int, int, str], list[float]], readings: list[Sequence[PoolReading]]
) -> Iterator[tuple[tuple[int, int, str], list[float]]]:
    """Say what of the time of processes went into sending samples there and back, and starting them."""
    for stream, pools in enumerate(readings):
        for step, pool in enumerate(pools):
            own = [sums for (*at, _), sums in spent.items() if at == [stream, step]]
            if pool.mode == "process" and own:
                yield (stream, step, "to and from processes"), [pool.busy - sum(s[0] for s in own), own[0][1]]
