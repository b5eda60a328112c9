"""Who does the work of a plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Engine", "Stream"]

In = TypeVar("In")
Out = TypeVar("Out")


class Stream(ABC, Generic[In, Out]):
    """Work that goes in as blocks and comes out in the same order, some of it being done meanwhile."""

    capacity: int
    """Blocks that may be under way at once; more would only wait."""

    @abstractmethod
    def __len__(self) -> int:
        """Count the blocks that were put in and did not come out yet."""

    @abstractmethod
    def put(self, block: In) -> None:
        """Hand over a block."""

    @abstractmethod
    def get(self) -> Out:
        """Wait for the oldest block and give what became of it, or raise what went wrong with it."""

    @abstractmethod
    def close(self) -> None:
        """Give up what is under way and let go of all workers."""


class Engine(ABC):
    """Runs what a plan describes. The plan is data; nothing has been read when it arrives here."""

    @abstractmethod
    def stream(self, work: Callable[[In], Out], *, workers: int | str) -> Stream[In, Out]:
        """Start a stream that does ``work`` on blocks, ``workers`` of them at a time; 0 does it while one waits."""
