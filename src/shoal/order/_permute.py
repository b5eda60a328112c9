"""Permutations that follow from a key, and of which any part can be had without the rest."""

from __future__ import annotations

from math import isqrt

import numpy as np
from numpy.typing import NDArray

from shoal.order._keys import Hashes, combine, derive, scramble

__all__ = ["permutation", "permute", "permute_in_chunks", "permute_sequences_in_chunks"]

_SORTED = 4096
_ROUNDS = 6
_HALF = np.uint64(32)


def permutation(size: int, key: int) -> NDArray[np.int64]:
    """Give a whole permutation.

    >>> sorted(permutation(5, key=3).tolist())
    [0, 1, 2, 3, 4]
    """
    return np.argsort(scramble(np.arange(size), key), kind="stable")


def permute(places: NDArray[np.int64], size: int, key: int) -> NDArray[np.int64]:
    """Say what stands at some places of a permutation, in a time that does not depend on its size.

    A Feistel network over pairs (left, right) with left below a and right below b, where ab is just above ``size``;
    what falls behind the end is sent through again until it falls inside. Few values make no good network, so small
    permutations are sorted.

    >>> sorted(permute(np.arange(10_000), 10_000, key=3).tolist()) == list(range(10_000))
    True
    """
    if size <= _SORTED:
        return permutation(size, key)[places]
    left_size = isqrt(size - 1) + 1
    right_size = -(-size // left_size)
    sizes = (np.uint64(left_size), np.uint64(right_size))
    keys = [derive("round", number, key) for number in range(_ROUNDS)]
    values = _network(places.astype(np.uint64), sizes, keys)
    while (outside := np.flatnonzero(values >= size)).size:
        values[outside] = _network(values[outside], sizes, keys)
    return values.astype(np.int64)


def permute_in_chunks(
    places: NDArray[np.int64], lengths: NDArray[np.int64], chunk: int, keys: Hashes
) -> NDArray[np.int64]:
    """Permute only inside chunks of a few neighbours: say what stands at each place of a sequence of its own.

    Place p of a sequence of n lies in chunk p // chunk, whose last one may be short. A chunk's permutation ranks hashes
    that follow from the sequence's key and the chunk's number.

    >>> keys = np.full(5, 7, np.uint64)
    >>> found = permute_in_chunks(np.arange(5), np.full(5, 5), 4, keys).tolist()
    >>> sorted(found[:4]), found[4:]
    ([0, 1, 2, 3], [4])
    """
    if chunk == 1:
        return places
    number, inside = np.divmod(places, chunk)
    sizes = np.minimum(lengths - number * chunk, chunk)
    members = np.arange(chunk)
    hashes = combine(combine(keys, number)[:, None], members)
    own = np.take_along_axis(hashes, inside[:, None], axis=1)
    ranks = np.count_nonzero((hashes < own) & (members < sizes[:, None]), axis=1)
    placed: NDArray[np.int64] = number * chunk + ranks
    return placed


def permute_sequences_in_chunks(
    places: NDArray[np.int64], sequences: NDArray[np.int64], lengths: NDArray[np.int64], chunk: int, keys: Hashes
) -> NDArray[np.int64]:
    """Do what `permute_in_chunks` does, where lengths and keys are given once for each sequence.

    Where most of the places of some chunks are asked for, each chunk is ranked once, and not for each of its places.

    >>> places, sequences = np.divmod(np.arange(48), 3)
    >>> lengths, keys = np.array([16, 16, 16]), np.arange(3).astype(np.uint64)
    >>> found = permute_sequences_in_chunks(places, sequences, lengths, 8, keys)
    >>> bool((found == permute_in_chunks(places, lengths[sequences], 8, keys[sequences])).all())
    True
    """
    if chunk == 1 or not len(places):
        return places
    first, last = int(places.min()) // chunk, int(places.max()) // chunk
    chunks = last + 1 - first
    if len(keys) * chunks * chunk > 2 * len(places):
        return permute_in_chunks(places, lengths[sequences], chunk, keys[sequences])
    numbers, members = np.arange(first, last + 1), np.arange(chunk)
    hashes = combine(combine(keys[:, None], numbers)[..., None], members)
    there = members < (lengths[:, None] - numbers * chunk)[..., None]
    ranks = np.count_nonzero((hashes[..., None, :] < hashes[..., None]) & there[..., None, :], axis=3)
    placed = (ranks + (numbers * chunk)[:, None]).reshape(-1)
    found: NDArray[np.int64] = placed[sequences * (chunks * chunk) + (places - first * chunk)]
    return found


def _network(values: Hashes, sizes: tuple[np.uint64, np.uint64], keys: list[int]) -> Hashes:
    halves = list(np.divmod(values, sizes[1]))
    for number, key in enumerate(keys):
        this, other = number % 2, 1 - number % 2
        # The upper half of a hash, scaled to the size of this side: no division, and no bias worth a thought.
        added = ((scramble(halves[other], key) >> _HALF) * sizes[this]) >> _HALF
        halves[this] = halves[this] + added
        np.subtract(halves[this], sizes[this], out=halves[this], where=halves[this] >= sizes[this])
    joined: Hashes = halves[0] * sizes[1] + halves[1]
    return joined
