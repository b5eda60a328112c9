"""Sums of floats without rounding: integers, which can be added in any order and grouping with the same result.

A float is an integer of 53 bits times a power of two. Those of the same power are added up by numpy, in two halves
that are too small to be rounded; what is left are some integers of Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["UNIT_BITS", "exact_sum"]

#: Sums are in units of two to the minus this: the last bit of the smallest float, as `frexp` cuts it.
UNIT_BITS = 1126

_HALF = 27
#: So many halves of 27 bits make less than 53 bits.
_ROWS = 2**24


def exact_sum(values: NDArray[np.float64]) -> int:
    """Add up finite floats.

    >>> exact_sum(np.array([1e300, 1.0, -1e300])) / 2**UNIT_BITS
    1.0
    """
    return sum(_part_sum(values[at : at + _ROWS]) for at in range(0, len(values), _ROWS))


def _part_sum(values: NDArray[np.float64]) -> int:
    fractions, powers = np.frexp(values)
    integers = np.ldexp(fractions, 53).astype(np.int64)
    lowest = int(powers.min())
    places = powers - lowest
    high = np.bincount(places, weights=integers >> _HALF)
    low = np.bincount(places, weights=integers & (2**_HALF - 1))
    shift = UNIT_BITS - 53 + lowest
    used = np.flatnonzero((high != 0) | (low != 0)).tolist()
    return sum(_joined(high[place], low[place]) << (shift + place) for place in used)


def _joined(high: Any, low: Any) -> int:
    return (int(high) << _HALF) + int(low)
