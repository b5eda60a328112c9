"""Fingerprints of an order: which sample was delivered in which slot."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from shoal.order._keys import Hashes, combine, combine_one

__all__ = ["add_one_to_digest", "add_to_digests", "merge_digests"]

_MODULUS = 2**64


def add_one_to_digest(digest: int, sample_id: int, slot: int) -> int:
    """Take what was delivered in a slot into the digest of its lane.

    >>> add_one_to_digest(0, 5, 1) != add_one_to_digest(0, 5, 2)
    True
    """
    return (digest + combine_one(sample_id, slot)) % _MODULUS


def add_to_digests(digests: Hashes, lanes: NDArray[np.int64], ids: Hashes, slots: NDArray[np.int64]) -> None:
    """Take what was delivered in many slots into the digests of their lanes, in place.

    >>> digests = np.zeros(2, np.uint64)
    >>> add_to_digests(digests, np.array([1]), np.array([5], np.uint64), np.array([1]))
    >>> int(digests[1]) == add_one_to_digest(0, 5, 1)
    True
    """
    np.add.at(digests, lanes, combine(ids, slots))


def merge_digests(digests: Iterable[int]) -> str:
    """Make one digest of those of several lanes or ranks; the order in which they are given does not matter.

    >>> merge_digests([1, 2]) == merge_digests([2, 1]) == '0000000000000003'
    True
    """
    return f"{sum(digests) % _MODULUS:016x}"
