"""How pieces of shards come together, where each move of something is a task of the engine.

With many shards and many pieces there would be very many moves. Then pieces travel in groups first, and the groups are
taken apart at the other end: about twice as many bytes move, in far fewer moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

from shoal.engines._message import Buffer, joined, parts
from shoal.engines._task import Split

__all__ = ["cut", "groups_of", "regrouped"]

#: So many moves an engine makes without noticing.
_MOVES = 4096


def groups_of(shards: int, pieces: int, *, moves: int = _MOVES) -> list[range]:
    """Say which pieces travel together.

    >>> groups_of(10, 4)
    [range(0, 1), range(1, 2), range(2, 3), range(3, 4)]
    >>> groups_of(10, 9, moves=50)
    [range(0, 3), range(3, 6), range(6, 9)]
    """
    width = 1 if shards * pieces <= moves else isqrt(max(pieces - 1, 0)) + 1
    return [range(low, min(low + width, pieces)) for low in range(0, pieces, width)]


def cut(split: Split, groups: Sequence[range], number: int, count: int, message: Buffer) -> list[bytearray]:
    """Cut a shard, and give a message for each group."""
    made = split(number, count, message)
    return [made[group[0]] if len(group) == 1 else joined([made[place] for place in group]) for group in groups]


def regrouped(messages: Sequence[Buffer], width: int) -> list[bytearray]:
    """Make the shards of a group out of what all shards gave to it."""
    if width == 1:
        return [joined(messages)]
    opened = [parts(message) for message in messages]
    return [joined([each[place] for each in opened]) for place in range(width)]
