"""How a run is doing: rates, how busy each stage is, what holds it up, and what would help."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from shoal import settings

__all__ = ["StageStatistics", "Statistics"]

#: A consumer that waits for less than this share of the time is itself what takes the time.
_PATIENT = 0.1
_BUSY = 0.7
#: How steps are called that take samples to a device and back, by a thread of their own.
_MOVES = ("to ", "from ")


@dataclass(frozen=True, slots=True)
class StageStatistics:
    """One stage of a run.

    >>> import shoal
    >>> run = shoal.from_arrays({"x": range(3)}).map(lambda sample: sample).run()
    >>> len(list(run)), any("map" in stage.name for stage in run.statistics().stages)
    (3, True)
    """

    name: str
    mode: str
    """``"thread"``, ``"process"``, ``"caller"``: done by whoever asks for samples, or ``"feeder"``: on other hosts."""
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
        stage, processors = self._slowest(), settings.processors()
        if stage.mode == "feeder":
            return f"the feeders are behind, most of all with {stage.name}: add feeders, or give them more workers"
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
        if stage.name.startswith(_MOVES):
            return (
                f"samples go {stage.name} one after the other: batch them before, or send smaller types, such as uint8"
            )
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
