"""What a straight run wants next, and how it is read: as columns, into the rows of a batch, or sample by sample."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.abc import Block, Picks, Pool, Sample, Source, SupportsColumns
from shoal.order import Hashes, Ids
from shoal.pipeline._columns import column_batches
from shoal.pipeline._leaves import picked
from shoal.pipeline._parcel import Parcel, Part
from shoal.pipeline._steps import is_plain
from shoal.pipeline.stages import BlockStage, FillStage

__all__ = ["Picker", "Row", "Wanted", "filled_row"]

#: The shape and type of what a stage fills for each sample of a batch.
Row = tuple[tuple[int, ...], np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Samples to read, their ids, and which batches they are for."""

    picks: Picks
    ids: Hashes
    batches: Ids
    rows: NDArray[Any] | None = None
    """Where the rows of the batch are filled."""
    samples: list[Sample] | None = None
    """The samples, if they have been read."""

    def piece(self, low: int, high: int) -> Wanted:
        """Take some of them."""
        at = slice(low, high)
        picks = self.picks._replace(numbers=self.picks.numbers[at], offsets=self.picks.offsets[at])
        rows = None if self.rows is None else self.rows[at]
        samples = None if self.samples is None else self.samples[at]
        return Wanted(picks, self.ids[at], self.batches[at], rows, samples)

    def joined(self, other: Wanted) -> Wanted:
        """Put others behind them."""
        numbers = np.concatenate([self.picks.numbers, other.picks.numbers])
        offsets = np.concatenate([self.picks.offsets, other.picks.offsets])
        ids, batches = np.concatenate([self.ids, other.ids]), np.concatenate([self.batches, other.batches])
        return Wanted(self.picks._replace(numbers=numbers, offsets=offsets), ids, batches)

    def urls(self) -> list[str]:
        """Name the shards."""
        return [self.picks.shards[number].url for number in self.picks.numbers.tolist()]


class Picker:
    """Reads what is wanted; runs in the engine's workers."""

    def __init__(self, source: Source, chain: Sequence[BlockStage], *, views: bool) -> None:
        self._source, self._chain = source, chain
        self.as_columns = isinstance(source, SupportsColumns) and is_plain(chain) and not views
        """Whether batches are made of columns, as far as the samples allow: then the stages are done here, too."""

    def __call__(self, parcel: Parcel) -> Parcel:
        """Read a parcel."""
        begun, wanted = time.perf_counter(), parcel.wanted
        parcel.stage = "read"
        if self.as_columns:
            sizes = np.diff(np.flatnonzero(np.diff(wanted.batches, prepend=-1, append=-1)))
            parcel.batches = column_batches(self._source, wanted.picks, sizes, self._chain)
        if parcel.batches is None:
            parcel.parts.append(Part(0, self._block(wanted), range(len(wanted.ids)), wanted.rows))
        parcel.wanted = None
        if wanted.samples is None:
            parcel.spent.append((0, "read", time.perf_counter() - begun, len(wanted.ids)))
        return parcel

    def with_samples(self, wanted: Wanted) -> Wanted:
        """Read samples one by one."""
        return replace(wanted, samples=picked(self._source, wanted.picks))

    def _block(self, wanted: Wanted) -> Block:
        samples = self.with_samples(wanted).samples if wanted.samples is None else wanted.samples
        assert samples is not None
        origins = [wanted.picks.shards[number] for number in wanted.picks.numbers.tolist()]
        block = Block(samples, origins, wanted.ids)
        for stage in self._chain if self.as_columns else ():
            block = stage.process(block)
        return block


def filled_row(chain: Sequence[BlockStage], pool: Pool) -> Row | None:
    """Give what a stage fills for each sample, if it does so in this process."""
    for stage in chain:
        if isinstance(stage, FillStage) and stage.row is not None:
            return stage.row if (stage.pool or pool).mode == "thread" else None
    return None
