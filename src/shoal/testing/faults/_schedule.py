"""When which fault comes: plain data, made of one number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from shoal.errors import PlanError
from shoal.testing.faults._drawing import drawn, drawn_below

__all__ = ["Event", "Schedule"]

_KINDS = ("kill", "stop")
_MANY = 10**6


@dataclass(frozen=True, slots=True)
class Event:
    """One fault of a schedule.

    >>> print(Event(0.5, "stop", target=3, seconds=0.2))
    stop of 3 at 0.50 s for 0.20 s
    """

    at: float
    """Seconds after the beginning."""
    kind: str
    """``"kill"`` (SIGKILL) or ``"stop"`` (SIGSTOP, and SIGCONT after some time)."""
    target: int
    """Who: a large number, taken modulo the number of those there are at the time."""
    seconds: float = 0.0
    """How long a stop lasts."""

    def __str__(self) -> str:
        return f"{self.kind} of {self.target} at {self.at:.2f} s" + f" for {self.seconds:.2f} s" * bool(self.seconds)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When whom which fault meets; it follows from the seed and the other numbers, and from nothing else.

    >>> schedule = Schedule(seed=7, every=0.5, kinds=("kill", "stop"))
    >>> schedule.events(3) == Schedule(seed=7, every=0.5, kinds=("kill", "stop")).events(3)
    True
    >>> [event.at for event in Schedule(seed=1, every=0.5, jitter=0).events(3)]
    [0.5, 1.0, 1.5]
    """

    seed: int = 0
    every: float = 0.5
    """Seconds between two faults."""
    kinds: tuple[str, ...] = ("kill",)
    count: int | None = None
    """How many there are; as many as come until the end, by default."""
    seconds: float = 0.5
    """How long a stop lasts."""
    jitter: float = 0.5
    """The share of the time between two faults by which one may come early."""

    def __post_init__(self) -> None:
        if unknown := sorted({*self.kinds} - {*_KINDS}):
            raise PlanError(f"faults of the kind {unknown[0]!r} are not known; known are {', '.join(_KINDS)}")
        if not self.kinds or self.every <= 0 or not 0 <= self.jitter <= 1:
            raise PlanError(f"{self} makes no sense: it needs kinds, every > 0, and jitter from 0 to 1")

    def __iter__(self) -> Iterator[Event]:
        for number in range(_MANY if self.count is None else self.count):
            early = self.jitter * drawn(self.seed, "at", number)
            kind = self.kinds[drawn_below(len(self.kinds), self.seed, "kind", number)]
            target = drawn_below(_MANY, self.seed, "target", number)
            yield Event((number + 1 - early) * self.every, kind, target, self.seconds if kind == "stop" else 0.0)

    def events(self, count: int) -> Sequence[Event]:
        """Give the first so many."""
        return tuple(islice(self, count))
