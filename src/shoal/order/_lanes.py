"""Lanes: how the slots of an epoch are shared by any number of ranks.

Slot g of an epoch lies in lane g mod L, as that lane's output g // L. A global batch is B consecutive slots. Rank r of
W owns the lanes l with l mod W = r. All that W decides is who does the work, so a run may go on with another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.errors import PlanError

__all__ = ["LANES", "Part", "lane_share", "own_lanes", "rank_part", "slot_owner"]

LANES = 64


@dataclass(frozen=True, slots=True)
class Part:
    """One rank of a world that shares global batches.

    >>> Part(batch_size=8, rank=1, world_size=2).lanes
    64
    """

    batch_size: int
    rank: int = 0
    world_size: int = 1
    lanes: int = LANES
    some: tuple[int, ...] | None = None
    """Those of the rank's lanes that are meant, in rising order, where several share its work; None for all."""

    def __post_init__(self) -> None:
        if self.lanes < 1:
            raise PlanError(f"a dataset has at least 1 lane, not {self.lanes}")
        if self.batch_size < 1:
            raise PlanError(f"batch_size is {self.batch_size}; it counts the samples of all ranks and is at least 1")
        if not 0 <= self.rank < self.world_size:
            raise PlanError(f"rank {self.rank} is not one of the {self.world_size} ranks 0 to {self.world_size - 1}")
        if self.world_size > min(self.lanes, self.batch_size):
            limit = f"min(lanes={self.lanes}, batch_size={self.batch_size})"
            hint = "; Dataset.lanes(n) sets more lanes" if self.lanes < self.batch_size else ""
            raise PlanError(f"world_size {self.world_size} is more than {limit}: some rank would get nothing{hint}")
        own = range(self.rank, self.lanes, self.world_size)
        if self.some is not None and (not self.some or not set(self.some) <= set(own)):
            raise PlanError(f"lanes {list(self.some)} are not all of rank {self.rank} of {self.world_size}")


def slot_owner(slots: NDArray[np.int64], part: Part) -> NDArray[np.int64]:
    """Say which rank owns each slot.

    >>> slot_owner(np.array([3, 4]), Part(batch_size=4, world_size=2)).tolist()
    [1, 0]
    """
    return slots % part.lanes % part.world_size


def own_lanes(part: Part) -> Sequence[int]:
    """List the lanes of a rank, or those of them that are meant.

    >>> list(own_lanes(Part(batch_size=8, rank=1, world_size=3, lanes=8)))
    [1, 4, 7]
    """
    return range(part.rank, part.lanes, part.world_size) if part.some is None else part.some


def rank_part(first_slot: int, part: Part) -> tuple[NDArray[np.int64], int]:
    """Give the slots that a rank owns in the global batch that begins at a slot, and the size of the largest part.

    >>> rank_part(4, Part(batch_size=4, rank=1, world_size=2))
    (array([5, 7]), 2)
    >>> rank_part(4, Part(batch_size=4, lanes=4, some=(0, 3)))[0]
    array([4, 7])
    """
    slots = np.arange(first_slot, first_slot + part.batch_size, dtype=np.int64)
    if part.some is not None:
        return slots[np.isin(slots % part.lanes, part.some)], part.batch_size
    if part.world_size == 1:
        return slots, part.batch_size
    owners = slot_owner(slots, part)
    return slots[owners == part.rank], int(np.bincount(owners, minlength=part.world_size).max())


def lane_share(count: int, lane: int, lanes: int) -> int:
    """Say how many of the first ``count`` slots lie in a lane.

    >>> [lane_share(5, lane, 3) for lane in range(3)]
    [2, 2, 1]
    """
    return count // lanes + (lane < count % lanes)
