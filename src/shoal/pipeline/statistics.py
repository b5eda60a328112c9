"""How a run is doing: rates, how busy each stage is, what holds it up, and what would help."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from shoal.abc import PoolReading, Stream

__all__ = ["Meter", "StageStatistics", "Statistics"]

#: A consumer that waits for less than this share of the time is itself what takes the time.
_PATIENT = 0.1
_BUSY = 0.7


@dataclass(frozen=True, slots=True)
class StageStatistics:
    """One stage of a run."""

    name: str
    mode: str
    """``"thread"``, ``"process"``, or ``"caller"``: done by whoever asks for samples."""
    workers: int
    """Those of its pool, which it may share with its neighbours."""
    samples: int
    samples_per_second: float
    seconds: float
    """The time that workers spent on it, added up."""
    busy: float
    """The share of the time of its pool's workers that it took."""
    queue: float
    """How full the queue before its pool is, from 0 to 1."""
    deaths: int = 0
    """Worker processes that died and were started anew."""
    pool: int = 0
    """Which pool does it: stages with the same number share their workers."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """A run since it began.

    >>> print(Statistics(2.0, 4000, 400_000_000, 0.3, 0, 1.9, ()).line())
    2,000 samples/s, 200 MB/s, waited for 30 % of the time; bottleneck: unknown
    """

    elapsed: float
    samples: int
    bytes: int
    """Of what was delivered."""
    waiting: float
    """The share of the time that the consumer waited for the run."""
    skipped: int
    processors: float
    """How many processors this process kept busy; worker processes not counted."""
    stages: tuple[StageStatistics, ...]
    load: float = 0.0
    """How many programs want to run on this machine, on the average of the last minute."""

    @property
    def samples_per_second(self) -> float:
        """Samples delivered a second."""
        return self.samples / self.elapsed if self.elapsed else 0.0

    @property
    def megabytes_per_second(self) -> float:
        """Millions of bytes delivered a second."""
        return self.bytes / self.elapsed / 1e6 if self.elapsed else 0.0

    @property
    def bottleneck(self) -> str:
        """The stage that holds the run up; ``"consumer"`` if the run is ahead of it, ``"unknown"`` before it began."""
        if not self.samples or not self.stages:
            return "unknown"
        return "consumer" if self.waiting < _PATIENT else self._slowest().name

    @property
    def advice(self) -> str:
        """What to change, in a sentence."""
        match self.bottleneck:
            case "unknown":
                return "nothing was delivered yet"
            case "consumer":
                return "the run is ahead of whoever uses its samples; fewer workers might do"
        stage, processors = self._slowest(), os.cpu_count() or 1
        if stage.mode == "caller":
            return f"{stage.name} is done by whoever asks for samples: give it workers"
        if self._pool_share(stage) < _BUSY:
            return f"no stage is busy all the time, {stage.name} most: storage or the network may be slow; more workers"
        if self.load > processors + 0.5 and self.processors < 0.8 * min(stage.workers, processors):
            return (
                f"other programs want the processors ({self.load:.1f} at a time); this run gets {self.processors:.1f}"
            )
        if stage.mode == "thread" and stage.workers > 1 and self.processors < 1.3:
            return f'{stage.name} holds the interpreter\'s lock ({self.processors:.1f} processors busy): mode="process"'
        if stage.workers >= processors:
            return f"all {processors} processors are at work: make {stage.name} cheaper, or give it more processors"
        return f"give {stage.name} more than {stage.workers} workers"

    def line(self) -> str:
        """Say it in one line."""
        rates = f"{self.samples_per_second:,.0f} samples/s, {self.megabytes_per_second:,.0f} MB/s"
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{rates}{skipped}, waited for {self.waiting:.0%} of the time; bottleneck: {self.bottleneck}".replace(
            "%", " %"
        )

    def __str__(self) -> str:
        head = ("stage", "workers", "samples/s", "busy", "queue")
        rows = [
            (s.name, f"{s.workers} {s.mode}", f"{s.samples_per_second:,.0f}", f"{s.busy:.0%}", f"{s.queue:.0%}")
            for s in self.stages
        ]
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(t.rjust(w) for t, w in zip(row[1:], widths[1:], strict=True))])
            for row in (head, *rows)
        ]
        return "\n".join([self.line(), *lines, self.advice])

    def json(self) -> str:
        """Give everything as one line of JSON."""
        more = {name: getattr(self, name) for name in _DERIVED}
        return json.dumps({**asdict(self), **more})

    def prometheus(self, **labels: str) -> str:
        """Give everything in Prometheus' text format; further labels go to every line."""
        return "\n".join([*self._exposition(labels), ""])

    def _exposition(self, labels: dict[str, str]) -> Iterator[str]:
        for name, kind, text in _METRICS:
            yield f"# HELP shoal_{name} {text}"
            yield f"# TYPE shoal_{name} {kind}"
            yield f"shoal_{name}{_labels(labels)} {getattr(self, name.removesuffix('_total'))}"
        for name, kind, text in _STAGE_METRICS:
            yield f"# HELP shoal_stage_{name} {text}"
            yield f"# TYPE shoal_stage_{name} {kind}"
            for stage in self.stages:
                value = getattr(stage, name.removesuffix("_total"))
                own = {"stage": stage.name, "mode": stage.mode, "pool": str(stage.pool)}
                yield f"shoal_stage_{name}{_labels({**labels, **own})} {value}"

    def _slowest(self) -> StageStatistics:
        """Find the busiest stage of the busiest pool."""
        return max(self.stages, key=lambda stage: (round(self._pool_share(stage), 2), stage.seconds))

    def _pool_share(self, stage: StageStatistics) -> float:
        """Say which share of their time the workers of a stage are busy, with it or its neighbours."""
        return sum(other.busy for other in self.stages if other.pool == stage.pool)


_DERIVED = ("samples_per_second", "megabytes_per_second", "bottleneck", "advice")
_METRICS = (
    ("samples_total", "counter", "Samples delivered."),
    ("bytes_total", "counter", "Bytes delivered."),
    ("skipped_total", "counter", "Samples skipped."),
    ("elapsed", "gauge", "Seconds since the run began."),
    ("waiting", "gauge", "Share of the time that the consumer waited."),
    ("samples_per_second", "gauge", "Samples delivered a second."),
)
_STAGE_METRICS = (
    ("samples_total", "counter", "Samples treated."),
    ("seconds_total", "counter", "Seconds of work."),
    ("workers", "gauge", "Workers of the pool."),
    ("busy", "gauge", "Share of the pool's time."),
    ("queue", "gauge", "How full the queue before the pool is."),
    ("deaths_total", "counter", "Worker processes that were started anew."),
)


def _labels(labels: dict[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass(slots=True)
class Meter:
    """Collects what the statistics of a run are made of."""

    begun: float = field(default_factory=time.perf_counter)
    samples: int = 0
    bytes: int = 0
    waited: float = 0.0
    skipped: int = 0
    ended: float | None = None
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

    def add(self, stream: int, spent: Sequence[tuple[int, str, float, int]]) -> None:
        """Add what was done with a parcel of a stream; -1 is whoever asks for samples, and waits for it."""
        for step, name, seconds, samples in spent:
            self.waited += seconds if stream < 0 else 0.0
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
        pool = PoolReading("", "caller", 1, 0, 0, 0.0) if stream < 0 else readings[stream][step]
        number = -1 if stream < 0 else sum(map(len, readings[:stream])) + step
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
