"""What a loader must deliver, worked out in plain lists: lane by lane, without threads, blocks, cursors or resuming.

Which sample is which element of an epoch, and which component a mixture draws, is asked of `shoal.order`; all else is
written again here, from what the docs say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from shoal.order import ElementOrder, Mixing, Shuffle, StreamOrder, Walk, Weights, combine_one, derive, sample_id
from shoal.pipeline._random import keyed_generators

__all__ = [
    "Blend",
    "Drawn",
    "Epoch",
    "First",
    "Grouped",
    "Hopeless",
    "Item",
    "Kept",
    "Mapped",
    "Model",
    "Packed",
    "Samples",
    "Spread",
    "Stage",
]

Sample: TypeAlias = dict[str, Any]


class Hopeless(Exception):
    """A lane that begins again and again finds so little that how long it goes on is no matter of order."""


@dataclass(frozen=True)
class Samples:
    """A source: its shards as lists, and how they are gone through."""

    shards: tuple[tuple[Sample, ...], ...]
    way: str = "samples"
    """``"samples"`` are picked; whole ``"shards"`` are dealt to lanes; ``"forward"`` as they lie."""
    shuffle: Shuffle | None = None
    stages_before: int = 0
    """Stages between the source and what is modelled: they have numbers, too."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(map(len, self.shards))}, {self.way!r}, {self.shuffle})"


@dataclass(frozen=True)
class Blend:
    """A mixture."""

    parts: tuple[Model, ...]
    weights: Weights
    exhausted: str = "stop"


@dataclass(frozen=True)
class Mapped:
    function: Callable[[Sample], Sample]


@dataclass(frozen=True)
class Drawn:
    """A map that is random."""

    function: Callable[[Sample, np.random.Generator], Sample]


@dataclass(frozen=True)
class Kept:
    function: Callable[[Sample], bool]


@dataclass(frozen=True)
class Spread:
    function: Callable[[Sample], Sequence[Sample]]


@dataclass(frozen=True)
class First:
    count: int


@dataclass(frozen=True)
class Grouped:
    """Batches and buckets."""

    unit: str
    """``"size"``, ``"tokens"`` or ``"bytes"``."""
    limit: int
    boundaries: tuple[int, ...] = ()
    pad: bool = False
    partial: bool = True


@dataclass(frozen=True)
class Packed:
    length: int
    method: str = "first-fit"
    bins: int = 16
    long: str = "error"
    pad: int | None = 0
    partial: bool = True


Stage: TypeAlias = Mapped | Drawn | Kept | Spread | First | Grouped | Packed


@dataclass(frozen=True)
class Model:
    """A source or a mixture, and what is done to its samples."""

    origin: Samples | Blend
    stages: tuple[Stage, ...] = ()

    @property
    def seed(self) -> int:
        if isinstance(self.origin, Blend):
            return derive("mixture", *(part.seed for part in self.origin.parts))
        return 0 if self.origin.shuffle is None else self.origin.shuffle.seed

    @property
    def depth(self) -> int:
        return 1 + max(part.depth for part in self.origin.parts) if isinstance(self.origin, Blend) else 0

    @property
    def leaves(self) -> int:
        return sum(part.leaves for part in self.origin.parts) if isinstance(self.origin, Blend) else 1


class Item(NamedTuple):
    """A sample on its way, or a range of its tokens, and its number."""

    sample: Sample
    id: int
    start: int = 0
    stop: int = 0


class Epoch:
    """The slots of one epoch."""

    def __init__(self, model: Model, lanes: int, epoch: int, *, wrap: bool = False) -> None:
        self._lanes = lanes
        self._searches = [_Search(lanes) for _ in range(lanes)]
        self._streams = [_Lane(lane, lanes, epoch, self._searches[lane]).items(model, 0, wrap) for lane in range(lanes)]
        self._known: list[list[Item]] = [[] for _ in range(lanes)]
        self._ended = [False] * lanes

    def at(self, slot: int) -> Item | None:
        """Give what is in a slot; None is a hole."""
        index, lane = divmod(slot, self._lanes)
        known = self._known[lane]
        while len(known) <= index and not self._ended[lane]:
            self._searches[lane].begin()
            item = next(self._streams[lane], None)
            if item is None:
                self._ended[lane] = True
            else:
                known.append(item)
        return known[index] if index < len(known) else None

    def is_over(self, slot: int) -> bool:
        """Tell whether there is nothing from a slot on."""
        return all(self.at(later) is None for later in range(slot, slot + self._lanes))

    def digest(self, slot: int) -> int:
        """Sum up what is in the slots before one."""
        found = ((at, self.at(at)) for at in range(slot))
        return sum(combine_one(item.id, at) for at, item in found if item is not None) % 2**64


