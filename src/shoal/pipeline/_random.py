"""Random generators that follow from the sample, and not from when or where it is treated."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shoal.order import Hashes, derive, scramble

__all__ = ["keyed_generators"]


def keyed_generators(ids: Hashes, salt: int, stage: int) -> Iterator[np.random.Generator]:
    """Yield a generator for each sample, keyed by its id, the run's salt and the stage.

    It is one generator that is keyed anew each time (building one takes several times as long), so it is to be used up
    before the next is taken.

    >>> ids = np.array([1, 2, 1], np.uint64)
    >>> a, b, c = (int(generator.integers(10**9)) for generator in keyed_generators(ids, salt=0, stage=0))
    >>> a == c != b
    True
    """
    philox = np.random.Philox(0)
    generator = np.random.Generator(philox)
    fresh = philox.state
    fresh["state"]["counter"][:] = 0
    for key in scramble(ids, derive("stage", salt, stage)):
        fresh["state"]["key"][:] = key, 0
        philox.state = fresh
        yield generator
