"""Shards that the local engine holds: results of jobs, kept in memory or on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from shoal._malloc import keep_freed_memory
from shoal.abc import Handle
from shoal.engines._checks import checked, named
from shoal.engines._message import Buffer, Message, extents, joined, pack
from shoal.engines._task import Split, Task, opened
from shoal.engines.local._hands import Hands
from shoal.engines.local._shelf import Kept, Shelf

__all__ = ["Collections", "LocalHandle"]

#: Gives the message of a shard, as soon as it is there.
Wait = Callable[[], Message]


class LocalHandle(Handle):
    """Shards, each as a way to wait for its message."""

    def __init__(self, shards: Sequence[Wait]) -> None:
        self.shards = list(shards)

    def __len__(self) -> int:
        return len(self.shards)


class Collections:
    """Does what is asked for with collections of shards, by so many hands and with so much memory for what is kept."""

    def __init__(self, workers: int, memory: int, mode: str) -> None:
        keep_freed_memory()
        self.hands, self._shelf = Hands(workers, mode), Shelf(memory)

    def scatter(self, objects: Iterable[Any]) -> LocalHandle:
        """Keep objects."""
        return LocalHandle([self._shelf.keep(pack(item)).view for item in objects])

    def map(self, function: Callable[..., Any], handles: Sequence[Handle]) -> LocalHandle:
        """Call a function with one shard of each."""
        found = checked(LocalHandle, handles)
        task, count = Task.of(function, named(function)), len(found[0])
        rows = zip(*(handle.shards for handle in found), strict=True)
        return LocalHandle([_result(self._submit(task, number, count, row)) for number, row in enumerate(rows)])

    def exchange(self, function: Callable[..., Any], handle: Handle, pieces: int) -> LocalHandle:
        """Cut all shards, and put the pieces of each number together."""
        (found,) = checked(LocalHandle, [handle])
        split, count = Split(Task.of(function, named(function)), pieces), len(found)
        cuts = [self._submit(split, number, count, [shard]) for number, shard in enumerate(found.shards)]
        return LocalHandle([_pieces(cuts, number) for number in range(pieces)])

    def gather(self, handle: Handle, numbers: Iterable[int]) -> Iterator[Any]:
        """Give shards, as they come."""
        (found,) = checked(LocalHandle, [handle])
        for number in numbers:
            yield opened(found.shards[number]())

    def message(self, handle: Handle, number: int) -> Message:
        """Give one shard as it is kept."""
        (found,) = checked(LocalHandle, [handle])
        return found.shards[number]()

    def free(self, handle: Handle) -> None:
        """Let go of shards."""
        (found,) = checked(LocalHandle, [handle])
        found.shards.clear()

    def close(self) -> None:
        """Let go of everything."""
        self.hands.close()
        self._shelf.close()

    def _submit(self, task: Task | Split, number: int, count: int, shards: Sequence[Wait]) -> Future[Any]:
        keep = self._shelf.keep

        def work(call: Callable[..., Any]) -> Any:
            done = call(task, number, count, *(shard() for shard in shards))
            return _Pieces(keep, joined(done)) if isinstance(done, list) else keep(done)

        return self.hands.submit(work)


class _Pieces:
    """The pieces of a shard, kept together: there may be very many, and most of them small."""

    __slots__ = ("_kept", "_places")

    def __init__(self, keep: Callable[[Buffer], Kept], message: bytearray) -> None:
        self._places = np.array(extents(message), np.int64).reshape(-1, 2)
        self._kept = keep(message)

    def piece(self, number: int) -> memoryview:
        """Give one of them."""
        return self._kept.view(*self._places[number].tolist())


def _result(result: Future[Kept]) -> Wait:
    return lambda: result.result().view()


def _pieces(cuts: Sequence[Future[_Pieces]], number: int) -> Wait:
    return lambda: [cut.result().piece(number) for cut in cuts]
