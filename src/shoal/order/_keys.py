"""Keyed randomness without a state: numbers that follow from a key and a counter alone."""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Hashes", "combine", "combine_one", "derive", "scramble"]

Hashes: TypeAlias = NDArray[np.uint64]

_MASK = 2**64 - 1
# The increment and the multipliers of splitmix64: neighbouring counters give independent numbers.
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_STEPS, _FIRSTS, _SECONDS = (np.uint64(number) for number in (_STEP, _FIRST, _SECOND))
_BITS = {bits: np.uint64(bits) for bits in (27, 30, 31)}


def derive(*parts: int | str) -> int:
    """Make a key of 64 bits from numbers of any size and texts.

    >>> derive("shards", 7, 0) == derive("shards", 7, 0) != derive("shards", 7, 1)
    True
    """
    text = "\0".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def scramble(counters: NDArray[np.integer], key: int) -> Hashes:
    """Give a random number for each counter.

    >>> scramble(np.arange(3), key=1).tolist() == scramble(np.arange(3), key=1).tolist()
    True
    """
    return _finish(counters.astype(np.uint64) * _STEPS + np.uint64(key))


def combine(hashes: Hashes, numbers: NDArray[np.integer]) -> Hashes:
    """Take further numbers into hashes, one by one; the order in which they are taken in matters.

    >>> hashes = combine(np.zeros(1, np.uint64), np.array([5]))
    >>> int(hashes[0]) == combine_one(0, 5)
    True
    """
    return _finish(hashes + (numbers.astype(np.uint64) + np.uint64(1)) * _STEPS)


def combine_one(value: int, number: int) -> int:
    """Do what `combine` does, for a single hash.

    >>> combine_one(0, 5) != combine_one(0, 6)
    True
    """
    value = (value + (number + 1) * _STEP) & _MASK
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)


def _finish(values: Hashes) -> Hashes:
    values = (values ^ (values >> _BITS[30])) * _FIRSTS
    values = (values ^ (values >> _BITS[27])) * _SECONDS
    return values ^ (values >> _BITS[31])
