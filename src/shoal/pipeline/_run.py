"""One epoch of a loader on one rank: the samples in its slots, and the position after them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from shoal.abc import Block, Sample, Shard, Source, Stream
from shoal.errors import StateError
from shoal.order import (
    Anchor,
    ElementOrder,
    Hashes,
    Ids,
    Part,
    Walk,
    add_one_to_digest,
    add_to_digests,
    own_lanes,
    sample_ids,
)
from shoal.pipeline._blocks import BLOCK, engine, through, with_bytes
from shoal.pipeline._feed import Feed, Work
from shoal.pipeline._leaves import Cursor, lengths_of, picked
from shoal.pipeline._nodes import Mark, Node, Trail
from shoal.pipeline._plan import Plan
from shoal.pipeline._program import Program
from shoal.pipeline._state import Position
from shoal.pipeline._storage import run_salt
from shoal.pipeline.stages import BlockStage

__all__ = ["LaneRun", "Run", "Setting", "StraightRun", "is_straight", "make_run"]

_CHUNK = 16_384
_CHANGED = (
    "the sample that lane {lane} delivered last is not where it was: the shards have other lengths than in the run "
    "that this state is of"
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run of an epoch needs to know."""

    plan: Plan
    part: Part
    workers: int | str
    wrap: bool
    ways: tuple[str, ...]
    worker: tuple[int, int] = (0, 1)
    """Which of several processes this is that make every so-manieth batch of the rank."""
    new_weights: bool = False


