"""Shards that are made when somebody wants them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from shoal.abc import Engine, Handle

__all__ = ["Chain", "Reading", "Recipe"]


class Reading(Protocol):
    """Reads shards with what it knows of all of them, and may learn better."""

    def learn(self, engine: Engine, handle: Handle) -> None:
        """Find out what was taken for granted, by looking at everything."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Functions that follow each other, as one: a shard goes through all of them in one task.

    The first may have a method ``place(shard, made)``, which says where the shard is from when one of the others fails.

    >>> Chain((lambda x: x + 1, str))(1)
    '2'
    """

    functions: tuple[Callable[..., Any], ...]

    @property
    def __name__(self) -> str:
        """What a message calls it."""
        names = (getattr(getattr(each, "func", each), "__name__", type(each).__name__) for each in self.functions)
        return ", ".join(name.strip("_") for name in names)

    def __call__(self, *shards: Any) -> Any:
        """Take a shard, or one of each of several collections, through all functions."""
        first, *others = self.functions
        made = first(*shards)
        place = getattr(first, "place", None)
        told = place(*shards, made) if place is not None and others else None
        try:
            for function in others:
                made = function(made)
        except Exception as error:
            if told is not None:
                error.add_note(f"with {told}")
            raise
        return made


class Recipe:
    """How a collection of shards is made; it is made once, and kept as long as somebody refers to this."""

    def __init__(
        self,
        engine: Engine,
        count: int,
        make: Callable[[], Handle],
        *,
        parents: Sequence[Recipe] = (),
        reading: Reading | None = None,
    ) -> None:
        self.engine, self.count, self.reading = engine, count, reading
        self._make, self._parents = make, tuple(parents)
        self._made: Handle | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, engine: Engine, handle: Handle, reading: Reading | None = None) -> Recipe:
        """Wrap a collection that is there."""
        return cls(engine, len(handle), lambda: handle, reading=reading)

    def handle(self) -> Handle:
        """Make the collection, or give the one that is there."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def relearn(self) -> None:
        """Let all who read learn better, and forget what was made of what they knew before."""
        for recipe in self._line():
            if recipe.reading is not None:
                recipe.reading.learn(recipe.engine, recipe.handle())
            recipe._made = None

    def _line(self) -> Iterator[Recipe]:
        yield self
        for parent in self._parents:
            yield from parent._line()