class _Search:
    """How many passes a lane went through for one output."""

    def __init__(self, passes: int) -> None:
        self._passes = passes
        self._first: dict[int, int] = {}

    def begin(self) -> None:
        self._first = {}

    def saw(self, leaf: int, number: int) -> None:
        if number > self._first.setdefault(leaf, number) + self._passes:
            raise Hopeless


class _Lane:
    def __init__(self, lane: int, lanes: int, epoch: int, search: _Search) -> None:
        self._lane, self._lanes, self._epoch, self._search = lane, lanes, epoch, search

    def items(self, model: Model, leaf: int, wrap: bool, phase: int | None = None) -> Iterator[Item]:
        phase = self._lane if phase is None else phase
        stages, before = list(model.stages), 0
        if isinstance(model.origin, Blend):
            items = self._blend(model.origin, leaf, wrap, phase)
        else:
            before = model.origin.stages_before
            limit = None
            if wrap and any(isinstance(stage, First) for stage in stages):
                limit = min(stage.count for stage in stages if isinstance(stage, First))
            items = self._source(model.origin, leaf, wrap, limit)
        salt = derive("salt", model.seed, self._epoch)
        for number, stage in enumerate(stages, model.depth * 1000 + before):
            if not (isinstance(stage, First) and wrap):
                items = self._staged(stage, items, salt, number)
        return items

    # Sources

    def _source(self, source: Samples, leaf: int, wrap: bool, limit: int | None) -> Iterator[Item]:
        if not any(source.shards) or limit == 0:
            return
        places = self._dealt(source, wrap) if source.way == "shards" else self._elements(source, wrap, limit)
        for shard, offset, number in places:
            if wrap:
                self._search.saw(leaf, number)
            yield Item(source.shards[shard][offset], sample_id(shard, offset, number, leaf))

    def _elements(self, source: Samples, wrap: bool, limit: int | None) -> Iterator[tuple[int, int, int]]:
        """Element kL + l for k = 0, 1, ..., of one pass or of passes that follow one another."""
        flat = [(shard, offset) for shard, samples in enumerate(source.shards) for offset in range(len(samples))]
        size = len(flat) if limit is None else min(limit, len(flat))
        walk = Walk(source.shuffle, self._epoch, len(source.shards), self._lanes, wrap, limit)
        order = ElementOrder(walk, lambda shards: np.array([len(source.shards[shard]) for shard in shards.tolist()]))
        for element in count(self._lane, self._lanes):
            number, place = divmod(element, size)
            if number and not wrap:
                return
            if source.shuffle is None:
                yield (*flat[place], number)
            else:
                yield tuple(int(column[0]) for column in order.locate(np.array([element])))  # type: ignore[misc]

    def _dealt(self, source: Samples, wrap: bool) -> Iterator[tuple[int, int, int]]:
        order = StreamOrder(Walk(source.shuffle, self._epoch, len(source.shards), self._lanes, wrap))
        vain = 0
        for window in count():
            turn = order.turn(self._lane, window)
            if turn is None:
                return
            offsets = range(turn.first, len(source.shards[turn.shard]), turn.step)
            for offset in offsets:
                yield turn.shard, offset, turn.number
            vain = 0 if offsets else vain + 1
            if wrap and vain > 4 * max(len(source.shards), self._lanes):
                raise Hopeless

    def _blend(self, blend: Blend, leaf: int, wrap: bool, phase: int) -> Iterator[Item]:
        streams = []
        for part, begin in zip(blend.parts, blend.weights.phases(phase), strict=True):
            streams.append(self.items(part, leaf, wrap or blend.exhausted == "wrap", begin))
            leaf += part.leaves
        mixing = Mixing(blend.weights, self._lanes, phase)
        while (chosen := mixing.choose()) is not None:
            item = next(streams[chosen], None)
            if item is not None:
                mixing.count(chosen)
                yield item
            elif blend.exhausted == "stop":
                return
            else:
                mixing.drop(chosen)

    # Stages

    def _staged(self, stage: Stage, items: Iterator[Item], salt: int, number: int) -> Iterator[Item]:
        match stage:
            case Mapped(function):
                return (Item(_keyed(function(item.sample), item.sample["__key__"]), item.id) for item in items)
            case Drawn(function):
                return (Item(function(item.sample, _generator(item.id, salt, number)), item.id) for item in items)
            case Kept(function):
                return (item for item in items if function(item.sample))
            case Spread(function):
                return _spread(function, items)
            case First(count):
                return islice(items, len(range(self._lane, count, self._lanes)))
            case Grouped():
                return _grouped(stage, items)
            case Packed():
                return _packed(stage, items)


def _generator(item: int, salt: int, number: int) -> np.random.Generator:
    return next(keyed_generators(np.array([item], np.uint64), salt, number))


def _keyed(sample: Sample, key: Any) -> Sample:
    return {"__key__": key, **sample}


