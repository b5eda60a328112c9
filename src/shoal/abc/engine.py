"""Who does the work: an engine holds collections of shards and runs functions over them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from shoal.abc.gang import Gang, Member, Resources
from shoal.abc.stream import Step, Stream

__all__ = ["Engine", "EngineInfo", "Handle", "SupportsFlow", "SupportsNative", "WorkerInfo"]


class Handle(ABC):
    """Shards that an engine holds, in their order; it lets go of them when nobody refers to this any more.

    >>> from shoal.engines import current
    >>> handle = current().scatter(["a", "b", "c"])
    >>> isinstance(handle, Handle), len(handle)
    (True, 3)
    """

    @abstractmethod
    def __len__(self) -> int:
        """Count them."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """Somebody who does tasks, as his engine knows him.

    >>> WorkerInfo("worker-1", "10.0.0.2", cpus=8)
    WorkerInfo(name='worker-1', host='10.0.0.2', cpus=8)
    """

    name: str
    host: str
    cpus: float


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What runs where.

    >>> print(EngineInfo("local", "this process", (WorkerInfo("threads and processes", "localhost", 2),)))
    local at this process, 2 processors
      threads and processes on localhost, 2 processors
    """

    name: str
    address: str
    workers: tuple[WorkerInfo, ...]
    started_here: bool = True
    """Whether `shoal.shutdown` ends it; one that was there before is left running."""

    def __str__(self) -> str:
        total = sum(worker.cpus for worker in self.workers)
        begun = "" if self.started_here else ", which was running before"
        lines = (f"  {worker.name} on {worker.host}, {worker.cpus:g} processors" for worker in self.workers)
        return "\n".join([f"{self.name} at {self.address}{begun}, {total:g} processors", *lines])


class Engine(ABC):
    """Runs functions over shards, and streams of parcels.

    A function may be called again for the same shard when its worker died, so it must give the same result then. What
    it raises is raised by whoever gathers the shard. A shard that a function gets is its own: it may change it.

    >>> from shoal.engines import current
    >>> engine = current()
    >>> squares = engine.map(lambda number: number**2, engine.scatter([1, 2, 3]))
    >>> list(engine.gather(squares))
    [1, 4, 9]
    >>> halves = engine.exchange(lambda number: [number // 10, number % 10], engine.scatter([12, 34]), 2)
    >>> list(engine.gather(halves))
    [[1, 3], [2, 4]]
    """

    @abstractmethod
    def scatter(self, objects: Iterable[Any]) -> Handle:
        """Take in objects of this process, each as a shard."""

    @abstractmethod
    def map(self, function: Callable[..., Any], *handles: Handle) -> Handle:
        """Call a function with one shard of each of several collections of the same length; results are shards."""

    @abstractmethod
    def exchange(self, function: Callable[[Any], Sequence[Any]], handle: Handle, pieces: int) -> Handle:
        """Let a function cut each shard into so many pieces; shard j of the result is the list of all pieces j.

        The pieces are in the order of the shards they are of.
        """

    @abstractmethod
    def gather(self, handle: Handle, numbers: Iterable[int] | None = None) -> Iterator[Any]:
        """Bring shards to this process, one after the other; all of them, or those of some numbers."""

    @abstractmethod
    def free(self, handle: Handle) -> None:
        """Let go of shards at once; whoever still refers to the handle finds it empty."""

    @abstractmethod
    def gang(
        self,
        function: Callable[[Member], Any],
        size: int,
        *,
        shards: Handle | None = None,
        resources: Resources | None = None,
        restarts: int = 3,
    ) -> Gang:
        """Call a function in so many workers at once, each a process that has these resources (a processor).

        It fails at once if the engine does not have so many. When a worker dies, all are ended and all begin again, so
        often at most; when the function raises something, all are ended and nobody begins again.
        """

    @abstractmethod
    def stream(self, steps: Sequence[Step], *, memory: int, ahead: int = 1) -> Stream[Any, Any]:
        """Start a stream that takes each parcel through all steps.

        It holds about ``memory`` bytes at most; if these suffice, it takes ``ahead`` parcels at least.
        """

    @abstractmethod
    def describe(self) -> EngineInfo:
        """Tell what runs where."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything, and end what was started for it."""


@runtime_checkable
class SupportsNative(Protocol):
    """An engine that has collections of its own kind.

    >>> from shoal.engines import current
    >>> isinstance(current(), SupportsNative)  # Ray, Spark and Dask have collections, this process has none
    False
    """

    def adopt(self, native: Any) -> Handle:
        """Make shards of the partitions of a collection, where they lie: frames, arrays or lists."""
        ...

    def export(self, handle: Handle) -> Any:
        """Make a collection of the engine's own kind of shards, where they lie; each is a partition."""
        ...


@runtime_checkable
class SupportsFlow(Protocol):
    """An engine that can run steps by itself, from the first item to the last, if their order does not matter.

    >>> from shoal.engines import current
    >>> isinstance(current(), SupportsFlow)  # the local engine keeps order without a price; Ray has Ray Data for it
    False
    """

    def flow(self, items: Sequence[Any], steps: Sequence[Step]) -> Iterator[Any]:
        """Take items through steps, in any order; the first step makes any number of parcels of an item."""
        ...
