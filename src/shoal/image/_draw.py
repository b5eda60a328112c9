"""Random numbers that follow from the sample, all those of a block at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.abc import Block
from shoal.errors import PlanError
from shoal.order import combine, derive, scramble

__all__ = ["uniforms"]

_LOW_BITS = np.uint64(11)  # a float64 holds the other 53


def uniforms(block: Block, stage: int | None, purpose: str, count: int) -> NDArray[np.float64]:
    """Give ``count`` numbers from 0 up to 1 for each sample, keyed by its id, the run's salt and the stage.

    >>> block = Block([{"__key__": "a"}, {"__key__": "b"}], ids=np.array([1, 2], np.uint64))
    >>> uniforms(block, 0, "flip", 3).shape
    (2, 3)
    """
    if block.ids is None:
        raise PlanError(f"{purpose} draws numbers that follow from the ids of samples, and this block has none")
    base = scramble(block.ids, derive("stage", block.salt, stage or 0, purpose))
    drawn: NDArray[np.float64] = (combine(base[:, None], np.arange(count)[None, :]) >> _LOW_BITS) * np.float64(2.0**-53)
    return drawn