class Run(ABC):
    """An epoch that is being delivered."""

    @abstractmethod
    def rows(self, slots: Ids) -> list[Sample | None]:
        """Give what is in the next slots of this rank; None behind the end of a lane."""

    @abstractmethod
    def rows_of_others(self, slots: Ids) -> list[Sample | None] | None:
        """Pass over slots that another worker delivers; say what is in them if that has to be known anyway."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether a lane of this rank may have samples behind slots that were empty."""

    @abstractmethod
    def marks(self) -> Mapping[int, Any]:
        """Say where each lane of this rank is."""

    @abstractmethod
    def anchors(self, slot: int, marks: Mapping[int, Any]) -> tuple[Any, ...]:
        """Say what each leaf has to know to go on from marks."""

    @abstractmethod
    def digests(self) -> list[int]:
        """Give the order digest of each lane of this rank."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""


def is_straight(plan: Plan, ways: Sequence[str]) -> bool:
    """Tell whether slot g simply holds element g of the one source."""
    return isinstance(plan.source, Source) and plan.keeps_count and tuple(ways) == ("samples",)


def make_run(setting: Setting, position: Position) -> Run:
    """Begin an epoch, or go on in the middle of one."""
    kind = StraightRun if is_straight(setting.plan, setting.ways) else LaneRun
    return kind(setting, position)


class StraightRun(Run):
    """An epoch of a plan that keeps the number of samples: which sample is in which slot is known beforehand."""

    def __init__(self, setting: Setting, position: Position) -> None:
        plan = setting.plan.with_limit()
        assert isinstance(plan.source, Source)
        self._setting, self._source = setting, plan.source
        self._shards = plan.source.shards()
        walk = Walk(plan.shuffle, position.epoch, len(self._shards), plan.lanes, setting.wrap, plan.limit)
        anchor = Anchor(*position.anchors[0]) if position.anchors else None
        self.order = ElementOrder(walk, lengths_of(plan.source), anchor)
        self._begin(position.lanes)
        stages = with_bytes([s for s in plan.stages if isinstance(s, BlockStage)], views=plan.views, to_the_end=True)
        work = partial(_treated, plan.source, self._shards, stages, run_salt(plan, position.epoch))
        self._stream: Stream[_Wanted, list[Sample]] = engine().stream(work, workers=setting.workers)
        self._wanted = self._blocks(position.slot, position.step)
        self._sent: deque[_Wanted] = deque()
        self._ready: Iterator[tuple[Sample, int]] = iter(())

    def rows(self, slots: Ids) -> list[Sample | None]:
        found = [self._next() for _ in range(len(slots))]
        samples = [None if item is None else item[0] for item in found]
        ids = np.array([item[1] for item in found if item is not None], np.uint64)
        lanes, indexes = slots[: len(ids)] % self._setting.part.lanes, slots[: len(ids)] // self._setting.part.lanes
        add_to_digests(self._digests, lanes, ids, slots[: len(ids)])
        self._last[lanes] = ids
        self._counts[lanes] = indexes + 1
        return samples

    def rows_of_others(self, slots: Ids) -> list[Sample | None] | None:
        return None

    @property
    def alive(self) -> bool:
        return False

    def marks(self) -> Mapping[int, Any]:
        lanes = list(own_lanes(self._setting.part))
        columns = (column[lanes].tolist() for column in (self._counts, self._digests, self._last))
        return {lane: mark for lane, *mark in zip(lanes, *columns, strict=True)}

    def anchors(self, slot: int, marks: Mapping[int, Any]) -> tuple[Any, ...]:
        # What lanes delivered last is looked at again, to tell whether the order is still the same.
        lanes = self._setting.part.lanes
        delivered = [(count - 1) * lanes + lane for lane, (count, *_) in marks.items() if count]
        return (list(self.order.anchor(min([slot, *delivered]))),)

    def digests(self) -> list[int]:
        return self._digests[list(own_lanes(self._setting.part))].tolist()  # type: ignore[no-any-return]

    def close(self) -> None:
        self._stream.close()

    def _begin(self, marks: Mapping[int, Any] | None) -> None:
        lanes = self._setting.part.lanes
        self._digests, self._last = np.zeros(lanes, np.uint64), np.zeros(lanes, np.uint64)
        self._counts = np.zeros(lanes, np.int64)
        for lane in own_lanes(self._setting.part) if marks else ():
            assert marks is not None
            self._counts[lane], self._digests[lane], self._last[lane] = marks[lane]
        delivered = np.flatnonzero(self._counts)
        if len(delivered):
            found = self.order.locate((self._counts[delivered] - 1) * lanes + delivered)
            wrong = delivered[sample_ids(found, 0) != self._last[delivered]]
            if len(wrong):
                raise StateError(_CHANGED.format(lane=wrong[0]))

    def _next(self) -> tuple[Sample, int] | None:
        item = next(self._ready, None)
        while item is None:
            while len(self._stream) < self._stream.capacity and (wanted := next(self._wanted, None)) is not None:
                self._sent.append(wanted)
                self._stream.put(wanted)
            if not len(self._stream):
                return None
            samples = self._stream.get()
            self._ready = iter(list(zip(samples, self._sent.popleft().ids.tolist(), strict=True)))
            item = next(self._ready, None)
        return item

    def _blocks(self, slot: int, step: int) -> Iterator[_Wanted]:
        """List what is in the slots of this rank from one on, in blocks."""
        part = self._setting.part
        lanes = np.array(own_lanes(part))
        worker, workers = self._setting.worker
        row = slot // part.lanes
        while True:
            horizon = self.order.horizon(max(row * part.lanes, slot))
            rows = min(max(horizon // part.lanes - row, 1), max(_CHUNK // len(lanes), 1))
            slots = (np.arange(row, row + rows)[:, None] * part.lanes + lanes).ravel()
            slots = slots[slots >= slot]
            if workers > 1:
                slots = slots[(step + (slots - slot) // part.batch_size) % workers == worker]
            found = self.order.locate(slots)
            there = found.shards >= 0
            ids = sample_ids(found, 0)
            for at in range(0, int(there.sum()), BLOCK):
                piece = slice(at, min(at + BLOCK, int(there.sum())))
                yield _Wanted(found.shards[piece], found.offsets[piece], ids[piece])
            if not there.all():
                return
            row += rows


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Samples to read: their shards, their places in them, their ids."""

    shards: Ids
    offsets: Ids
    ids: Hashes


def _treated(
    source: Source, shards: Sequence[Shard], stages: Sequence[BlockStage], salt: int, wanted: _Wanted
) -> list[Sample]:
    samples = picked(source, shards, wanted.shards, wanted.offsets)
    origins = [shards[number] for number in wanted.shards.tolist()]
    return through(stages, Block(samples, origins, wanted.ids, None, salt)).samples


class _Lane:
    """One lane, and what it has delivered."""

    def __init__(self, node: Node, trail: Trail, lane: int, lanes: int) -> None:
        self.node, self.trail = node, trail
        self._lane, self._lanes = lane, lanes
        self.count = 0
        self.digest = 0
        self.ended = False

    def next(self) -> Sample | None:
        piece = None if self.ended else self.node.next()
        if piece is None:
            self.ended = True
            return None
        self.node.ask(1)
        self.digest = add_one_to_digest(self.digest, piece.id, self._lane + self.count * self._lanes)
        self.count += 1
        sample: Sample = piece.sample
        return sample

    def mark(self) -> Mark:
        return self.count, self.digest, int(self.ended), self.trail.last or (), self.node.mark()


