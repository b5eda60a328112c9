"""A plan in storage order: what iterating, writing and predicting see. There is one lane, and nothing is shuffled."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import NamedTuple, TypeVar

import numpy as np

from shoal._ending import ends_with_program
from shoal._malloc import keep_freed_memory
from shoal.abc import Block, Pool, Sample, Source, Step, Stream, SupportsFlow
from shoal.order import Located, Mixing, combine_one, derive, sample_ids
from shoal.pipeline._meter import CALLER, Meter
from shoal.pipeline._parcel import Parcel, Part, weight
from shoal.pipeline._plan import Mixture, Plan
from shoal.pipeline._steps import BLOCK, engine, fused, share_of_memory, start, steps_of, with_bytes
from shoal.pipeline.gather import LaneStage, Piece, Take
from shoal.pipeline.ledger import Ledger
from shoal.pipeline.stages import BlockStage, Stage, leading
from shoal.pipeline.statistics import Statistics
from shoal.shards import owned

__all__ = ["StorageRun", "merged_id", "run_salt"]

T = TypeVar("T")

# Bytes that make it worth while to hand pieces over to a worker.
_ENOUGH = 2**20


def run_salt(plan: Plan, epoch: int) -> int:
    """Give what the random stages of a plan are keyed with in an epoch."""
    return derive("salt", plan.seed, epoch)


def merged_id(pieces: Iterable[Piece]) -> int:
    """Give a number to what is made of several pieces."""
    merged = 0
    for piece in pieces:
        merged = combine_one(combine_one(merged, piece.id), piece.start)
    return merged


class _Lot(NamedTuple):
    """A block, and where its first sample lies: source, shard and place in it, and which pass; None if nowhere."""

    block: Block
    at: tuple[int, int, int] | None = None
    offset: int = 0


class StorageRun(Iterator[Sample]):
    """The samples of a dataset, one after the other; see `Dataset.run`.

    Whoever leaves early need not close it: it ends when nobody refers to it any more.
    """

    def __init__(self, plan: Plan, pool: Pool, ledger: Ledger) -> None:
        self.ledger = ledger
        """The samples that were skipped."""
        self._flow = _Flow(pool, ledger, share_of_memory(plan.streams))
        self._samples = self._flow.samples(plan)

    def __iter__(self) -> Iterator[Sample]:
        return self._samples

    def __next__(self) -> Sample:
        return next(self._samples)

    def __enter__(self) -> StorageRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def statistics(self) -> Statistics:
        """Tell how the run is doing."""
        return self._flow.meter.statistics()

    def close(self) -> None:
        """End the run, and let go of its workers."""
        self._samples = iter(())
        self._flow.close()


class _Flow:
    """What a run in storage order is made of; it does not know who iterates, so that leaving is ending."""

    def __init__(self, pool: Pool, ledger: Ledger, memory: int) -> None:
        keep_freed_memory()
        self._pool, self._ledger, self._memory = pool, ledger, memory
        self.meter = Meter()
        self._streams: list[Stream[Parcel, Parcel]] = []
        self._resting: dict[tuple[int, ...], list[int]] = {}
        """Numbers of streams that have ended, by their stages: a component that begins again goes on with one."""
        self._closed = False
        ends_with_program(self)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.meter.end()
        for stream in list(self._streams):
            stream.close()

    def samples(self, plan: Plan) -> Iterator[Sample]:
        if isinstance(plan.source, Source) and len(plan.leading) == len(plan.stages):
            runner: object = engine() if plan.unordered else None
            if isinstance(runner, SupportsFlow):
                return chain.from_iterable(block.samples for block in self._counted(self._flowing(plan, runner)))
            keyed = any(stage.is_random for stage in plan.leading)
            lots = _keyed_lots(plan, 0, 0) if keyed else _lots(plan)
            blocks = self._counted(self._through(plan, plan.leading, self._read(lots)))
            samples = chain.from_iterable(block.samples for block in blocks)
            # One at a time as they leave, not in the block: the memory of the one before is still in the cache.
            return samples if plan.views else map(owned, samples)
        return self._unpacked(self._pieces(plan))

    def _counted(self, blocks: Iterator[Block]) -> Iterator[Block]:
        try:
            for block in blocks:
                self.meter.samples += len(block.samples)
                yield block
                if self._closed:
                    return
        finally:
            self.close()

    def _unpacked(self, pieces: Iterator[Piece]) -> Iterator[Sample]:
        try:
            for piece in pieces:
                self.meter.samples += 1
                yield piece.sample
                if self._closed:
                    return
        finally:
            self.close()

    def _pieces(self, plan: Plan, leaf: int = 0, number: int = 0) -> Iterator[Piece]:
        """Go through a plan once, as pass ``number``; its first source is the leaf of that number."""
        stages = list(plan.stages)
        if isinstance(plan.source, Mixture):
            pieces = self._mixed(plan.source, leaf, number)
        else:
            stages = stages[len(plan.leading) :]
            lots = self._read(_keyed_lots(plan, leaf, number))
            pieces = _taken_apart(self._through(plan, plan.leading, lots), plan.views)
        while stages:
            if isinstance(stages[0], BlockStage):
                run = leading(stages)
                pieces = _taken_apart(self._through(plan, run, _collected(pieces, plan)), views=True)
                stages = stages[len(run) :]
            else:
                pieces = _through_lane(stages.pop(0), pieces)
        return pieces

    def _read(self, lots: Iterator[_Lot]) -> Iterator[_Lot]:
        """Count the time that reading takes, and what is read."""
        while True:
            begun = time.perf_counter()
            lot = next(lots, None)
            if lot is None:
                return
            self.meter.bytes += weight(lot.block.samples)
            self.meter.add(CALLER, [(0, "read", time.perf_counter() - begun, len(lot.block.samples))])
            yield lot

    def _through(self, plan: Plan, stages: tuple[BlockStage, ...], lots: Iterator[_Lot]) -> Iterator[Block]:
        """Send blocks through stages, as far ahead as there are workers for it."""
        if not stages:
            for lot in lots:
                yield lot.block
            return
        prepared = with_bytes(fused(stages), views=plan.views, to_the_end=False)
        stream = start({0: prepared}, self._pool, catch=self._ledger.catches, memory=self._memory)
        self._streams.append(stream)
        resting = self._resting.setdefault(tuple(map(id, stages)), [])
        number = self.meter.watch(stream, resting.pop() if resting else None)
        under_way: deque[_Lot] = deque()
        errors: list[Exception] = []
        try:
            for lot in _until_error(lots, errors):
                under_way.append(lot)
                stream.put(Parcel(None, [Part(0, lot.block, range(len(lot.block.samples)))]))
                if stream.full:
                    yield self._received(number, under_way.popleft())
            while under_way:
                yield self._received(number, under_way.popleft())
            for error in errors:
                raise error
        finally:
            stream.close()
            self._streams.remove(stream)
            resting.append(number)

    def _flowing(self, plan: Plan, runner: SupportsFlow) -> Iterator[Block]:
        """Let an engine run everything, from reading on, in whatever order is quickest."""
        assert isinstance(plan.source, Source)
        prepared = with_bytes(fused(plan.leading), views=False, to_the_end=True)
        steps = [
            Step("read", _ShardReading(replace(plan, stages=())), Pool(self._pool.workers)),
            *steps_of(prepared, self._pool, catch=self._ledger.catches),
        ]
        for parcel in runner.flow(range(len(plan.source.shards())), steps):
            yield self._admitted(parcel, parcel.at, parcel.offset)

    def _received(self, number: int, lot: _Lot) -> Block:
        return self._admitted(self.meter.received(number), lot.at, lot.offset)

    def _admitted(self, parcel: Parcel, at: tuple[int, int, int] | None, offset: int) -> Block:
        for place, failure in parcel.failures:
            if at is not None:
                failure = replace(failure, offset=offset + place, at=at)
            self.meter.skipped += 1
            self._ledger.admit(failure, seen=self.meter.samples + self.meter.skipped)
        return parcel.parts[0].block

    def _mixed(self, mixture: Mixture, leaf: int, number: int) -> Iterator[Piece]:
        mixing = Mixing(mixture.weights, lanes=1)
        plans = mixture.components
        leaves = [leaf + sum(len(list(plan.sources())) for plan in plans[:at]) for at in range(len(plans))]
        passes = [number] * len(plans)
        streams = [self._pieces(plan, first, number) for plan, first in zip(plans, leaves, strict=True)]
        while (chosen := mixing.choose()) is not None:
            piece = next(streams[chosen], None)
            if piece is None and mixture.exhausted == "wrap":
                passes[chosen] += 1
                streams[chosen] = self._pieces(plans[chosen], leaves[chosen], passes[chosen])
                piece = next(streams[chosen], None)
            if piece is not None:
                mixing.count(chosen)
                yield piece
            elif mixture.exhausted == "stop":
                return
            else:
                mixing.drop(chosen)


@dataclass(slots=True)
class _SitedParcel(Parcel):
    """One that knows where its first sample lies, because nobody else does who gets it."""

    at: tuple[int, int, int] | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class _ShardReading:
    """Reads a shard, wherever that is done."""

    plan: Plan

    def __call__(self, number: int) -> Iterator[Parcel]:
        """Read the shard of a number."""
        for lot in _keyed_lots(self.plan, 0, 0, [number]):
            part = Part(0, lot.block, range(len(lot.block.samples)))
            yield _SitedParcel(None, [part], at=lot.at, offset=lot.offset)


def _lots(plan: Plan, leaf: int = 0, number: int = 0, chosen: Iterable[int] | None = None) -> Iterator[_Lot]:
    """Read all shards, or those that are chosen, one after the other."""
    assert isinstance(plan.source, Source)
    shards = plan.source.shards()
    for shard_number in range(len(shards)) if chosen is None else chosen:
        shard, offset = shards[shard_number], 0
        for block in plan.source.open(shard):
            yield _Lot(block, (leaf, shard_number, number), offset)
            offset += len(block.samples)


def _keyed_lots(plan: Plan, leaf: int, number: int, chosen: Iterable[int] | None = None) -> Iterator[_Lot]:
    """Read shards and give each sample the number that it has in a loader, too."""
    salt = run_salt(plan, 0)
    for block, at, offset in _lots(plan, leaf, number, chosen):
        assert at is not None
        count = len(block.samples)
        located = Located(np.full(count, at[1]), np.arange(offset, offset + count), np.full(count, number))
        yield _Lot(Block(block.samples, block.origins, sample_ids(located, leaf), None, salt), at, offset)


def _collected(pieces: Iterator[Piece], plan: Plan) -> Iterator[_Lot]:
    salt = run_salt(plan, 0)
    while some := list(_some(pieces)):
        ids = np.array([piece.id for piece in some], np.uint64)
        yield _Lot(Block([piece.sample for piece in some], (), ids, None, salt))


def _some(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Give what is to be treated at once: pieces may be batches, and a few of them enough."""
    held = 0
    for piece in islice(pieces, BLOCK):
        yield piece
        held += weight([piece.sample])
        if held >= _ENOUGH:
            return


def _until_error(items: Iterable[T], errors: list[Exception]) -> Iterator[T]:
    """Put an error of the source aside, so that what was read before it is delivered first, as without threads."""
    try:
        yield from items
    except Exception as error:
        errors.append(error)


def _taken_apart(blocks: Iterable[Block], views: bool) -> Iterator[Piece]:
    for block in blocks:
        assert block.ids is not None
        for sample, number in zip(block.samples, block.ids.tolist(), strict=True):
            yield Piece(sample if views else owned(sample), (), number)


def _through_lane(stage: Stage, pieces: Iterator[Piece]) -> Iterator[Piece]:
    if isinstance(stage, Take):
        yield from islice(pieces, stage.count)
        return
    assert isinstance(stage, LaneStage)
    gathering = stage.lane()
    for piece in pieces:
        for full in gathering.add(piece):
            yield Piece(gathering.build(full), (), merged_id(full))
    for rest in gathering.end():
        yield Piece(gathering.build(rest), (), merged_id(rest))
