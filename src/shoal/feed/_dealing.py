"""Who makes what: lanes dealt to feeders. Pure, and the same for everybody who knows the same feeders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from shoal.abc import Pool

__all__ = ["batches_ahead", "dealt", "share_of"]

#: Bytes of batches that may be ready before they are asked for, if that is not too few or too many of them.
_AHEAD, _FEWEST, _MOST = 128 * 2**20, 2, 16


def dealt(lanes: Sequence[int], feeders: Iterable[str], first: int = 0) -> dict[str, tuple[int, ...]]:
    """Deal lanes to feeders in turn, from the one with the number ``first`` on; who gets none is left out.

    Ranks begin at different feeders: if they have fewer lanes than there are feeders, all feeders have something to do.

    >>> dealt(range(5), ["b", "a"])
    {'a': (0, 2, 4), 'b': (1, 3)}
    >>> dealt([7], ["a", "b"], first=3)
    {'b': (7,)}
    """
    names = sorted(set(feeders))
    shares = {name: tuple(lanes[(at - first) % len(names) :: len(names)]) for at, name in enumerate(names)}
    return {name: share for name, share in shares.items() if share}


def share_of(pool: Pool, ranks: int) -> Pool:
    """Say who works for one of several ranks that a feeder works for at a time.

    >>> share_of(Pool(8), 4).workers, share_of(Pool((1, 8)), 4).workers, share_of(Pool(2), 4).workers
    (2, (1, 2), 1)
    """
    low, high = (-(-number // ranks) for number in pool.bounds)
    return replace(pool, workers=high if low == high else (low, high))


def batches_ahead(nbytes: int) -> int:
    """Say how many batches of a size may be ready before they are asked for.

    >>> batches_ahead(40 * 2**20), batches_ahead(2**30), batches_ahead(1000)
    (3, 2, 16)
    """
    return min(max(_AHEAD // max(nbytes, 1), _FEWEST), _MOST)
