"""Time that goes wrong: a wall clock that jumps, and a rank that lags."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar
from unittest import mock

from shoal.testing.faults._drawing import drawn, noted

__all__ = ["Clock", "clock_jumps", "lagging"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Clock:
    """A wall clock that is wrong; how wrong follows from the seed and the time since it began.

    >>> clock = Clock(seed=7, by=3600, every=1.0)
    >>> clock.error(0.5) == clock.error(0.9) != clock.error(1.1)
    True
    >>> abs(clock.error(5.0)) <= 3600
    True
    """

    seed: int
    by: float
    """Seconds by which it is wrong at most, in either direction."""
    every: float
    """Seconds between two jumps."""
    begun: float = field(default_factory=time.monotonic)

    def error(self, seconds: float) -> float:
        """Tell by how much it is wrong, so long after it began."""
        return self.by * (2 * drawn(self.seed, "clock", int(seconds / self.every)) - 1)

    def now(self) -> float:
        """Tell by how much it is wrong now."""
        return self.error(time.monotonic() - self.begun)

    def __str__(self) -> str:
        return f"seed {self.seed}, a clock that jumps by up to {self.by:g} s every {self.every:g} s"


@contextlib.contextmanager
def clock_jumps(seed: int = 0, *, by: float = 86400.0, every: float = 0.1) -> Iterator[Clock]:
    """Let the wall clock of this process jump to and fro, for the length of a block.

    It is that of Python, `time.time` and `time.time_ns`, as whoever calls them by these names sees it; the clocks of
    the system, of files and of other processes stay right, so each disagrees with the others, as on a host whose clock
    was set. Time that must not jump is `time.monotonic`, which is left alone.

    >>> import time
    >>> with clock_jumps(seed=7, by=86400) as clock:
    ...     error = abs(time.time() - clock.now() - time.clock_gettime(time.CLOCK_REALTIME))
    >>> error < 86400 * 2
    True
    """
    clock, seconds, nanoseconds = Clock(seed, by, every), time.time, time.time_ns
    wrong = mock.patch.multiple(
        time,
        time=lambda: seconds() + clock.now(),
        time_ns=lambda: nanoseconds() + int(clock.now() * 1e9),
    )
    with noted(lambda: str(clock)), wrong:
        yield clock


def lagging(items: Iterable[T], seed: int = 0, *, seconds: float = 0.1, every: int = 3) -> Iterator[T]:
    """Go through batches, or anything else, and fall behind: about one in so many is waited with, up to so long.

    >>> list(lagging(range(5), seed=7, seconds=0.01))
    [0, 1, 2, 3, 4]
    """
    for number, item in enumerate(items):
        if drawn(seed, "lags", number) * every < 1:
            time.sleep(seconds * drawn(seed, "lag", number))
        yield item
