"""Whole shards for lanes: the order of a source in which nobody can seek and whose lengths nobody knows.

The shuffled list of shards is cut into windows of one shard a lane. Where there are fewer shards than lanes, several
lanes share one and take its samples in turn. A lane that has read its part of a window goes on to the next window by
itself, so lanes end at different times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.order._elements import Ids, Walk
from shoal.order._keys import derive
from shoal.order._permute import permutation

__all__ = ["StreamOrder", "Turn"]


class Turn(NamedTuple):
    """What a lane reads of one window: samples ``first``, ``first + step``, ... of a shard.

    >>> turn = Turn(shard=3, first=1, step=4, number=0)  # samples 1, 5, 9 ... of shard 3, which four lanes share
    >>> list(range(turn.first, 10, turn.step))
    [1, 5, 9]
    """

    shard: int
    first: int
    step: int
    number: int
    """The pass."""


class StreamOrder:
    """The order of an epoch over shards that are read from their beginnings.

    >>> order = StreamOrder(Walk(None, epoch=0, shards=1, lanes=2))
    >>> order.turn(1, 0), order.turn(1, 1)
    (Turn(shard=0, first=1, step=2, number=0), None)
    """

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._windows = -(-walk.shards // walk.lanes)
        self._orders: dict[int, Ids] = {}
        self._deals: dict[int, Ids] = {}

    def turn(self, lane: int, window: int) -> Turn | None:
        """Say what a lane reads of a window; windows are counted through all passes. None is the end."""
        walk = self._walk
        if not self._windows or (window >= self._windows and not walk.wrap):
            return None
        number, inside = divmod(window, self._windows)
        low = inside * walk.lanes
        count = min(walk.shards - low, walk.lanes)
        share, at = divmod(int(self._deal(window)[lane]), count)
        step = walk.lanes // count + (at < walk.lanes % count)
        return Turn(int(self._order(number)[low + at]), share, step, number)

    def _order(self, number: int) -> Ids:
        return _kept(self._orders, number, self._walk.shards, self._key("shards", number))

    def _deal(self, window: int) -> Ids:
        return _kept(self._deals, window, self._walk.lanes, self._key("deal", window))

    def _key(self, purpose: str, number: int) -> int | None:
        shuffle = self._walk.shuffle
        return None if shuffle is None else derive(purpose, shuffle.seed, self._walk.epoch, number)


def _kept(known: dict[int, Ids], number: int, size: int, key: int | None) -> Ids:
    """Remember the last few permutations; without a key nothing is permuted."""
    if number not in known:
        while len(known) >= 4:
            del known[min(known)]
        known[number] = np.arange(size) if key is None else permutation(size, key)
    return known[number]
