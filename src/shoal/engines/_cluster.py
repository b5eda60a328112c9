"""What the engines that run elsewhere have in common: shards are fetched a few at a time, and streams run here."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from shoal.abc import Engine, Gang, Handle, Member, Resources, Step, Stream
from shoal.engines._gang import RunningGang, Squad
from shoal.engines._message import Message
from shoal.engines._task import opened
from shoal.engines.local._engine import begun

__all__ = ["ClusterEngine"]


class ClusterEngine(Engine):
    """An engine whose workers are other processes, on this machine or others."""

    started_here: bool
    """Whether it ends with us; one that was there before is left running."""
    ahead = 8
    """Shards that are fetched at once."""

    @property
    def here(self) -> str:
        """The address at which workers reach this process."""
        return "127.0.0.1"

    def gather(self, handle: Handle, numbers: Iterable[int] | None = None) -> Iterator[Any]:
        """Fetch shards, a few at a time."""
        chosen = list(range(len(handle)) if numbers is None else numbers)
        for low in range(0, len(chosen), self.ahead):
            yield from map(opened, self._fetched(handle, chosen[low : low + self.ahead]))

    def stream(self, steps: Sequence[Step], *, memory: int, ahead: int = 1) -> Stream[Any, Any]:
        """Run streams here: what feeds a trainer runs beside it."""
        return begun(steps, memory, ahead)

    def gang(
        self,
        function: Callable[[Member], Any],
        size: int,
        *,
        shards: Handle | None = None,
        resources: Resources | None = None,
        restarts: int = 3,
    ) -> Gang:
        """Start members where the cluster has room for all of them; shards go to them without a trip through here."""
        squad = self._squad(size, resources or Resources(), shards)
        squad.host = self.here
        return RunningGang(squad, function, size, shards=None, restarts=restarts)

    @abstractmethod
    def _squad(self, size: int, resources: Resources, shards: Handle | None) -> Squad:
        """Say how members are started, or that there is no room for so many."""

    @abstractmethod
    def _fetched(self, handle: Handle, numbers: Sequence[int]) -> Sequence[Message]:
        """Fetch the messages of some shards."""
