"""The order of an epoch, as a permutation keyed by seed and epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.errors import PlanError

__all__ = ["Shuffle", "epoch_order"]

_MODES = ("shards", "full")


@dataclass(frozen=True, slots=True)
class Shuffle:
    """How a dataset is shuffled: ``"full"`` over all samples, or ``"shards"``: the list of shards, and the samples
    inside each window of consecutive shards.
    """

    mode: str = "shards"
    seed: int = 0
    window: int = 16

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise PlanError(f"there is no shuffle {self.mode!r}; known are {' and '.join(map(repr, _MODES))}")
        if self.window < 1:
            raise PlanError(f"a shuffle window has at least 1 shard, not {self.window}")


def epoch_order(lengths: Sequence[int], shuffle: Shuffle | None, epoch: int) -> NDArray[np.int64]:
    """Say which sample (counted through all shards in storage order) comes at each slot of an epoch.

    >>> epoch_order([2, 3], None, epoch=0).tolist()
    [0, 1, 2, 3, 4]
    >>> sorted(epoch_order([2, 3], Shuffle("full", seed=1), epoch=4).tolist())
    [0, 1, 2, 3, 4]
    """
    total = sum(lengths)
    if shuffle is None:
        return np.arange(total, dtype=np.int64)
    random = np.random.Generator(np.random.Philox(key=np.array([shuffle.seed % 2**64, epoch], np.uint64)))
    if shuffle.mode == "full":
        return random.permutation(total)
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    shards = random.permutation(len(lengths))
    windows = [shards[at : at + shuffle.window] for at in range(0, len(shards), shuffle.window)]
    mixed = [np.concatenate([np.arange(starts[s], starts[s + 1]) for s in window]) for window in windows]
    for window in mixed:
        random.shuffle(window)
    return np.concatenate([np.empty(0, np.int64), *mixed])
