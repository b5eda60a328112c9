"""Process groups: how the ranks of one training agree on when an epoch ends."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod

from shoal import registry

__all__ = ["Group", "current_group", "current_worker"]


class Group(ABC):
    """Ranks that run the same program.

    >>> class Alone(Group):
    ...     rank, world_size = 0, 1
    ...     def highest(self, number):
    ...         return number
    >>> Alone().highest(3)
    3
    """

    rank: int
    world_size: int

    @abstractmethod
    def highest(self, number: int) -> int:
        """Give the largest of all ranks' numbers; every rank has to ask."""


def current_group() -> Group | None:
    """Find the process group that this process is in, if a framework that has been imported started one.

    >>> current_group() is None
    True
    """
    if "torch" not in sys.modules:
        return None
    found: Group | None = registry.load("group", "torch")()
    return found


def current_worker() -> tuple[int, int]:
    """Tell which worker process of a framework's own loader this is, and of how many.

    >>> current_worker()
    (0, 1)
    """
    if "torch.utils.data" not in sys.modules:
        return 0, 1
    found: tuple[int, int] = registry.load("worker", "torch")()
    return found
