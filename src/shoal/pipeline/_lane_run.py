"""One epoch of any plan: each lane is pulled sample by sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shoal.abc import Sample
from shoal.errors import StateError
from shoal.order import Ids, add_one_to_digest, own_lanes
from shoal.pipeline._feed import Feed, Reader
from shoal.pipeline._leaves import Cursor
from shoal.pipeline._nodes import Mark, Node, Trail
from shoal.pipeline._plan import Plan
from shoal.pipeline._program import Program
from shoal.pipeline._rows import Rows, SampleRows
from shoal.pipeline._run import CHANGED, Run, Setting
from shoal.pipeline._segments import CalledSegment, PooledSegment, Segment
from shoal.pipeline._state import Position
from shoal.pipeline._steps import fused, share_of_memory, start
from shoal.pipeline.stages import BlockStage

__all__ = ["LaneRun"]


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

    def __init__(self, plan: Plan, setting: Setting, position: Position) -> None:
        super().__init__(setting)
        program = Program.of(plan, position.epoch, setting.ways, wrap=setting.wrap, new_weights=setting.new_weights)
        self._program, self._leaves = program, program.leaves
        lanes = own_lanes(setting.part)
        for leaf in program.leaves:
            leaf.own(lanes, len(program.leaves))
        chains = dict(enumerate(program.chains))
        waits = any(leaf.source.waits for leaf in program.leaves)
        self._memory = share_of_memory(program.plan.streams)
        stream = start(
            chains, setting.pool, read=Reader(), waits=waits, catch=setting.ledger.catches, memory=self._memory
        )
        self._feed = Feed(program.leaves, stream, self._memory, self.meter, setting.ledger, position.epoch)
        self._segments: dict[Any, Segment] = {}
        self._lanes = {lane: self._lane(program, lane) for lane in lanes}
        if position.lanes is not None:
            self._load({lane: position.lanes[lane] for lane in lanes}, position.anchors)
        self._marks = {lane: state.mark() for lane, state in self._lanes.items()}
        # In turn, as slots are: the first batch is not to wait for all that is asked for ahead.
        for _ in range(max(self._feed.capacity // len(lanes), 1)):
            for state in self._lanes.values():
                if not state.ended:
                    state.node.ask(1)

    def rows(self, slots: Ids) -> Rows:
        lanes = (slots % self._setting.part.lanes).tolist()
        samples = [self._lanes[lane].next() for lane in lanes]
        self._marks = {**self._marks, **{lane: self._lanes[lane].mark() for lane in set(lanes)}}
        return SampleRows(samples)

    def rows_of_others(self, slots: Ids) -> Rows | None:
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

    def _let_go(self) -> None:
        self._feed.close()
        for segment in self._segments.values():
            segment.close()
        for lane, state in self._lanes.items():
            # Of the same make, so that it can tell what marks speak of, and without samples.
            state.node = self._program.lane(self._feed, lane, state.trail, self._segment)

    def _lane(self, program: Program, lane: int) -> _Lane:
        trail = Trail()
        return _Lane(program.lane(self._feed, lane, trail, self._segment), trail, lane, self._setting.part.lanes)

    def _segment(self, stages: tuple[BlockStage, ...], salt: int) -> Segment:
        """Give who does stages behind lanes: the same for all lanes."""
        key = tuple(map(id, stages)), salt
        if key not in self._segments:
            fail = self._feed.fail if self._setting.ledger.catches else None
            pool, lanes = self._setting.pool, len(own_lanes(self._setting.part))
            if pool.bounds == (0, 0) and all(stage.pool is None for stage in stages):
                self._segments[key] = CalledSegment(stages, salt, self.meter, fail)
            else:
                self._segments[key] = PooledSegment(fused(stages), salt, pool, self.meter, fail, lanes, self._memory)
        return self._segments[key]

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
                    raise StateError(CHANGED.format(lane=lane))
