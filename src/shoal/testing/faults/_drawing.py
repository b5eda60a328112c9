"""Numbers that follow from a seed and a place alone, so that a fault can be had again by its number."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["drawn", "drawn_below", "noted"]


def drawn(seed: int, *place: object) -> float:
    """Draw a number from 0 up to 1.

    >>> drawn(7, "cut", 3) == drawn(7, "cut", 3) != drawn(8, "cut", 3)
    True
    """
    digest = hashlib.blake2b(repr((seed, *place)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def drawn_below(limit: int, seed: int, *place: object) -> int:
    """Draw a whole number from 0 up to a limit.

    >>> sorted({drawn_below(3, seed) for seed in range(50)})
    [0, 1, 2]
    """
    return int(drawn(seed, *place) * limit)


@contextmanager
def noted(what: Callable[[], str]) -> Iterator[None]:
    """Let an error that leaves the block say which faults there were."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"with faults: {what()}")
        raise
