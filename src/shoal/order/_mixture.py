"""Which component of a mixture is drawn next.

Draw k of a lane takes the component that lies furthest behind its share: the largest target(k + 1) - drawn, where the
target is the weight times the draws, or its sum over a schedule. Nothing is random, and each lane keeps the shares by
itself: of n components none is ever ahead of its target by more than 1 - 1/n samples, and none behind it by more than
1/2 + 1/3 + ... + 1/n, whatever the weights (for most, by less than one).

Lanes that all began with the same draw would go on alike, and batches would be of one component each. So a lane begins
as if it had drawn a number of samples before: its phase. With the number of the lane as its phase, slots that follow
one another hold the shares, too: with fixed weights, lane l goes through the draws of lane 0 from draw l on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import fsum, inf, isfinite, log1p
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal.errors import PlanError

__all__ = ["Mixing", "Weights"]

Floats: TypeAlias = NDArray[np.float64]
Live: TypeAlias = NDArray[np.bool_]

# Phases are counted up to here, and then from 0 again: a phase costs as many draws, each time a lane begins.
_PHASES = 256
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class Weights:
    """Shares of the components, fixed or as a schedule over the samples drawn by the whole world.

    >>> Weights.of([3, 1]).points
    ((0, (0.75, 0.25)),)
    >>> Weights.of([(0, [1, 0]), (1000, [1, 1])], ramp=True).points[1]
    (1000, (0.5, 0.5))
    """

    points: tuple[tuple[int, tuple[float, ...]], ...]
    """From so many samples on, these shares; they add up to 1."""
    ramp: bool = False
    """Whether shares go from one point to the next in a straight line, and not in one step."""

    @classmethod
    def of(cls, weights: Sequence[Any], *, ramp: bool = False) -> Weights:
        """Read weights as users write them: numbers, or pairs of samples drawn and numbers."""
        plain = all(isinstance(weight, Real) for weight in weights)
        points = [(0, weights)] if plain else list(weights)
        try:
            made = tuple((int(samples), _shares(values)) for samples, values in points)
        except (TypeError, ValueError) as error:
            if isinstance(error, PlanError):
                raise
            hint = "they are numbers, or pairs (samples drawn, numbers)"
            raise PlanError(f"weights {weights!r} cannot be read; {hint}") from None
        if not made or made[0][0] != 0 or any(a[0] >= b[0] for a, b in pairwise(made)):
            raise PlanError("a schedule of weights begins with sample 0, and its samples increase")
        if len({len(shares) for _, shares in made}) > 1:
            raise PlanError("the points of a schedule have different numbers of weights")
        return cls(made, ramp)

    def __len__(self) -> int:
        return len(self.points[0][1])

    def targets(self, samples: float, live: Live | None = None) -> Floats:
        """Sum up the shares over the first ``samples`` draws; those who are ``live`` share all of it."""
        total = np.zeros(len(self))
        for begin, end, here, there in self._stretches(live):
            if samples <= begin:
                break
            total += _sum_of_shares(here, there, min(samples, end) - begin, end - begin)
        return total

    def phases(self, phase: int) -> tuple[int, ...]:
        """Say in which phase components begin that are mixtures themselves: what they have of the draws of this one.

        >>> Weights.of([3, 1]).phases(6)
        (5, 1)
        """
        return _draws(tuple(self.typical(np.ones(len(self), bool)).tolist()), phase % _PHASES)

    def typical(self, live: Live) -> Floats:
        """Give the shares by which lanes that are ``live`` get out of step with one another."""
        shares = np.where(live, np.mean([shares for _, shares in self.points], axis=0), 0)
        if len(self.points) > 1:  # no simple fractions, which would give few different phases to what comes later
            shares = shares * (1 + 0.1 * (np.arange(len(self)) * _GOLDEN % 1))
        total = fsum(shares.tolist())
        return shares / total if total and (len(self.points) > 1 or not live.all()) else shares

    def is_idle(self, samples: int) -> Live:
        """Tell which components have no share at this point."""
        begin, end, here, there = next(each for each in self._stretches(None) if samples < each[1])
        idle: Live = here + (there - here) * ((samples - begin) / (end - begin)) <= 0
        return idle

    def has_share(self, samples: int, live: Live) -> bool:
        """Tell whether any of those who are ``live`` has a share after so many samples."""
        return any(end > samples and (here.any() or there.any()) for _, end, here, there in self._stretches(live))

    def _stretches(self, live: Live | None) -> Iterator[tuple[int, float, Floats, Floats]]:
        """Cut the schedule at its points: from where to where, and the shares at both ends."""
        rows = [
            (begin, np.array(shares) if live is None else np.where(live, shares, 0)) for begin, shares in self.points
        ]
        for number, (begin, here) in enumerate(rows):
            end, there = rows[number + 1] if number + 1 < len(rows) else (inf, here)
            there = there if self.ramp else here
            if not here.any() and not there.any():  # the turn of those who are left comes early
                here = there = next((later for _, later in rows[number:] if later.any()), here)
            yield begin, end, here, there


class Mixing:
    """What one lane has drawn of each component.

    >>> lane = Mixing(Weights.of([3, 1]), lanes=1)
    >>> [lane.draw() for _ in range(8)]
    [0, 0, 1, 0, 0, 0, 1, 0]
    >>> [Mixing(Weights.of([3, 1]), lanes=8, phase=phase).draw() for phase in range(8)]
    [0, 0, 1, 0, 0, 0, 1, 0]
    """

    __slots__ = ("_all_live", "_base", "_before", "_counts", "_drawn", "_fixed", "_lanes", "_live", "_phase", "_start",
                 "_typical", "_weights")  # fmt: skip

    def __init__(self, weights: Weights, lanes: int, phase: int = 0) -> None:
        self._weights, self._lanes, self._phase = weights, lanes, phase % _PHASES
        self._counts = np.zeros(len(weights), np.int64)
        self._base, self._start = self._counts.copy(), 0
        self._drawn = 0
        self._leave(np.ones(len(weights), bool))
        self._begin()

    def copy(self) -> Mixing:
        """Give one that can be drawn from without changing this one."""
        other = Mixing(self._weights, self._lanes, self._phase)
        other.load(self.mark())
        return other

    def draw(self) -> int | None:
        """Choose the next component and count it; None where no component is left."""
        chosen = self.choose()
        if chosen is not None:
            self.count(chosen)
        return chosen

    def choose(self) -> int | None:
        """Choose the next component."""
        due = self._due(self._drawn + 1)
        if due is None:
            return None
        due += self._base - self._before - self._counts
        if not self._all_live:
            due[~self._live] = -np.inf
        return int(due.argmax())

    def count(self, component: int) -> None:
        """Count a draw that was decided on before."""
        self._counts[component] += 1
        self._drawn += 1

    def drop(self, component: int) -> None:
        """Share out the part of a component that has nothing left, from here on."""
        self._leave(self._live & (np.arange(len(self._live)) != component))
        self._rebase()

    def mark(self) -> tuple[Any, ...]:
        """Say where this lane is, in plain numbers."""
        rebased = () if not self._start else (self._start, *self._base.tolist())
        return tuple(self._counts.tolist()), rebased, tuple(np.flatnonzero(~self._live).tolist())

    def load(self, mark: Sequence[Any], *, new_weights: bool = False) -> None:
        """Go on from a mark; weights that were changed hold for what is drawn from here on."""
        counts, rebased, dead = mark
        self._counts = np.array(counts, np.int64)
        self._start, *base = rebased or (0, *[0] * len(self._counts))
        self._base = np.array(base, np.int64)
        self._drawn = int(self._counts.sum())
        self._leave(~np.isin(np.arange(len(self._counts)), list(dead)))
        self._begin()
        if new_weights:
            self._rebase()

    def _leave(self, live: Live) -> None:
        """Note who is left and, where weights are fixed, what share each of them has."""
        self._live, self._all_live = live, bool(live.all())
        self._fixed: Floats | None = None
        if len(self._weights.points) == 1:
            shares = np.where(live, self._weights.points[0][1], 0)
            self._fixed = shares if self._all_live else shares / (fsum(shares.tolist()) or 1)

    def _rebase(self) -> None:
        self._base, self._start = self._counts.copy(), self._drawn
        self._begin()

    def _begin(self) -> None:
        """Note the draws before the first one, which were never made."""
        self._typical = self._weights.typical(self._live)
        self._before = np.array(_draws(tuple(self._typical.tolist()), self._phase), np.int64)
        if self._fixed is None and self._phase:
            self._leave_claims(self._weights.is_idle(self._start * self._lanes) | ~self._live)

    def _leave_claims(self, idle: Live) -> None:
        """Let those whose turn has not come yet leave what they could claim from before to the others."""
        claims = self._typical * self._phase - self._before
        for component in np.flatnonzero(idle & (claims > 0)).tolist() if not idle.all() else ():
            least = int(np.where(idle, np.inf, claims).argmin())
            whole = int(np.ceil(claims[component]))
            self._before[[component, least]] += (whole, -whole)
            claims[[component, least]] += (-whole, whole)

    def _due(self, draws: int) -> Floats | None:
        """Say how much of each component is due since the beginning; None if none has a share."""
        if self._fixed is not None:
            return self._fixed * (draws - self._start + self._phase) if self._fixed.any() else None
        weights, live = self._weights, None if self._all_live else self._live
        if live is not None and not weights.has_share(self._drawn * self._lanes, live):
            return None
        grown = weights.targets(draws * self._lanes, live) - weights.targets(self._start * self._lanes, live)
        return grown / self._lanes + self._typical * self._phase


@lru_cache(maxsize=4 * _PHASES)
def _draws(shares: tuple[float, ...], count: int) -> tuple[int, ...]:
    """Count what each component has of the first draws."""
    drawn = [0] * len(shares)
    for number in range(1, count + 1 if any(shares) else 1):
        behind = [share * number - had for share, had in zip(shares, drawn, strict=True)]
        drawn[behind.index(max(behind))] += 1
    return tuple(drawn)


def _sum_of_shares(here: Floats, there: Floats, width: float, length: float) -> Floats:
    """Sum up shares over the first part of a stretch on which they go from one to another in a straight line.

    What is summed up are their proportions: they count as adding up to 1 everywhere.
    """
    begin, end = fsum(here.tolist()), fsum(there.tolist())
    if not begin or not end:  # on a line from or to nothing the proportions stay the same
        return (here + there) * (width / ((begin + end) or 1))
    part = width / length
    grown = (end / begin - 1) * part
    # The integrals of 1 / (1 + gx) and x / (1 + gx) over x from 0 to 1; near g = 0 their series, as digits cancel out.
    if abs(grown) < 1e-3:
        flat = 1 - grown / 2 + grown**2 / 3 - grown**3 / 4
        sloped = 1 / 2 - grown / 3 + grown**2 / 4 - grown**3 / 5
    else:
        flat = log1p(grown) / grown
        sloped = (1 - flat) / grown
    return (here * flat + (there - here) * (part * sloped)) * (width / begin)


def _shares(values: Sequence[Any]) -> tuple[float, ...]:
    numbers = [float(value) for value in values]
    total = fsum(numbers)
    if not numbers or not isfinite(total) or total <= 0 or min(numbers) < 0:
        raise PlanError(f"weights are numbers that are not negative, and one of them is above 0; got {list(values)!r}")
    return tuple(number / total for number in numbers)
