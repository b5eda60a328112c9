"""What scalers need to know of a column, in numbers that can be added: the same however rows lie in shards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.data._exact_sums import UNIT_BITS, exact_sum
from shoal.errors import PlanError

__all__ = ["Moments"]

#: Squares of more are beyond a float.
_LARGEST = 1e150
#: Cuts a float into two halves whose products are exact.
_SPLITTER = 2.0**27 + 1


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, sum, sum of squares (both exact, in units), least and most of the values that are there.

    >>> both = Moments.of(np.array([1.0, 2.0])) + Moments.of(np.array([6.0, np.nan]))
    >>> both.mean, both.deviation, both.least, both.most
    (3.0, 2.6457513110645907, 1.0, 6.0)
    """

    count: int = 0
    total: int = 0
    squares: int = 0
    least: float = math.inf
    most: float = -math.inf

    @classmethod
    def of(cls, values: NDArray[Any]) -> Moments:
        """Look at a column; what is missing does not count."""
        here = values[~np.isnan(values)].astype(np.float64)
        if not len(here):
            return cls()
        least, most = float(here.min()), float(here.max())
        if max(-least, most) > _LARGEST:
            raise PlanError(f"there is {max(least, most, key=abs)} among the values; they can be up to {_LARGEST}")
        square, rest = _squares(here)
        return cls(len(here), exact_sum(here), exact_sum(square) + exact_sum(rest), least, most)

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.count + other.count,
            self.total + other.total,
            self.squares + other.squares,
            min(self.least, other.least),
            max(self.most, other.most),
        )

    @property
    def mean(self) -> float:
        """The mean, rounded once; not a number if there are no values."""
        return self.total / (self.count << UNIT_BITS) if self.count else math.nan

    @property
    def deviation(self) -> float:
        """The standard deviation of a sample (with count - 1), of a variance that is rounded once."""
        if self.count < 2:
            return 0.0
        scaled = self.count * (self.squares << UNIT_BITS) - self.total**2
        return math.sqrt(max(scaled, 0) / (self.count * (self.count - 1) << 2 * UNIT_BITS))


def _squares(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Square floats, with what rounding took away."""
    square = values * values
    wide = values * _SPLITTER
    high = wide - (wide - values)
    low = values - high
    return square, ((high * high - square) + 2 * high * low) + low * low
