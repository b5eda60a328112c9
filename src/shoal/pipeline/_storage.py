"""A plan in storage order: what iterating, writing and predicting see. There is one lane, and nothing is shuffled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice

import numpy as np

from shoal.abc import Block, Sample, Source
from shoal.order import Located, Mixing, combine_one, derive, sample_ids
from shoal.pipeline._blocks import BLOCK, engine, flow, through, with_bytes
from shoal.pipeline._plan import Mixture, Plan
from shoal.pipeline.gather import LaneStage, Piece, Take
from shoal.pipeline.stages import BlockStage, Stage
from shoal.shards import owned

__all__ = ["merged_id", "run_salt", "storage_samples"]


def storage_samples(plan: Plan, workers: int | str) -> Iterator[Sample]:
    """Run a plan in storage order."""
    leading = plan.leading
    if isinstance(plan.source, Source) and len(leading) == len(plan.stages):
        keyed = any(stage.is_random for stage in leading)
        blocks = _through(plan, leading, _storage_blocks(plan) if not keyed else _keyed_blocks(plan, 0, 0), workers)
        samples = chain.from_iterable(block.samples for block in blocks)
        # One at a time as they leave, not in the block: the memory of the one before is still in the cache.
        return samples if plan.views else map(owned, samples)
    return (piece.sample for piece in _pieces(plan, workers))


def run_salt(plan: Plan, epoch: int) -> int:
    """Give what the random stages of a plan are keyed with in an epoch."""
    return derive("salt", plan.seed, epoch)


def merged_id(pieces: Iterable[Piece]) -> int:
    """Give a number to what is made of several pieces."""
    merged = 0
    for piece in pieces:
        merged = combine_one(combine_one(merged, piece.id), piece.start)
    return merged


def _pieces(plan: Plan, workers: int | str, leaf: int = 0, number: int = 0) -> Iterator[Piece]:
    """Go through a plan once, as pass ``number``; its first source is the leaf of that number."""
    stages = list(plan.stages)
    if isinstance(plan.source, Mixture):
        pieces = _mixed(plan.source, workers, leaf, number)
    else:
        leading, stages = plan.leading, stages[len(plan.leading) :]
        pieces = _taken_apart(_through(plan, leading, _keyed_blocks(plan, leaf, number), workers), plan.views)
    while stages:
        if isinstance(stages[0], BlockStage):
            run = _leading(stages)
            pieces = _taken_apart(_through(plan, run, _blocks(pieces, plan), workers), views=True)
            stages = stages[len(run) :]
        else:
            pieces = _through_lane(stages.pop(0), pieces)
    return pieces


def _leading(stages: list[Stage]) -> tuple[BlockStage, ...]:
    found: list[BlockStage] = []
    for stage in stages:
        if not isinstance(stage, BlockStage):
            break
        found.append(stage)
    return tuple(found)


def _storage_blocks(plan: Plan) -> Iterator[Block]:
    """Read all shards, one after the other."""
    assert isinstance(plan.source, Source)
    for shard in plan.source.shards():
        yield from plan.source.open(shard)


def _keyed_blocks(plan: Plan, leaf: int, number: int) -> Iterator[Block]:
    """Read all shards and give each sample the number that it has in a loader, too."""
    assert isinstance(plan.source, Source)
    salt = run_salt(plan, 0)
    for shard_number, shard in enumerate(plan.source.shards()):
        offset = 0
        for block in plan.source.open(shard):
            count = len(block.samples)
            offsets = np.arange(offset, offset + count)
            ids = sample_ids(Located(np.full(count, shard_number), offsets, np.full(count, number)), leaf)
            yield Block(block.samples, block.origins, ids, None, salt)
            offset += count


def _through(
    plan: Plan, stages: tuple[BlockStage, ...], blocks: Iterator[Block], workers: int | str
) -> Iterator[Block]:
    prepared = with_bytes(stages, views=plan.views, to_the_end=False)
    stream = engine().stream(partial(through, prepared), workers=workers)
    if not stages:
        stream.close()  # there is nothing to do; it was asked for because it checks the workers and keeps freed memory
        return blocks
    return flow(stream, blocks)


def _taken_apart(blocks: Iterable[Block], views: bool) -> Iterator[Piece]:
    for block in blocks:
        assert block.ids is not None
        for sample, number in zip(block.samples, block.ids.tolist(), strict=True):
            yield Piece(sample if views else owned(sample), (), number)


def _blocks(pieces: Iterator[Piece], plan: Plan) -> Iterator[Block]:
    salt = run_salt(plan, 0)
    while some := list(islice(pieces, BLOCK)):
        ids = np.array([piece.id for piece in some], np.uint64)
        yield Block([piece.sample for piece in some], (), ids, None, salt)


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


def _mixed(mixture: Mixture, workers: int | str, leaf: int, number: int) -> Iterator[Piece]:
    mixing = Mixing(mixture.weights, lanes=1)
    plans = mixture.components
    leaves = [leaf + sum(len(list(plan.sources())) for plan in plans[:at]) for at in range(len(plans))]
    passes = [number] * len(plans)
    streams = [_pieces(plan, workers, first, number) for plan, first in zip(plans, leaves, strict=True)]
    while (chosen := mixing.choose()) is not None:
        piece = next(streams[chosen], None)
        if piece is None and mixture.exhausted == "wrap":
            passes[chosen] += 1
            streams[chosen] = _pieces(plans[chosen], workers, leaves[chosen], passes[chosen])
            piece = next(streams[chosen], None)
        if piece is not None:
            mixing.count(chosen)
            yield piece
        elif mixture.exhausted == "stop":
            return
        else:
            mixing.drop(chosen)
