"""What to do, as data: a source, the stages over it, and how it is shuffled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal import registry
from shoal.abc import Block, Engine, Sample, Shard, Source, SupportsRandomAccess
from shoal.errors import PlanError
from shoal.order import Shuffle
from shoal.pipeline.stages import Stage

__all__ = ["Plan", "ordered_blocks", "run", "shard_lengths", "storage_blocks"]

_BLOCK = 64

Ids: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Plan:
    """A source, and what happens to its samples."""

    source: Source
    stages: tuple[Stage, ...] = ()
    shuffle: Shuffle | None = None
    views: bool = False
    """Whether fields that nobody decoded may leave as views into a mapped shard, and not as bytes."""

    def then(self, stage: Stage) -> Plan:
        """Add a stage at the end."""
        return replace(self, stages=(*self.stages, stage))

    @property
    def keeps_count(self) -> bool:
        """Whether as many samples come out as the source has."""
        return all(stage.keeps_count for stage in self.stages)


def run(plan: Plan, blocks: Iterable[Block], workers: int | str) -> Iterator[Sample]:
    """Let the engine send blocks through the stages of a plan."""
    engine: Engine = registry.load("engine", "local")()
    return engine.stream(blocks, plan.stages, workers=workers, views=plan.views)


def storage_blocks(source: Source) -> Iterator[Block]:
    """Read all shards, one after the other."""
    for shard in source.shards():
        yield from source.open(shard)


def shard_lengths(source: Source) -> list[int]:
    """Count the samples of each shard."""
    if not isinstance(source, SupportsRandomAccess):
        raise PlanError(f"{source} cannot tell the lengths of its shards, which a shuffle or several ranks need")
    return [source.length(shard) for shard in source.shards()]


def ordered_blocks(source: Source, lengths: list[int], ids: Ids) -> Iterator[Block]:
    """Read samples by their number through all shards, in the order given."""
    ends = np.cumsum(lengths)
    shards = source.shards()
    for at in range(0, len(ids), _BLOCK):
        wanted = ids[at : at + _BLOCK]
        numbers = np.searchsorted(ends, wanted, side="right")
        offsets = wanted - (ends[numbers] - np.array(lengths)[numbers])
        samples = _picked(source, shards, numbers, offsets)
        yield Block(samples, [shards[number] for number in numbers])


def _picked(source: Source, shards: Iterable[Shard], numbers: Ids, offsets: Ids) -> list[Sample]:
    assert isinstance(source, SupportsRandomAccess)
    shards = list(shards)
    samples: list[Sample] = [{}] * len(numbers)
    by_shard = np.argsort(numbers, kind="stable")
    for number, group in groupby(by_shard.tolist(), key=lambda place: int(numbers[place])):
        places = list(group)
        for place, sample in zip(places, source.take(shards[number], offsets[places].tolist()), strict=True):
            samples[place] = sample
    return samples
