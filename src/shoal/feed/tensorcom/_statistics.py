"""How many messages, and how many bytes, in which time."""

from __future__ import annotations

import sys
import time
from collections import deque

__all__ = ["Reports", "Statistics"]


class Statistics:
    """Counts numbers, adds them up, and tells how fast they came: all of them, and the last ``horizon``.

    >>> figures = Statistics()
    >>> figures.add(1000)
    >>> figures.add(3000)
    >>> figures.count, figures.total
    (2, 4000)
    """

    def __init__(self, horizon: int = 1000) -> None:
        self.horizon = horizon
        self.reset()

    def reset(self) -> None:
        """Begin anew, now."""
        self.start = self.last = time.monotonic()
        self.count = 0
        self.total = 0
        self.recent: deque[tuple[float, int]] = deque(maxlen=self.horizon)

    def add(self, size: int) -> None:
        """Take note of a message and of how large it was."""
        self.last = time.monotonic()
        self.count += 1
        self.total += size
        self.recent.append((self.last, size))

    def rate(self) -> float:
        """Give messages a second, since the beginning."""
        return _over(self.count, self.last - self.start)

    def throughput(self) -> float:
        """Give bytes a second, since the beginning."""
        return _over(self.total, self.last - self.start)

    def recent_rate(self) -> float:
        """Give messages a second, between the first and the last of the recent ones."""
        return _over(len(self.recent) - 1, self._span())

    def recent_throughput(self) -> float:
        """Give bytes a second, of what came after the first of the recent ones."""
        return _over(sum(size for _, size in self.recent) - (self.recent[0][1] if self.recent else 0), self._span())

    def summary(self) -> str:
        """Say how fast the recent ones came.

        >>> Statistics().summary()
        'rate 0.000000 msg/s throughput 0.00e+00 bytes/s'
        """
        return f"rate {self.recent_rate():f} msg/s throughput {self.recent_throughput():.2e} bytes/s"

    def _span(self) -> float:
        return self.recent[-1][0] - self.recent[0][0] if self.recent else 0.0


class Reports:
    """Says on standard error how things are going, whenever another so many samples have come."""

    def __init__(self, figures: Statistics, every: int) -> None:
        self._figures, self._every = figures, every
        self._count, self._next = 0, every

    def add(self, samples: int) -> None:
        """Take note of samples."""
        self._count += samples
        if self._every > 0 and self._next <= self._count:
            self._next = (self._count // self._every + 1) * self._every
            sys.stderr.write(f"count {self._count} {self._figures.summary()}\n")


def _over(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0