def _spread(function: Callable[[Sample], Sequence[Sample]], items: Iterator[Item]) -> Iterator[Item]:
    for item in items:
        for number, child in enumerate(function(item.sample)):
            yield Item(_keyed(child, f"{item.sample['__key__']}-{number}"), combine_one(item.id, number))


def _joined(parts: Sequence[Item]) -> int:
    merged = 0
    for part in parts:
        merged = combine_one(combine_one(merged, part.id), part.start)
    return merged


def _grouped(stage: Grouped, items: Iterator[Item]) -> Iterator[Item]:
    buckets: list[list[Item]] = [[] for _ in range(len(stage.boundaries) + 1)]

    def total(members: list[Item]) -> int:
        costs = [_cost(stage.unit, member.sample) for member in members]
        return max(costs) * len(costs) if stage.pad and stage.unit == "tokens" else sum(costs)

    for item in items:
        at = sum(len(item.sample["tokens"]) >= boundary for boundary in stage.boundaries)
        if buckets[at] and total([*buckets[at], item]) > stage.limit:
            yield _batch(buckets[at], stage.pad)
            buckets[at] = []
        buckets[at].append(item)
        if total(buckets[at]) == stage.limit:
            yield _batch(buckets[at], stage.pad)
            buckets[at] = []
    for members in buckets:
        if members and stage.partial:
            yield _batch(members, stage.pad)


def _cost(unit: str, sample: Sample) -> int:
    if unit == "size":
        return 1
    if unit == "tokens":
        return len(sample["tokens"])
    return sum(len(v) if isinstance(v, str) else 8 * len(v) if isinstance(v, tuple) else 8 for v in sample.values())


def _batch(members: list[Item], pad: bool) -> Item:
    samples = [dict(member.sample) for member in members]
    if pad:
        longest = max(len(sample["tokens"]) for sample in samples)
        for sample in samples:
            sample["tokens"] = (*sample["tokens"], *[0] * (longest - len(sample["tokens"])))
    return Item({name: [sample[name] for sample in samples] for name in samples[0]}, _joined(members))


def _packed(stage: Packed, items: Iterator[Item]) -> Iterator[Item]:
    pieces = (item._replace(stop=len(item.sample["tokens"])) for item in items)
    pack = _first_fit if stage.method == "first-fit" else _concat
    return (_sequence(stage, parts) for parts in pack(stage, pieces))


def _first_fit(stage: Packed, pieces: Iterator[Item]) -> Iterator[list[Item]]:
    bins: list[list[Item]] = []
    for whole in pieces:
        for piece in _fitting(stage, whole):
            size = piece.stop - piece.start
            target = next((each for each in bins if _filling(each) + size <= stage.length), None)
            if target is None:
                target = []
                bins.append(target)
            target.append(piece)
            leaving = target if _filling(target) == stage.length else None
            if leaving is None and len(bins) > stage.bins:
                leaving = max(bins, key=_filling)
            if leaving is not None:
                bins = [each for each in bins if each is not leaving]
                yield leaving
    if stage.partial:
        yield from bins


def _fitting(stage: Packed, whole: Item) -> list[Item]:
    """Cut what is too long."""
    cuts = range(0, whole.stop, stage.length)
    if whole.stop > stage.length and stage.long != "split":
        assert stage.long in ("truncate", "drop")
        cuts = cuts[: stage.long == "truncate"]
    return [whole._replace(start=at, stop=min(at + stage.length, whole.stop)) for at in cuts]


def _concat(stage: Packed, pieces: Iterator[Item]) -> Iterator[list[Item]]:
    held: list[Item] = []
    for piece in pieces:
        at = 0
        while at < piece.stop:
            end = min(at + stage.length - _filling(held), piece.stop)
            held.append(piece._replace(start=at, stop=end))
            at = end
            if _filling(held) == stage.length:
                yield held
                held = []
    if held and stage.partial:
        yield held


def _filling(pieces: list[Item]) -> int:
    return sum(piece.stop - piece.start for piece in pieces)


def _sequence(stage: Packed, parts: list[Item]) -> Item:
    keys = [part.sample["__key__"] for part in parts]
    tokens = [token for part in parts for token in part.sample["tokens"][part.start : part.stop]]
    rest = 0 if stage.pad is None else stage.length - len(tokens)
    sizes = [part.stop - part.start for part in parts]
    made = {
        "__key__": keys[0] if len(keys) == 1 else f"{keys[0]}+{len(keys) - 1}",
        "tokens": (*tokens, *[stage.pad] * rest),
        "segments": (*[at for at, size in enumerate(sizes, 1) for _ in range(size)], *[0] * rest),
        "positions": (*[place for size in sizes for place in range(size)], *[0] * rest),
        "__parts__": tuple((part.sample["__key__"], part.start, part.stop) for part in parts),
    }
    return Item(made, _joined(parts))
