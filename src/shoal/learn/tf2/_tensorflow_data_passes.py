"""Passes over a tf.data pipeline, as a worker reads them: where it is, and how it goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from shoal.learn._parts import Part
from shoal.learn.tf2._tensorflow_data_graph import Recipe
from shoal.learn.tf2._tensorflow_data_leaves import Leaves, leaves_of

__all__ = ["Passes", "PassesLoader", "Place", "ShareReader"]

#: A share of a source: of how many, which of them, and how many of its rows were received.
Share: TypeAlias = "tuple[int, int, int]"


@dataclass(slots=True)
class Place:
    """Where a worker is in a pass."""

    number: int = 0
    parts: int = 0
    """How many parts of it were received."""
    shares: list[Share] | None = None
    """What is left to it of the pass, if it reads for itself and has begun."""
    reader: ShareReader | None = None
    """Who reads them."""

    def left(self) -> list[Share] | None:
        """Say what there is still to read of each share."""
        return self.shares if self.reader is None else self.reader.left()


class Passes:
    """A pipeline in this process, or a share of it; it is made once, and draws a new order for each pass."""

    def __init__(self, recipe: Recipe, dataset: Any = None, count: int = 1, index: int = 0) -> None:
        self._recipe, self._given, self._count, self._index = recipe, dataset, count, index
        self._made: Any = None
        self._next = 0

    def at(self, number: int) -> Any:
        """Give the pipeline for a pass; each can be found again, whatever was read before, if there is a graph."""
        recipe = self._recipe
        if not recipe.graph:
            return self._given
        if self._made is None or recipe.nested or (recipe.drawn and self._next > number):
            self._made, self._next = recipe.made(number, self._count, self._index), 0
        if recipe.drawn:
            while self._next < number:
                iter(self._made)  # draws an order, and reads nothing
                self._next += 1
        self._next = number + 1
        return self._made


@dataclass(slots=True)
class ShareReader:
    """Reads shares, one after the other, and knows what of them was received."""

    recipe: Recipe
    number: int
    shares: list[Share]
    batch_size: int
    passes: dict[tuple[int, int], Passes]
    received: int = 0
    _read: list[int] = field(default_factory=list)
    _ended: int = 0

    def __iter__(self) -> Iterator[Leaves]:
        for count, index, skipped in self.shares:
            self._read.append(0)
            made = self.passes.setdefault((count, index), Passes(self.recipe, count=count, index=index))
            for piece in leaves_of(made.at(self.number), self.recipe.batched, self.batch_size, False):
                left_out = min(skipped, len(piece))
                skipped -= left_out
                if left_out < len(piece):
                    self._read[-1] += len(piece) - left_out
                    yield piece[left_out:]
            self._ended += 1

    def left(self) -> list[Share]:
        """Say what there is still to read of each share."""
        received, found = self.received, []
        for place, (count, index, skipped) in enumerate(self.shares):
            read = self._read[place] if place < len(self._read) else 0
            mine = min(received, read)
            received -= mine
            if place >= self._ended or mine < read:
                found.append((count, index, skipped + mine))
        return found


class PassesLoader:
    """The parts of one worker. Each iteration is an epoch: a pass, or with ``wrap`` so many steps of several."""

    samples: int | None = None

    def __init__(
        self, read: Callable[[Place], Iterator[Part]], rank: int, size: int, steps: int | None, wrap: bool
    ) -> None:
        self._read, self._rank, self._size = read, rank, size
        self.steps, self._wrap = steps, wrap
        self.epoch = self._step = 0
        self._place: Place | None = None
        self._open: Iterator[Part] | None = None
        self._under_way: Iterator[dict[str, Any]] | None = None
        self._left = False
        """Whether an epoch was left before its end, and the next iteration begins it anew."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.close()
        if self._left:
            self._step, self._left = 0, False
            self._place = self._place if self._wrap else None
        self._under_way = self._next_epoch()
        return self._under_way

    def close(self) -> None:
        """End the epoch that is under way; where it was left can still be said."""
        if self._under_way is not None:
            self._under_way.close()  # type: ignore[attr-defined]
            self._under_way, self._left = None, self._left or self._step > 0
        if not self._wrap and self._place is not None:
            self._end_pass(Place(self._place.number, self._place.parts, self._place.left()))

    def state_dict(self) -> dict[str, Any]:
        """Say what was received: of which epoch, and of which pass over the data."""
        place = self._place or Place(0 if self._wrap else self.epoch)
        state = {"epoch": self.epoch, "step": self._step, "pass": place.number, "parts": place.parts}
        return {**state, "shares": place.left()}

    def load_state_dict(self, states: Any) -> None:
        """Go on from the states of all workers; what was left to others is shared out, if they were not as many."""
        every = [states] if isinstance(states, Mapping) else list(states)
        first = every[0]
        self.close()
        self._end_pass(None)
        self._left = False
        self.epoch, self._step = first["epoch"], first["step"]
        if first["parts"]:
            self._place = Place(first["pass"], first["parts"], _dealt(every, self._rank, self._size))
        else:
            self._place = Place(first["pass"]) if self._wrap else None

    def _next_epoch(self) -> Iterator[dict[str, Any]]:
        while self.steps is None or self._step < self.steps:
            part = self._next_part()
            if part is None:
                break
            self._step += 1
            yield {"items": part[0], "count": part[1]}
        self.epoch, self._step = self.epoch + 1, 0
        if not self._wrap:
            self._end_pass(None)

    def _next_part(self) -> Part | None:
        if self._place is None:
            self._place = Place(0 if self._wrap else self.epoch)
        if self._open is None:
            self._open = self._read(self._place)
        part = next(self._open, None)
        if part is not None:
            self._place.parts += 1
            if self._place.reader is not None:
                self._place.reader.received += part[1]
            return part
        number, was_empty = self._place.number, not self._place.parts
        if not self._wrap or was_empty:
            return None
        self._end_pass(Place(number + 1))
        return self._next_part()

    def _end_pass(self, place: Place | None) -> None:
        if self._open is not None:
            self._open.close()  # type: ignore[attr-defined]
        self._open, self._place = None, place


def _dealt(states: list[Any], rank: int, size: int) -> list[Share] | None:
    """Share out what was left to each worker; as many as there were, each has its own."""
    if any(state["shares"] is None for state in states):
        return None
    if len(states) == size:
        return [(count, index, rows) for count, index, rows in states[rank]["shares"]]
    every = [(count, index, rows) for state in states for count, index, rows in state["shares"]]
    return every[rank::size]
