"""The embedded engine: threads of this process, and processes of its own for what holds the lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from shoal import settings
from shoal._malloc import keep_freed_memory
from shoal.abc import Engine, EngineInfo, Gang, Handle, Member, Resources, Step, Stream, WorkerInfo
from shoal.engines._checks import check_gang
from shoal.engines.local._crew import Elsewhere
from shoal.engines.local._stream import CrewStream, InlineStream
from shoal.errors import PlanError

if TYPE_CHECKING:
    from shoal.engines._message import Message
    from shoal.engines.local._collection import Collections

__all__ = ["LocalEngine", "begun"]


def begun(
    steps: Sequence[Step], memory: int, ahead: int, elsewhere: Callable[[Step], Elsewhere] | None = None
) -> Stream[Any, Any]:
    """Start a stream in this process; ``elsewhere`` makes the processes of steps that are not done here."""
    keep_freed_memory()
    if all(step.pool.bounds == (0, 0) for step in steps):
        return InlineStream(steps)
    return CrewStream(steps, memory, ahead, elsewhere)


class LocalEngine(Engine):
    """Runs tasks and steps in threads (numpy, Arrow and decoders let go of the interpreter's lock) or in processes.

    Shards that it holds are in memory up to ``memory`` bytes, and in a file beyond that.

    >>> engine = LocalEngine(workers=2)
    >>> list(engine.gather(engine.map(str, engine.scatter([1, 2]))))
    ['1', '2']
    >>> engine.close()
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        memory: int | None = None,
        mode: str = "auto",
    ) -> None:
        if address is not None:
            raise PlanError(f"address={address!r}; the local engine is this process, and has no address")
        self._workers = workers or settings.processors()
        self._memory = settings.current().memory if memory is None else memory
        self._mode = mode
        self._lock = threading.Lock()
        self._made: Collections | None = None

    def scatter(self, objects: Iterable[Any]) -> Handle:
        """Keep objects."""
        return self._collections().scatter(objects)

    def map(self, function: Callable[..., Any], *handles: Handle) -> Handle:
        """Begin to call a function; calls wait for shards that are not there yet."""
        return self._collections().map(function, handles)

    def exchange(self, function: Callable[[Any], Sequence[Any]], handle: Handle, pieces: int) -> Handle:
        """Begin to cut shards; pieces stay where they are until somebody wants them."""
        return self._collections().exchange(function, handle, pieces)

    def gather(self, handle: Handle, numbers: Iterable[int] | None = None) -> Iterator[Any]:
        """Give shards as soon as they are there."""
        return self._collections().gather(handle, range(len(handle)) if numbers is None else numbers)

    def free(self, handle: Handle) -> None:
        """Let go of shards; calls that have not begun are not made."""
        self._collections().free(handle)

    def gang(
        self,
        function: Callable[[Member], Any],
        size: int,
        *,
        shards: Handle | None = None,
        resources: Resources | None = None,
        restarts: int = 3,
    ) -> Gang:
        """Start a process for each member, as many as are asked for: they share the processors."""
        from shoal.engines._gang import RunningGang
        from shoal.engines.local._squad import LocalSquad

        wanted = resources or Resources()
        check_gang(size, Resources(0, wanted.gpus), Resources(0, len(settings.gpus())))
        squad = LocalSquad(wanted.gpus, wanted.modules, partial(self._message, shards))
        return RunningGang(squad, function, size, shards=None if shards is None else len(shards), restarts=restarts)

    def stream(self, steps: Sequence[Step], *, memory: int, ahead: int = 1) -> Stream[Any, Any]:
        """Start the workers of all steps; steps without workers are done while one waits."""
        _check_gpus(steps)
        return begun(steps, memory, ahead)

    def describe(self) -> EngineInfo:
        """Tell how many tasks are done at once."""
        workers = WorkerInfo("threads, and processes where these are better", "localhost", self._workers)
        return EngineInfo("local", "this process", (workers,))

    def close(self) -> None:
        """End all workers, and forget all shards."""
        with self._lock:
            made, self._made = self._made, None
        if made is not None:
            made.close()

    def _message(self, handle: Handle | None, number: int) -> Message:
        assert handle is not None
        return self._collections().message(handle, number)

    def _collections(self) -> Collections:
        with self._lock:
            if self._made is None:
                from shoal.engines.local._collection import Collections  # a stream, which is to begin soon, needs none

                self._made = Collections(self._workers, self._memory, self._mode)
            return self._made


def _check_gpus(steps: Sequence[Step]) -> None:
    wanted = sum(step.pool.bounds[0] * step.pool.gpus for step in steps)
    if wanted > (have := len(settings.gpus())):
        names = ", ".join(step.name for step in steps if step.pool.gpus)
        raise PlanError(f"{names} want {wanted:g} gpus at once, and this machine has {have}")