class LaneRun(Run):
    """An epoch of any plan: each lane is pulled sample by sample."""

    def __init__(self, setting: Setting, position: Position) -> None:
        self._setting = setting
        program = Program.of(
            setting.plan, position.epoch, setting.ways, wrap=setting.wrap, new_weights=setting.new_weights
        )
        self._leaves = program.leaves
        lanes = own_lanes(setting.part)
        for leaf in program.leaves:
            leaf.own(lanes, len(program.leaves))
        work = Work(program.leaves, program.chains, program.salts)
        self._feed = Feed(program.leaves, engine().stream(work, workers=setting.workers))
        self._lanes = {lane: self._lane(program, lane) for lane in lanes}
        if position.lanes is not None:
            self._load({lane: position.lanes[lane] for lane in lanes}, position.anchors)
        self._marks = {lane: state.mark() for lane, state in self._lanes.items()}
        # In turn, as slots are: the first batch is not to wait for all that is asked for ahead.
        for _ in range(max(self._feed.capacity // len(lanes), 1)):
            for state in self._lanes.values():
                if not state.ended:
                    state.node.ask(1)

    def rows(self, slots: Ids) -> list[Sample | None]:
        lanes = (slots % self._setting.part.lanes).tolist()
        samples = [self._lanes[lane].next() for lane in lanes]
        self._marks = {**self._marks, **{lane: self._lanes[lane].mark() for lane in set(lanes)}}
        return samples

    def rows_of_others(self, slots: Ids) -> list[Sample | None] | None:
        return self.rows(slots)

    @property
    def alive(self) -> bool:
        return not all(lane.ended for lane in self._lanes.values())

    def marks(self) -> Mapping[int, Any]:
        return self._marks

    def anchors(self, slot: int, marks: Mapping[int, Any]) -> tuple[Any, ...]:
        cursors: list[list[tuple[int, Cursor]]] = [[] for _ in self._leaves]
        for lane, mark in marks.items():
            for leaf, at, cursor in self._places(lane, mark):
                cursors[leaf].append((at, cursor))
        return tuple(leaf.anchor(places) for leaf, places in zip(self._leaves, cursors, strict=True))

    def digests(self) -> list[int]:
        return [lane.digest for lane in self._lanes.values()]

    def close(self) -> None:
        self._feed.close()

    def _lane(self, program: Program, lane: int) -> _Lane:
        trail = Trail()
        return _Lane(program.lane(self._feed, lane, trail), trail, lane, self._setting.part.lanes)

    def _places(self, lane: int, mark: Mark) -> Iterator[tuple[int, int, Cursor]]:
        """List every place in a leaf that a mark speaks of."""
        *_, last, inner = mark
        node = self._lanes[lane].node
        yield from ((leaf, lane, cursor) for leaf, cursor in node.cursors(inner))
        yield from node.held(inner)
        if last:
            yield last[0], lane, tuple(last[1])

    def _load(self, marks: Mapping[int, Mark], anchors: Sequence[Any]) -> None:
        cursors: list[dict[int, Cursor]] = [{} for _ in self._leaves]
        again: list[list[tuple[int, Cursor]]] = [[] for _ in self._leaves]
        held = [place for lane, mark in marks.items() for place in self._lanes[lane].node.held(mark[-1])]
        for lane, mark in marks.items():
            for number, cursor in self._lanes[lane].node.cursors(mark[-1]):
                cursors[number][lane] = cursor
        for number, lane, cursor in held:
            again[number].append((lane, cursor))
        for leaf in self._leaves:
            leaf.seek(cursors[leaf.number], again[leaf.number], anchors[leaf.number])
        self._check(marks)
        book = self._feed.again(held)
        for lane, (count, digest, ended, last, inner) in marks.items():
            state = self._lanes[lane]
            state.count, state.digest, state.ended = count, digest, bool(ended)
            state.trail.last = (last[0], tuple(last[1]), last[2]) if last else None
            state.node.load(inner, book)

    def _check(self, marks: Mapping[int, Mark]) -> None:
        """Make sure that what lanes drew last is still where it was."""
        for leaf in self._leaves:
            drawn = [(lane, last) for lane, (_, _, _, last, _) in marks.items() if last and last[0] == leaf.number]
            found = leaf.ids_at([(lane, tuple(last[1])) for lane, last in drawn])
            for (lane, last), number in zip(drawn, found, strict=True):
                if number not in (None, last[2]):
                    raise StateError(_CHANGED.format(lane=lane))
