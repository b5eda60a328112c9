"""How many feeders there should be, by how long trainers wait. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shoal.errors import PlanError

__all__ = ["Bounds", "Pressure", "bounds_of"]

#: Shares of their time that trainers wait: above the first more feeders are needed, below the second fewer might do.
_SHORT, _PLENTY = 0.1, 0.01
#: Readings in a row that say so before something is done; to give a feeder up takes more of them.
_SOON, _LATER = 2, 15


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the most feeders."""

    least: int
    most: int


def bounds_of(feeders: int | tuple[int, int]) -> Bounds:
    """Take a number of feeders, or the least and the most.

    >>> bounds_of((2, 8)), bounds_of(3)
    (Bounds(least=2, most=8), Bounds(least=3, most=3))
    """
    least, most = feeders if isinstance(feeders, tuple) else (feeders, feeders)
    if not 1 <= least <= most:
        raise PlanError(f"feeders={feeders!r}; it is a number, or the least and the most of them, such as (2, 8)")
    return Bounds(least, most)


@dataclass(frozen=True, slots=True)
class Pressure:
    """What the last readings said, and how many feeders there should be now.

    >>> now = Pressure(2)
    >>> for _ in range(2):
    ...     now = now.after({"a": 0.5, "b": 0.3}, Bounds(1, 8))
    >>> now.wanted
    3
    """

    wanted: int
    short: int = 0
    """Readings in a row in which trainers waited."""
    plenty: int = 0
    """Readings in a row in which they did not."""

    def after(self, waiting: Mapping[str, float], bounds: Bounds) -> Pressure:
        """Take another reading: the share of its time that each trainer waits."""
        if not waiting:
            return replace(self, short=0, plenty=0)  # nobody is being fed
        worst = max(waiting.values())
        short = self.short + 1 if worst > _SHORT else 0
        plenty = self.plenty + 1 if worst < _PLENTY else 0
        if short >= _SOON:
            # So many more that the time they make up for is about that which is waited now.
            more = max(round(self.wanted * min(worst, 0.5)), 1)
            return Pressure(min(self.wanted + more, bounds.most))
        if plenty >= _LATER:
            return Pressure(max(self.wanted - 1, bounds.least))
        return Pressure(self.wanted, short, plenty)
