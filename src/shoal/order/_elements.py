"""Which sample stands where: the elements of an epoch.

An epoch is a sequence of elements, and a bijection between them and the samples. Where a source is gone through several
times, the passes follow one another, each in an order of its own. Element e of a single source is slot e, so it belongs
to lane e mod L, and every lane has its share of each window, one more or less.

Lengths are asked for as late as possible: windows need those of their own shards and of the ones before. What has been
passed is kept as an anchor, so that going on in the middle asks for nothing but the windows around it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal.order._keys import Hashes, combine, combine_one, derive, scramble
from shoal.order._permute import permutation, permute, permute_sequences_in_chunks
from shoal.order._shuffle import Shuffle

__all__ = ["Anchor", "ElementOrder", "Ids", "Lengths", "Located", "Walk", "sample_id", "sample_ids"]

Ids: TypeAlias = NDArray[np.int64]
#: Counts the samples of the shards with these numbers.
Lengths: TypeAlias = Callable[[Ids], Ids]

_LAYOUTS = 8
_FAR = 2**62


class Located(NamedTuple):
    """Where samples are: the number of the shard (-1 behind the end), the place in it, and the pass.

    >>> order = ElementOrder(Walk(None, epoch=0, shards=1, lanes=4), lambda shards: np.array([2])[shards])
    >>> found = order.locate(np.arange(3))
    >>> found.shards.tolist(), found.offsets.tolist(), found.passes.tolist()
    ([0, 0, -1], [0, 1, 0], [0, 0, 0])
    """

    shards: Ids
    offsets: Ids
    passes: Ids


class Anchor(NamedTuple):
    """A place from which an order can be followed without asking for what came before.

    >>> walk, lengths = Walk(None, epoch=0, shards=2, lanes=4), lambda shards: np.array([2, 3])[shards]
    >>> ElementOrder(walk, lengths, Anchor()).locate(np.array([4])).shards.tolist()
    [1]
    """

    number: int = 0
    """The pass that the window is in."""
    window: int = 0
    start: int = 0
    """Elements of that pass before the window."""
    size: int = -1
    """Elements of a pass, -1 if not known yet."""


@dataclass(frozen=True, slots=True)
class Walk:
    """How an epoch goes through a source.

    >>> from shoal.order import Shuffle
    >>> walk = Walk(Shuffle("full", seed=0), epoch=3, shards=2, lanes=4)
    >>> sorted(ElementOrder(walk, lambda shards: np.array([2, 3])[shards]).locate(np.arange(5)).shards.tolist())
    [0, 0, 1, 1, 1]
    """

    shuffle: Shuffle | None
    epoch: int
    shards: int
    lanes: int
    wrap: bool = False
    """Whether another pass follows the last element."""
    limit: int | None = None
    """Elements of a pass that are used at most."""


def sample_ids(located: Located, component: int) -> Hashes:
    """Give each sample a number of its own, which follows from where it is and from the pass.

    >>> here = Located(np.array([0, 0]), np.array([0, 1]), np.array([0, 0]))
    >>> len(set(sample_ids(here, component=0).tolist()))
    2
    """
    hashes = combine(scramble(located.shards, derive("component", component)), located.offsets)
    return combine(hashes, located.passes)


def sample_id(shard: int, offset: int, number: int, component: int) -> int:
    """Do what `sample_ids` does, for a single sample.

    >>> here = Located(np.array([3]), np.array([4]), np.array([5]))
    >>> sample_id(3, 4, 5, component=1) == int(sample_ids(here, component=1)[0])
    True
    """
    return combine_one(combine_one(combine_one(derive("component", component), shard - 1), offset), number)


class ElementOrder:
    """The order of an epoch over a source whose samples can be picked one by one.

    >>> order = ElementOrder(Walk(None, epoch=0, shards=2, lanes=4), lambda shards: np.array([2, 3])[shards])
    >>> found = order.locate(np.arange(6))
    >>> found.shards.tolist(), found.offsets.tolist()
    ([0, 0, 1, 1, 1, -1], [0, 1, 0, 1, 2, 0])
    """

    def __init__(self, walk: Walk, lengths: Lengths, anchor: Anchor | None = None) -> None:
        self._walk = walk
        self._lengths = lengths
        self._anchor = anchor or Anchor()
        self._size = None if self._anchor.size < 0 else self._anchor.size
        self._passes: dict[int, _Pass] = {}

    def locate(self, elements: Ids) -> Located:
        """Find the samples of some elements."""
        elements = np.asarray(elements, np.int64)
        numbers, places = self._split(elements)
        if len(elements) and numbers.min() == numbers.max() and places.max() < self._limit:
            return Located(*self._pass(int(numbers[0])).locate(places), numbers)
        found = Located(
            np.full(len(elements), -1), np.zeros(len(elements), np.int64), np.zeros(len(elements), np.int64)
        )
        for number in np.unique(numbers).tolist():
            chosen = np.flatnonzero((numbers == number) & (places < self._limit))
            if len(chosen):
                found.shards[chosen], found.offsets[chosen] = self._pass(number).locate(places[chosen])
                found.passes[chosen] = number
        return found

    def horizon(self, element: int) -> int:
        """Say up to where elements can be located once this one is, without asking for further lengths."""
        numbers, places = self._split(np.array([element]))
        number, place = int(numbers[0]), int(places[0])
        reach = self._pass(number).reach(place) if place < self._limit else self._limit
        return element - place + min(reach, self._limit)

    def spans(self, elements: Ids) -> tuple[Ids, Ids]:
        """Say where the window of each element begins and where it ends; behind the end of all, both are the end."""
        numbers, places = self._split(np.asarray(elements, np.int64))
        begins, ends = np.empty_like(places), np.empty_like(places)
        for number in np.unique(numbers).tolist():
            chosen = numbers == number
            begins[chosen], ends[chosen] = self._pass(number).spans(places[chosen])
        passed = elements - places
        return passed + np.minimum(begins, self._limit), passed + np.minimum(ends, self._limit)

    def anchor(self, element: int) -> Anchor:
        """Give the place from which this element and all behind it can be found."""
        numbers, places = self._split(np.array([element]))
        number = int(numbers[0])
        size = -1 if self._size is None else self._size
        return Anchor(number, *self._pass(number).window_of(min(int(places[0]), self._limit)), size)

    @property
    def _limit(self) -> int:
        return _FAR if self._walk.limit is None else self._walk.limit

    def _split(self, elements: Ids) -> tuple[Ids, Ids]:
        """Tell in which pass, and where in it, elements are."""
        if self._walk.wrap and self._size is None and len(elements):
            first = self._pass(0)
            reach = first.reach(min(int(elements.max()), self._limit - 1))
            if first.end is not None or reach >= self._limit:
                self._size = min(reach, self._limit)
        if not self._walk.wrap or not self._size:  # not known: all of them are in the first; 0: there are none
            return np.zeros(len(elements), np.int64), elements
        numbers, places = np.divmod(elements, self._size)
        return numbers, places

    def _pass(self, number: int) -> _Pass:
        if number not in self._passes:
            walk, anchor = self._walk, self._anchor
            if walk.shuffle is not None and walk.shuffle.mode == "full":
                made: _Pass = _Full(walk, self._lengths, number)
            else:
                begin = (anchor.window, anchor.start) if anchor.number == number else (0, 0)
                made = _Windows(walk, self._lengths, number, begin)
            self._passes = {other: known for other, known in self._passes.items() if abs(other - number) <= 1}
            self._passes[number] = made
        return self._passes[number]


class _Pass(ABC):
    """The order of one pass through a source."""

    end: int | None = None
    """Elements of the pass, once that is known."""

    @abstractmethod
    def locate(self, places: Ids) -> tuple[Ids, Ids]:
        """Give shards (-1 behind the end) and offsets."""

    @abstractmethod
    def reach(self, place: int) -> int:
        """Make a place locatable and say up to where others are then."""

    @abstractmethod
    def spans(self, places: Ids) -> tuple[Ids, Ids]:
        """Give begin and end of the windows that places are in."""

    def window_of(self, place: int) -> tuple[int, int]:
        """Give the number and the start of the window a place is in."""
        return 0, 0


class _Full(_Pass):
    """A permutation of all samples."""

    def __init__(self, walk: Walk, lengths: Lengths, number: int) -> None:
        assert walk.shuffle is not None
        self._ends = np.cumsum(lengths(np.arange(walk.shards)), dtype=np.int64)
        self.end = int(self._ends[-1]) if walk.shards else 0
        self._key = derive("full", walk.shuffle.seed, walk.epoch, number)

    def reach(self, place: int) -> int:
        assert self.end is not None
        return self.end

    def spans(self, places: Ids) -> tuple[Ids, Ids]:
        assert self.end is not None
        return np.where(places < self.end, 0, self.end), np.full(len(places), self.end)

    def locate(self, places: Ids) -> tuple[Ids, Ids]:
        assert self.end is not None
        shards, offsets = np.full(len(places), -1), np.zeros(len(places), np.int64)
        inside = places < self.end
        if inside.any():
            picked = permute(places[inside], self.end, self._key)
            shards[inside], offsets[inside] = _in_shards(picked, self._ends)
        return shards, offsets


@dataclass(frozen=True, slots=True)
class _Layout:
    """The inside of a window."""

    shards: Ids
    ends: Ids
    """Where in the window each of its shards ends."""
    columns: Ids
    """Where the run of each column begins: those of its samples that one lane reads."""
    key: int


class _Windows(_Pass):
    """Windows of consecutive shards, which are shuffled or as they lie."""

    def __init__(self, walk: Walk, lengths: Lengths, number: int, begin: tuple[int, int]) -> None:
        self._walk, self._lengths, self._number = walk, lengths, number
        self._width = 1 if walk.shuffle is None else walk.shuffle.window
        self._count = -(-walk.shards // self._width)
        self._first, start = begin
        self._starts = [start]
        self._layouts: dict[int, _Layout] = {}
        self._order: Ids | None = None
        self._known: dict[int, Ids] = {}

    def reach(self, place: int) -> int:
        while self._starts[-1] <= place:
            window = self._first + len(self._starts) - 1
            if window >= self._count:
                self.end = self._starts[-1]
                return self.end
            self._starts.append(self._starts[-1] + int(self._sizes(window).sum()))
        return self._starts[-1]

    def spans(self, places: Ids) -> tuple[Ids, Ids]:
        windows = self._windows(places)
        first, last = int(windows.min()), int(windows.max())
        starts = np.array(self._starts[first : last + 2])
        return starts[windows - first], starts[np.minimum(windows - first + 1, len(starts) - 1)]

    def window_of(self, place: int) -> tuple[int, int]:
        at = int(self._windows(np.array([place]))[0])
        return self._first + at, self._starts[at]

    def locate(self, places: Ids) -> tuple[Ids, Ids]:
        shards, offsets = np.full(len(places), -1), np.zeros(len(places), np.int64)
        if not len(places):
            return shards, offsets
        windows = self._windows(places)
        low, high = int(windows.min()), int(windows.max())
        if low == high < len(self._starts) - 1:
            return self._inside(self._first + low, places - self._starts[low])
        for at in np.unique(windows[windows < len(self._starts) - 1]).tolist():
            chosen = windows == at
            shards[chosen], offsets[chosen] = self._inside(self._first + at, places[chosen] - self._starts[at])
        return shards, offsets

    def _windows(self, places: Ids) -> Ids:
        """Find the windows of places, counted from the first that is known."""
        low, high = int(places.min()), int(places.max())
        self.reach(high)
        if low < self._starts[0]:
            raise ValueError("the order was taken up behind the place that is asked for")
        first = bisect_right(self._starts, low) - 1
        near = self._starts[first : bisect_right(self._starts, high)]
        return first + np.searchsorted(near, places, side="right") - 1

    def _inside(self, window: int, places: Ids) -> tuple[Ids, Ids]:
        layout = self._layout(window)
        shuffle = self._walk.shuffle
        if shuffle is not None:
            rows, columns = np.divmod(places, self._walk.lanes)
            size, rest = divmod(int(layout.ends[-1]), self._walk.lanes)
            lanes = np.arange(self._walk.lanes)
            keys, lengths = scramble(lanes, layout.key), size + (lanes < rest)
            places = layout.columns[columns] + permute_sequences_in_chunks(rows, columns, lengths, shuffle.chunk, keys)
        found, offsets = _in_shards(places, layout.ends)
        return layout.shards[found], offsets

    def _layout(self, window: int) -> _Layout:
        if window not in self._layouts:
            while len(self._layouts) >= _LAYOUTS:
                del self._layouts[min(self._layouts)]
            self._layouts[window] = self._laid_out(window)
        return self._layouts[window]

    def _laid_out(self, window: int) -> _Layout:
        ends = np.cumsum(self._sizes(window), dtype=np.int64)
        shuffle = self._walk.shuffle
        if shuffle is None:
            return _Layout(self._members(window), ends, np.empty(0, np.int64), 0)
        key = derive("window", shuffle.seed, self._walk.epoch, self._number, window)
        size, rest = divmod(int(ends[-1]), self._walk.lanes)
        # The runs lie in the window in a keyed order of the columns; the first `rest` columns have one sample more.
        order = permutation(self._walk.lanes, key)
        sizes = size + (order < rest)
        columns = np.empty(self._walk.lanes, np.int64)
        columns[order] = np.cumsum(sizes) - sizes
        return _Layout(self._members(window), ends, columns, key)

    def _sizes(self, window: int) -> Ids:
        if window not in self._known:
            while len(self._known) >= _LAYOUTS:
                del self._known[min(self._known)]
            self._known[window] = np.asarray(self._lengths(self._members(window)), np.int64)
        return self._known[window]

    def _members(self, window: int) -> Ids:
        low, high = window * self._width, min((window + 1) * self._width, self._walk.shards)
        if self._walk.shuffle is None:
            return np.arange(low, high)
        if self._order is None:
            key = derive("shards", self._walk.shuffle.seed, self._walk.epoch, self._number)
            self._order = permutation(self._walk.shards, key)
        return self._order[low:high]


def _in_shards(places: Ids, ends: Ids) -> tuple[Ids, Ids]:
    """Find places, counted through several shards, in the shards."""
    shards = np.searchsorted(ends, places, side="right")
    return shards, places - np.concatenate([[0], ends])[shards]
