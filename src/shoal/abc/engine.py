"""Who runs a plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from shoal.abc.source import Block, Sample

__all__ = ["Engine"]


class Engine(ABC):
    """Runs what a plan describes. The plan is data; nothing has been read when it arrives here."""

    @abstractmethod
    def stream(
        self, blocks: Iterable[Block], stages: Sequence[Any], *, workers: int | str, views: bool = False
    ) -> Iterator[Sample]:
        """Send blocks through stages, ``workers`` of them at a time, and yield the samples in the blocks' order.

        Fields that are views into a shard become bytes before user code sees them, unless ``views`` are welcome.
        """
