"""One sample of a ledger again, through all the stages that it passes by itself."""

from __future__ import annotations

import numpy as np

from shoal.abc import Block, Sample, Shard, SupportsRandomAccess
from shoal.errors import PlanError
from shoal.order import sample_id
from shoal.pipeline._plan import Plan
from shoal.pipeline._program import leading_chains
from shoal.pipeline._steps import through
from shoal.pipeline.ledger import Failure

__all__ = ["block_of", "replayed"]


def replayed(plan: Plan, failure: Failure) -> list[Sample]:
    """Read the sample and treat it in this thread; see `Dataset.replay`."""
    if failure.at is None or failure.offset is None:
        raise PlanError(f"this was made of several samples, which cannot be read as one: {failure}")
    leaf, shard_number, _ = failure.at
    sources = list(plan.sources())
    if leaf >= len(sources):
        raise PlanError(f"the dataset has {len(sources)} sources, and the sample is of number {leaf}")
    source = sources[leaf]
    shards = source.shards()
    if shard_number >= len(shards) or shards[shard_number].url != failure.shard:
        raise PlanError(f"shard {shard_number} of the dataset is not {failure.shard}: the sample is of another one")
    shard = shards[shard_number]
    if source.seekable and isinstance(source, SupportsRandomAccess):
        sample = source.take(shard, [failure.offset])[0]
    else:
        sample = next(sample for block in source.open(shard, failure.offset) for sample in block.samples)
    chain = leading_chains(plan, failure.epoch)[leaf]
    return through(chain, block_of(sample, shard, failure.at, failure.offset)).samples


def block_of(sample: Sample, shard: Shard, at: tuple[int, int, int], offset: int) -> Block:
    """Make a block of one sample, with the id that a run gives it; ``at`` is its leaf, its shard and the pass."""
    leaf, shard_number, number = at
    return Block([sample], (shard,), np.array([sample_id(shard_number, offset, number, leaf)], np.uint64))
