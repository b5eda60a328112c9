"""Batches for training, in an order that follows from seed and epoch alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, islice

import numpy as np

from shoal import registry
from shoal.abc import Block, Sample
from shoal.errors import PlanError
from shoal.order import Part, epoch_order, rank_part, slot_owner
from shoal.pipeline._collate import collate
from shoal.pipeline._plan import Plan, ordered_blocks, run, shard_lengths, storage_blocks
from shoal.pipeline.stages import Batch

__all__ = ["Loader", "LoaderOptions"]

_ENDS = ("pad", "drop", "wrap")


@dataclass(frozen=True, slots=True)
class LoaderOptions:
    """How a loader makes batches."""

    batch_size: int
    """Samples of a batch over all ranks; a rank yields its part of them."""
    rank: int = 0
    world_size: int = 1
    steps: int | None = None
    """Batches an epoch; by default all there are."""
    workers: int | str = "auto"
    end: str = "pad"
    """What becomes of an incomplete last batch: padded and masked, dropped, or filled from the next epoch."""
    to: str = "numpy"

    def __post_init__(self) -> None:
        if self.end not in _ENDS:
            raise PlanError(f"end={self.end!r}; known are {', '.join(map(repr, _ENDS))}")
        if self.end == "wrap" and self.steps is None:
            raise PlanError('end="wrap" never ends by itself: give steps=')
        if self.steps is not None and self.steps < 0:
            raise PlanError(f"steps={self.steps} must not be negative")
        _ = self.part

    @property
    def part(self) -> Part:
        """The rank's place in the world."""
        return Part(self.batch_size, self.rank, self.world_size)


class Loader:
    """Yields batches: dicts of stacked arrays with ``"__key__"`` and, where rows are padding, ``"__mask__"``.

    Iterating runs one epoch, iterating again the next one. Ranks of one world get disjoint parts of the same global
    batches, in the same number of steps.

    >>> import shoal, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with shoal.shards.TarWriter(f"{folder}/a.tar") as writer:
    ...     for i in range(5):
    ...         _ = writer.write({"__key__": str(i), "cls": i})
    >>> loader = shoal.read_tar(f"{folder}/a.tar").decode().loader(2, end="drop")
    >>> [batch["cls"].tolist() for batch in loader]
    [[0, 1], [2, 3]]
    """

    def __init__(self, plan: Plan, options: LoaderOptions) -> None:
        if any(isinstance(stage, Batch) for stage in plan.stages):
            raise PlanError("the dataset is batched already: leave .batch() out and give the loader the batch size")
        self._plan = plan
        self._options = options
        self._convert = registry.load("format", options.to)
        self.epoch = 0
        """The epoch that iterating runs next."""

    def __iter__(self) -> Iterator[Sample]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        batches = self._batches(epoch)
        return map(self._convert, islice(batches, self._options.steps))

    def _batches(self, epoch: int) -> Iterator[Sample]:
        """Assemble this rank's part of each global batch from the samples in its slots."""
        part, slots = self._options.part, self._slots(epoch)
        filler: Sample | None = None
        for step in count():
            window = list(islice(slots, part.batch_size))
            if not window or (len(window) < part.batch_size and self._options.end == "drop"):
                return
            mine, size = rank_part(step, part)
            places = (mine - step * part.batch_size).tolist()
            samples = [s for place in places if place < len(window) and (s := window[place]) is not None]
            filler = samples[-1] if samples else filler or self._first_sample(epoch)
            yield _padded(samples, size, filler)

    def _first_sample(self, epoch: int) -> Sample:
        """Make another rank's sample, for a rank of a world larger than the dataset to pad its batches with."""
        alone = replace(self._options, rank=0, world_size=1)
        return next(sample for sample in Loader(self._plan, alone)._samples(epoch, 0) if sample is not None)

    def _slots(self, epoch: int) -> Iterator[Sample | None]:
        """Yield what is in each slot, epoch after epoch if the end wraps; None where the sample is another rank's."""
        slot = 0
        for each in count(epoch) if self._options.end == "wrap" else [epoch]:
            before = slot
            for sample in self._samples(each, before):
                yield sample
                slot += 1
            if slot == before:
                return

    def _samples(self, epoch: int, first_slot: int) -> Iterator[Sample | None]:
        plan, part = self._plan, self._options.part
        if plan.shuffle is None and part.world_size == 1:
            yield from self._stream(storage_blocks(plan.source))
            return
        lengths = shard_lengths(plan.source)
        order = epoch_order(lengths, plan.shuffle, epoch)
        if not plan.keeps_count:
            # Which slot an output gets is known only when those before it are made, so every rank makes them all.
            outputs = self._stream(ordered_blocks(plan.source, lengths, order))
            for slot, sample in enumerate(outputs, first_slot):
                yield sample if slot_owner(slot, part) == part.rank else None
            return
        mine = slot_owner(np.arange(first_slot, first_slot + len(order)), part) == part.rank
        outputs = self._stream(ordered_blocks(plan.source, lengths, order[mine]))
        for is_mine in mine.tolist():
            yield next(outputs) if is_mine else None

    def _stream(self, blocks: Iterator[Block]) -> Iterator[Sample]:
        return run(self._plan, blocks, self._options.workers)


def _padded(samples: list[Sample], size: int, filler: Sample) -> Sample:
    missing = size - len(samples)
    batch = collate([*samples, *[filler] * missing])
    if missing:
        batch["__mask__"] = np.arange(size) < len(samples)
    return batch
