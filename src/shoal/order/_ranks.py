"""Which part of a global batch belongs to which rank.

Slot g of an epoch lies in lane g mod L; rank r of W owns the lanes l with l mod W = r; batch b is the slots from bB on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from shoal.errors import PlanError

__all__ = ["LANES", "Part", "rank_part", "slot_owner"]

LANES = 64

Slots = TypeVar("Slots", int, NDArray[np.int64])


@dataclass(frozen=True, slots=True)
class Part:
    """One rank of a world that shares global batches."""

    batch_size: int
    rank: int = 0
    world_size: int = 1
    lanes: int = LANES

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise PlanError(f"batch_size is {self.batch_size}; it counts the samples of all ranks and is at least 1")
        if not 0 <= self.rank < self.world_size:
            raise PlanError(f"rank {self.rank} is not one of the {self.world_size} ranks 0 to {self.world_size - 1}")
        if self.world_size > min(self.lanes, self.batch_size):
            limit = f"min(lanes={self.lanes}, batch_size={self.batch_size})"
            raise PlanError(f"world_size {self.world_size} is more than {limit}: some rank would get nothing")


def slot_owner(slot: Slots, part: Part) -> Slots:
    """Say which rank owns a slot, or each of several.

    >>> slot_owner(3, Part(batch_size=4, world_size=2))
    1
    """
    return slot % part.lanes % part.world_size


def rank_part(step: int, part: Part) -> tuple[NDArray[np.int64], int]:
    """Give the slots that a rank owns in a global batch, and the size that the parts of all ranks are padded to.

    >>> rank_part(1, Part(batch_size=4, rank=1, world_size=2))
    (array([5, 7]), 2)
    """
    slots = np.arange(step * part.batch_size, (step + 1) * part.batch_size, dtype=np.int64)
    owners = slot_owner(slots, part)
    return slots[owners == part.rank], int(np.bincount(owners, minlength=part.world_size).max())
