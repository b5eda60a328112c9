"""Samples in another order, of which only some are held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import TypeVar

__all__ = ["shuffled"]

Item = TypeVar("Item")


def shuffled(items: Iterable[Item], buffer: int, chance: Random) -> Iterator[Item]:
    """Keep some items, and give any of them for the next that comes.

    >>> list(shuffled(range(6), 3, Random(1)))
    [0, 3, 2, 1, 5, 4]
    """
    held: list[Item] = []
    for item in items:
        held.append(item)
        if len(held) >= buffer:
            place = chance.randrange(len(held))
            held[place], held[-1] = held[-1], held[place]
            yield held.pop()
    chance.shuffle(held)
    yield from held
