"""Sources as lanes see them: each lane draws samples one after the other, and can go on from any cursor.

A source in which samples can be picked is an `IndexedLeaf`. One that can only be read forward is a `SequentialLeaf`
where nothing is shuffled, and a `ScanningLeaf` where whole shards are dealt to lanes. These two keep what they read for
other lanes of the same rank, and go on in the middle by reading again what lies before it in the shard.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from shoal.abc import Picks, Sample, Source, SupportsRandomAccess
from shoal.errors import PlanError
from shoal.order import Anchor, ElementOrder, Ids, Lengths, StreamOrder, Turn, Walk, sample_id, sample_ids

__all__ = ["Cursor", "Draw", "IndexedLeaf", "Leaf", "make_leaf", "picked", "way_of_reading"]

#: Where a lane is in a source: plain numbers, of a meaning that the kind of leaf knows.
Cursor: TypeAlias = tuple[int, ...]

T = TypeVar("T")

# Draws that are looked up at once for a lane, and for all lanes and leaves of a rank together.
_AHEAD, _LOOKED_UP = 256, 65_536


class Draw(NamedTuple):
    """One sample that a lane draws."""

    cursor: Cursor
    after: Cursor
    """The cursor of the next draw."""
    shard: int
    offset: int
    number: int
    """The pass."""
    id: int
    sample: Sample | None = None
    """The sample, if drawing it was reading it."""


class Leaf(ABC):
    """A source that is drawn from by the lanes of one rank."""

    start: Cursor

    def __init__(self, source: Source, walk: Walk, number: int) -> None:
        self.source, self.walk, self.number = source, walk, number
        self.shards = source.shards()
        self.lanes: Sequence[int] = range(walk.lanes)
        self.ahead = _AHEAD

    @abstractmethod
    def draw(self, lane: int) -> Draw | None:
        """Draw a lane's next sample; None is the end of the lane."""

    @abstractmethod
    def seek(self, cursors: dict[int, Cursor], again: Iterable[tuple[int, Cursor]], anchor: Sequence[int]) -> None:
        """Let lanes go on at cursors; ``again`` lists earlier draws that will be asked for once more."""

    @abstractmethod
    def redraws(self, places: Sequence[tuple[int, Cursor]]) -> list[Draw]:
        """Draw once more what lanes drew earlier, leaving the lanes where they are."""

    @abstractmethod
    def anchor(self, cursors: Iterable[tuple[int, Cursor]]) -> list[int]:
        """Give what has to be known beside the cursors to go on from them."""

    def ids_at(self, places: Sequence[tuple[int, Cursor]]) -> list[int | None]:
        """Give the ids of the samples at cursors without reading them, as far as they can be known."""
        return [None] * len(places)

    def own(self, lanes: Sequence[int], leaves: int) -> None:
        """Say which lanes will draw, and beside how many other leaves: what is not drawn need not be kept."""
        self.lanes = lanes
        self.ahead = min(max(_LOOKED_UP // (len(lanes) * leaves), 8), _AHEAD)

    def samples(self, draws: Sequence[Draw]) -> list[Sample]:
        """Read what was drawn."""
        return [draw.sample for draw in draws if draw.sample is not None]


class IndexedLeaf(Leaf):
    """A source whose samples can be picked: draw k of lane l is element kL + l of its order."""

    start = (0,)

    def __init__(self, source: Source, walk: Walk, number: int) -> None:
        super().__init__(source, walk, number)
        self._lengths = lengths_of(source)
        self.order = ElementOrder(walk, self._lengths)
        self._next: dict[int, int] = {}
        self._ahead: dict[int, deque[Draw]] = {}

    def draw(self, lane: int) -> Draw | None:
        if not self._ahead.get(lane):
            self._look_ahead(lane)
        drawn = self._ahead[lane].popleft() if self._ahead[lane] else None
        if drawn is not None:
            self._next[lane] = drawn.after[0]
        return drawn

    def seek(self, cursors: dict[int, Cursor], again: Iterable[tuple[int, Cursor]], anchor: Sequence[int]) -> None:
        self.order = ElementOrder(self.walk, self._lengths, Anchor(*anchor))
        self._next = {lane: cursor[0] for lane, cursor in cursors.items()}
        self._ahead = {}

    def redraws(self, places: Sequence[tuple[int, Cursor]]) -> list[Draw]:
        return self._draws(np.array([self._element(*place) for place in places], np.int64))

    def anchor(self, cursors: Iterable[tuple[int, Cursor]]) -> list[int]:
        return list(self.order.anchor(min((self._element(*place) for place in cursors), default=0)))

    def ids_at(self, places: Sequence[tuple[int, Cursor]]) -> list[int | None]:
        found = self.order.locate(np.array([self._element(*place) for place in places], np.int64))
        return sample_ids(found, self.number).tolist()  # type: ignore[no-any-return]

    def samples(self, draws: Sequence[Draw]) -> list[Sample]:
        shards, offsets = (np.array([getattr(draw, name) for draw in draws]) for name in ("shard", "offset"))
        return picked(self.source, Picks(self.shards, shards, offsets))

    def _element(self, lane: int, cursor: Cursor) -> int:
        return cursor[0] * self.walk.lanes + lane

    def _look_ahead(self, lane: int) -> None:
        """Look up the next draws of a lane, and of others that have run out of them: together that is cheaper.

        Only as many as need no lengths of shards that this lane does not need yet.
        """
        first = self._element(lane, (self._next.get(lane, 0),))
        horizon = max(self.order.horizon(first), first + 1)
        lanes = [lane, *(other for other in self.lanes if other != lane and not self._ahead.get(other))]
        firsts = np.array([self._element(each, (self._next.get(each, 0),)) for each in lanes])
        elements = firsts[:, None] + np.arange(self.ahead) * self.walk.lanes
        wanted = elements < horizon
        draws = iter(self._draws(elements[wanted]))
        for each, count in zip(lanes, wanted.sum(axis=1).tolist(), strict=True):
            self._ahead[each] = deque(draw for draw in islice(draws, count) if draw.shard >= 0)

    def _draws(self, elements: Ids) -> list[Draw]:
        found = self.order.locate(elements)
        ids = sample_ids(found, self.number).tolist()
        numbers = (elements // self.walk.lanes).tolist()
        columns = zip(numbers, *(column.tolist() for column in found), ids, strict=True)
        return [Draw((k,), (k + 1,), s, o, p, i) for k, s, o, p, i in columns]


class _Reading(Iterator[T]):
    """Something that is read; where it failed once it fails each time, and never seems to have ended."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._error: Exception | None = None

    def __next__(self) -> T:
        if self._error is not None:
            raise self._error
        try:
            return next(self._items)
        except StopIteration:
            raise
        except Exception as error:
            self._error = error
            raise


class _ForwardLeaf(Leaf):
    """A source that is read forward; what is not asked for yet is kept."""

    _said_replay = False

    def _read(self, number: int, start: int) -> Iterator[Sample]:
        for block in self.source.open(self.shards[number], start):
            yield from block.samples

    def _say_replay(self, number: int, start: int) -> None:
        if start and not self._said_replay:
            self._said_replay = True
            url = self.shards[number].url
            how = f"it is read again from its beginning to sample {start}"
            warnings.warn(f"{url} cannot be entered in the middle: to go on, {how}", stacklevel=2)


class SequentialLeaf(_ForwardLeaf):
    """Shards as they lie, read one after the other: sample i goes to lane i mod L."""

    start = (0,)

    def __init__(self, source: Source, walk: Walk, number: int) -> None:
        super().__init__(source, walk, number)
        self._next: dict[int, int] = {}
        self._again: set[int] = set()
        self._held: dict[int, Draw] = {}
        self._read_up_to = 0
        self._begun: list[tuple[int, int, int]] = []
        self._stream = _Reading(self._draws(0, 0, 0, 0))

    def draw(self, lane: int) -> Draw | None:
        drawn = self._until(self._next.get(lane, 0) * self.walk.lanes + lane)
        if drawn is not None:
            self._next[lane] = drawn.after[0]
        return drawn

    def seek(self, cursors: dict[int, Cursor], again: Iterable[tuple[int, Cursor]], anchor: Sequence[int]) -> None:
        number, shard, start, element = anchor
        self._next = {lane: cursor[0] for lane, cursor in cursors.items()}
        self._again = {self._element(lane, cursor) for lane, cursor in again}
        self._held, self._begun, self._read_up_to = {}, [(number, shard, start)], element
        self._say_replay(shard, element - start)
        self._stream = _Reading(self._draws(number, shard, start, element))

    def redraws(self, places: Sequence[tuple[int, Cursor]]) -> list[Draw]:
        return [self._redraw(lane, cursor) for lane, cursor in places]

    def _redraw(self, lane: int, cursor: Cursor) -> Draw:
        element = self._element(lane, cursor)
        drawn = self._until(element)
        if drawn is None:
            raise PlanError("a sample that was delivered before is not there any more: the source has changed")
        if element >= self._element(lane, (self._next.get(lane, 0),)):
            self._held[element] = drawn  # the lane itself will draw it once more
        return drawn

    def anchor(self, cursors: Iterable[tuple[int, Cursor]]) -> list[int]:
        first = min((self._element(lane, cursor) for lane, cursor in cursors), default=0)
        element = min(first, self._read_up_to)
        place = next((place for place in reversed(self._begun) if place[2] <= element), (0, 0, 0))
        return [*place, element]

    def _element(self, lane: int, cursor: Cursor) -> int:
        return cursor[0] * self.walk.lanes + lane

    def _until(self, element: int) -> Draw | None:
        if element in self._held:
            return self._held.pop(element)
        for at, drawn in self._stream:
            self._read_up_to = at + 1
            if at == element:
                return drawn
            if self._is_wanted(at):
                self._held[at] = drawn
        return None

    def _is_wanted(self, element: int) -> bool:
        lane = element % self.walk.lanes
        ahead = lane in self.lanes and element >= self._element(lane, (self._next.get(lane, 0),))
        return ahead or element in self._again

    def _draws(self, number: int, shard: int, start: int, element: int) -> Iterator[tuple[int, Draw]]:
        """Read from a shard on, which begins at element ``start``, passing over what lies before ``element``."""
        while True:
            before = start
            for at in range(shard, len(self.shards)):
                self._begun.append((number, at, start))
                offset = max(element - start, 0)
                for sample in self._read(at, offset):
                    yield start + offset, self._drawn(start + offset, at, offset, number, sample)
                    offset += 1
                start += offset
            if not self.walk.wrap or (start == before and not shard):
                return
            number, shard = number + 1, 0

    def _drawn(self, element: int, shard: int, offset: int, number: int, sample: Sample) -> Draw:
        k = element // self.walk.lanes
        return Draw((k,), (k + 1,), shard, offset, number, sample_id(shard, offset, number, self.number), sample)


class _Scan:
    """One shard that is read forward for the lanes that share it."""

    def __init__(self, samples: Iterator[Sample], start: int, is_wanted: Callable[[int], bool]) -> None:
        self._samples, self._at, self._is_wanted = samples, start, is_wanted
        self.held: dict[int, Sample] = {}

    def sample(self, offset: int) -> Sample | None:
        """Read on to a place; None if the shard ends before it."""
        if offset in self.held:
            return self.held.pop(offset)
        for sample in self._samples:
            at, self._at = self._at, self._at + 1
            if at == offset:
                return sample
            if self._is_wanted(at):
                self.held[at] = sample
        return None


class ScanningLeaf(_ForwardLeaf):
    """Whole shards for lanes; a cursor is a window and the number of samples drawn from it."""

    start = (0, 0)

    def __init__(self, source: Source, walk: Walk, number: int) -> None:
        super().__init__(source, walk, number)
        self._order = StreamOrder(walk)
        self._next: dict[int, Cursor] = {}
        self._again: set[tuple[int, Cursor]] = set()
        self._scans: dict[tuple[int, int], _Scan] = {}

    def draw(self, lane: int) -> Draw | None:
        window, count = self._next.get(lane, (0, 0))
        # So many turns without a sample are the end, also where passes follow one another for ever: a lane may have to
        # wait for its turn where there are few samples, or few shards that are not empty.
        for at in range(window, window + 16 * max(len(self.shards), self.walk.lanes)):
            turn = self._order.turn(lane, at)
            if turn is None:
                return None
            drawn = self._drawn((at, count if at == window else 0), turn)
            if drawn is not None:
                self._next[lane] = drawn.after
                return drawn
            self._next[lane] = (at + 1, 0)
            self._forget()
        return None

    def seek(self, cursors: dict[int, Cursor], again: Iterable[tuple[int, Cursor]], anchor: Sequence[int]) -> None:
        self._next = dict(cursors)
        self._again = set(again)
        self._scans = {}

    def redraws(self, places: Sequence[tuple[int, Cursor]]) -> list[Draw]:
        return [self._redraw(lane, cursor) for lane, cursor in places]

    def _redraw(self, lane: int, cursor: Cursor) -> Draw:
        turn = self._order.turn(lane, cursor[0])
        drawn = None if turn is None else self._drawn(cursor, turn)
        if drawn is None or drawn.sample is None:
            raise PlanError("a sample that was delivered before is not there any more: the source has changed")
        if cursor >= self._next.get(lane, (0, 0)):
            self._scans[cursor[0], drawn.shard].held[drawn.offset] = drawn.sample  # the lane will draw it once more
        return drawn

    def anchor(self, cursors: Iterable[tuple[int, Cursor]]) -> list[int]:
        return []

    def ids_at(self, places: Sequence[tuple[int, Cursor]]) -> list[int | None]:
        turns = [(self._order.turn(lane, window), count) for lane, (window, count) in places]
        return [None if turn is None else self._id(turn, turn.first + count * turn.step) for turn, count in turns]

    def _drawn(self, cursor: Cursor, turn: Turn) -> Draw | None:
        offset = turn.first + cursor[1] * turn.step
        sample = self._scan(cursor[0], turn).sample(offset)
        if sample is None:
            return None
        after = (cursor[0], cursor[1] + 1)
        return Draw(cursor, after, turn.shard, offset, turn.number, self._id(turn, offset), sample)

    def _id(self, turn: Turn, offset: int) -> int:
        return sample_id(turn.shard, offset, turn.number, self.number)

    def _scan(self, window: int, turn: Turn) -> _Scan:
        if (window, turn.shard) not in self._scans:
            ahead = self._needed(window, turn.shard)
            again = {
                other.first + cursor[1] * other.step
                for lane, cursor in self._again
                if cursor[0] == window and (other := self._order.turn(lane, window)) and other.shard == turn.shard
            }
            start = min([*ahead.values(), *again], default=0)
            self._say_replay(turn.shard, start if start >= turn.step else 0)

            def is_wanted(at: int) -> bool:
                return at in again or at >= ahead.get(at % turn.step, at + 1)

            self._scans[window, turn.shard] = _Scan(_Reading(self._read(turn.shard, start)), start, is_wanted)
        return self._scans[window, turn.shard]

    def _needed(self, window: int, shard: int) -> dict[int, int]:
        """Say for each share of a shard that a lane of this rank has, from which sample on it is needed."""
        needed = {}
        for lane in self.lanes:
            at, count = self._next.get(lane, (0, 0))
            turn = self._order.turn(lane, window)
            if turn is not None and turn.shard == shard and at <= window:
                needed[turn.first] = turn.first + (count if at == window else 0) * turn.step
        return needed

    def _forget(self) -> None:
        """Drop the scans that every lane has left."""
        reached = min(self._next.get(lane, (0, 0))[0] for lane in self.lanes)
        self._scans = {place: scan for place, scan in self._scans.items() if place[0] >= reached}


def lengths_of(source: Source) -> Lengths:
    """Give the function that counts the samples of shards by their number."""
    if not isinstance(source, SupportsRandomAccess):
        raise PlanError(f"{source} cannot tell the lengths of its shards, which this shuffle or several ranks need")
    shards, count = source.shards(), source.length

    def lengths(numbers: Ids) -> Ids:
        return np.array([count(shards[number]) for number in numbers.tolist()], np.int64)

    return lengths


def picked(source: Source, picks: Picks) -> list[Sample]:
    """Read samples, each shard's in one go."""
    assert isinstance(source, SupportsRandomAccess)
    samples: list[Any] = [None] * len(picks.numbers)
    for shard, places in picks.by_shard():
        taken = source.take(shard, picks.offsets[places].tolist())
        for place, sample in zip(places.tolist(), taken, strict=True):
            samples[place] = sample
    return samples


def way_of_reading(source: Source, walk_cut: str, mode: str | None) -> str:
    """Say how a source is read: ``"samples"`` by picking, ``"shards"`` by whole shards, or ``"forward"`` in order."""
    if walk_cut == "samples" or mode == "full":
        return "samples"
    if walk_cut == "shards":
        return "shards"
    if source.seekable:
        return "samples"
    return "forward" if mode is None else "shards"


def make_leaf(source: Source, walk: Walk, number: int, way: str) -> Leaf:
    """Open a source for drawing, in the way that was decided on."""
    kinds: dict[str, type[Leaf]] = {"samples": IndexedLeaf, "shards": ScanningLeaf, "forward": SequentialLeaf}
    return kinds[way](source, walk, number)
