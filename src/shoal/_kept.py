"""Things that are dear to make and were lately asked for."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Lock
from typing import Any, Generic, TypeVar

__all__ = ["Kept"]

T = TypeVar("T")


class Kept(Generic[T]):
    """Keeps what was last asked for, up to a weight in all, but at least the last one; safe to ask in many threads.

    A thing is made once, however many ask for it at the same time. One that has to go is dropped, not closed, because
    somebody may still be using it. A process that was forked or got a pickled copy begins with nothing: connections,
    and promises of other threads, are not inherited.

    >>> words = Kept(8, len)
    >>> words.get(1, lambda: "shoal"), words.get(1, lambda: "not made"), words.get(2, lambda: "herring")
    ('shoal', 'shoal', 'herring')
    >>> words.get(1, lambda: "made again")
    'made again'
    """

    def __init__(self, limit: int, weigh: Callable[[T], int]) -> None:
        self._limit, self._weigh = limit, weigh
        self._things: OrderedDict[Hashable, Future[T]] = OrderedDict()
        self._weights: dict[Hashable, int] = {}
        self._owner = os.getpid()
        self._locks: dict[int, Lock] = {}

    def get(self, name: Hashable, make: Callable[[], T]) -> T:
        """Give what has this name, making it if it is not there."""
        with self._locked():
            thing = self._things.get(name)
            mine = thing is None
            if thing is None:
                thing = self._things[name] = Future()
            self._things.move_to_end(name)
        if mine:
            self._make(name, thing, make)
        return thing.result()

    def __contains__(self, name: Hashable) -> bool:
        """Tell whether a thing is there, or being made."""
        with self._locked():
            return name in self._things

    def __reduce__(self) -> tuple[type[Kept[Any]], tuple[int, Callable[[T], int]]]:
        return Kept, (self._limit, self._weigh)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # A lock that another thread held at the moment of a fork stays held in the child for ever.
        with self._locks.setdefault(os.getpid(), Lock()):
            if self._owner != os.getpid():
                self._things, self._weights, self._owner = OrderedDict(), {}, os.getpid()
            yield

    def _make(self, name: Hashable, thing: Future[T], make: Callable[[], T]) -> None:
        try:
            made = make()
        except BaseException as error:
            with self._locked():
                self._things.pop(name, None)
            thing.set_exception(error)
            raise
        thing.set_result(made)
        with self._locked():
            self._weights[name] = self._weigh(made)
            self._shrink(name)

    def _shrink(self, newest: Hashable) -> None:
        excess = sum(self._weights.values()) - self._limit
        for name in list(self._things):
            if excess <= 0:
                return
            # One that is still being made weighs nothing yet, and somebody waits for it.
            if name != newest and name in self._weights:
                excess -= self._weights.pop(name)
                del self._things[name]
