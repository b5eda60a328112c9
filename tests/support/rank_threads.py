"""The ranks of one world as threads of this process, which agree through a group of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from shoal.pipeline import _loader
from shoal.pipeline.groups import Group

__all__ = ["rank_groups", "run_ranks"]

Result = TypeVar("Result")

_own = threading.local()


class ThreadGroup(Group):
    """One rank among threads."""

    def __init__(self, rank: int, numbers: list[int], barrier: threading.Barrier) -> None:
        self.rank, self.world_size = rank, len(numbers)
        self._numbers, self._barrier = numbers, barrier

    def highest(self, number: int) -> int:
        self._numbers[self.rank] = number
        self._barrier.wait()
        found = max(self._numbers)
        self._barrier.wait()  # nobody writes the next number before all have read this one
        return found


def run_ranks(world_size: int, work: Callable[[int], Result]) -> list[Result]:
    """Call a function once for each rank, all at a time, and give the results; the first failure is raised."""
    barrier = threading.Barrier(world_size, timeout=60)
    numbers = [0] * world_size
    results: dict[int, Result] = {}
    errors: list[BaseException] = []

    def rank_work(rank: int) -> None:
        _own.group = ThreadGroup(rank, numbers, barrier)
        try:
            results[rank] = work(rank)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=rank_work, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [results[rank] for rank in range(world_size)]


@contextmanager
def rank_groups() -> Iterator[None]:
    """Let loaders that are made in the threads of `run_ranks` find their group."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_loader, "current_group", lambda: getattr(_own, "group", None))
        yield
