"""What the engines that run elsewhere have in common: shards are fetched a few at a time, and streams run here."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from shoal import registry
from shoal.abc import Engine, Handle, Step, Stream
from shoal.engines._message import Message
from shoal.engines._task import opened

__all__ = ["ClusterEngine"]


class ClusterEngine(Engine):
    """An engine whose workers are other processes, on this machine or others."""

    started_here: bool
    """Whether it ends with us; one that was there before is left running."""
    ahead = 8
    """Shards that are fetched at once."""

    def gather(self, handle: Handle, numbers: Iterable[int] | None = None) -> Iterator[Any]:
        """Fetch shards, a few at a time."""
        chosen = list(range(len(handle)) if numbers is None else numbers)
        for low in range(0, len(chosen), self.ahead):
            yield from map(opened, self._fetched(handle, chosen[low : low + self.ahead]))

    def stream(self, steps: Sequence[Step], *, memory: int, ahead: int = 1) -> Stream[Any, Any]:
        """Run streams here: what feeds a trainer runs beside it."""
        stream: Stream[Any, Any] = registry.load("engine", "local")().stream(steps, memory=memory, ahead=ahead)
        return stream

    @abstractmethod
    def _fetched(self, handle: Handle, numbers: Sequence[int]) -> Sequence[Message]:
        """Fetch the messages of some shards."""
