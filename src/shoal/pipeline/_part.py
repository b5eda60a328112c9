"""A part of a source: every so-manieth shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.abc import (
    Batch,
    Block,
    Columns,
    Picks,
    Sample,
    Shard,
    Source,
    SupportsBatches,
    SupportsColumns,
    SupportsRandomAccess,
)
from shoal.errors import PlanError

__all__ = ["PartOf"]


class PartOf(Source):
    """Some of the shards of another source."""

    def __init__(self, source: Source, index: int, count: int) -> None:
        self._source, self._index, self._count = source, index, count

    def __repr__(self) -> str:
        return f"{self._source!r}.part({self._index}, {self._count})"

    def shards(self) -> Sequence[Shard]:
        """List the shards of this part."""
        return tuple(self._source.shards())[self._index :: self._count]

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        """Yield a shard's samples."""
        return self._source.open(shard, start)

    @property
    def seekable(self) -> bool:
        """Whether the source is."""
        return self._source.seekable

    @property
    def counted(self) -> bool:
        """Whether the source is."""
        return self._source.counted

    @property
    def waits(self) -> bool:
        """Whether the source does."""
        return self._source.waits

    def fingerprint(self, shard: Shard) -> str:
        """Give what the source gives."""
        return self._source.fingerprint(shard)

    def size(self, shard: Shard) -> int | None:
        """Give what the source gives."""
        return self._source.size(shard)

    def length(self, shard: Shard) -> int:
        """Count the samples of a shard."""
        return self._random_access().length(shard)

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        """Read samples of a shard."""
        return self._random_access().take(shard, indices)

    def take_columns(self, shard: Shard, indices: NDArray[np.int64]) -> Columns | None:
        """Read samples of a shard as columns, if the source can."""
        return self._source.take_columns(shard, indices) if isinstance(self._source, SupportsColumns) else None

    def take_batches(self, picks: Picks, sizes: NDArray[np.int64]) -> list[Batch] | None:
        """Read samples of several shards as batches, if the source can."""
        return self._source.take_batches(picks, sizes) if isinstance(self._source, SupportsBatches) else None

    def _random_access(self) -> SupportsRandomAccess:
        if not isinstance(self._source, SupportsRandomAccess):
            raise PlanError(f"{self._source} has no lengths and no random access")
        return self._source
