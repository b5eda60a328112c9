"""Rows of shards as samples."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from shoal.abc import Block, Sample, Shard, Source
from shoal.data._row_objects import is_batch, row_count
from shoal.errors import PlanError
from shoal.pipeline import Dataset

if TYPE_CHECKING:
    from shoal.data._xshards import XShards

__all__ = ["ShardsSource", "dataset_of"]

_BLOCK = 64


def dataset_of(shards: XShards) -> Dataset:
    """Make a dataset of shards, which are made once and kept while it is used."""
    return Dataset(ShardsSource(shards.cache()))


class ShardsSource(Source):
    """Samples in shards that an engine holds; the last shard that was read is at hand."""

    def __init__(self, shards: XShards) -> None:
        self._shards = shards
        self._lengths: list[int] | None = None
        self._lock = threading.Lock()
        self._last: tuple[int, Any] | None = None

    def __repr__(self) -> str:
        return f"ShardsSource({self._shards.num_partitions()} shards)"

    def __reduce__(self) -> Any:
        raise PlanError("shards are held by an engine of this process; save them, and read the files in others")

    @property
    def seekable(self) -> bool:
        """Whether samples can be picked: a shard is fetched as a whole."""
        return True

    @property
    def counted(self) -> bool:
        """Whether lengths are known without reading."""
        return True

    def shards(self) -> Sequence[Shard]:
        """Name the shards by their numbers."""
        return [Shard(f"shards://{number}") for number in range(self._shards.num_partitions())]

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        """Yield the rows of a shard."""
        rows, number = self._rows(shard), _number(shard)
        wanted = shard.numbers(len(rows))[start:]
        for at in range(0, len(wanted), _BLOCK):
            yield Block([_sample(rows[row], number, row) for row in wanted[at : at + _BLOCK]], (shard,))

    def length(self, shard: Shard) -> int:
        """Count the rows of a shard."""
        if self._lengths is None:
            self._lengths = self._shards._then(_count)._gathered("count")
        return len(shard.numbers(self._lengths[_number(shard)]))

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        """Pick rows of a shard."""
        rows, number = self._rows(shard), _number(shard)
        places = (shard.start + index * shard.step for index in indices)
        return [_sample(rows[place], number, place) for place in places]

    def fingerprint(self, shard: Shard) -> str:
        """Give the number of rows."""
        return str(self.length(shard))

    def size(self, shard: Shard) -> int | None:
        """Nobody knows the bytes."""
        return None

    def _rows(self, shard: Shard) -> Sequence[Any]:
        number = _number(shard)
        with self._lock:
            if self._last is None or self._last[0] != number:
                engine = self._shards._engine
                (found,) = engine.gather(self._shards._handle(), [number])
                self._last = number, rows_of(found)
            return self._last[1]


def rows_of(shard: Any) -> Sequence[dict[str, Any]]:
    """List the rows of a shard as dicts.

    >>> rows_of([{"a": 1}])
    [{'a': 1}]
    """
    if hasattr(shard, "to_dict") and getattr(shard, "ndim", 0) == 2:
        return list(shard.to_dict("records"))
    if is_batch(shard):
        return [dict(zip(shard, row, strict=True)) for row in zip(*shard.values(), strict=True)]
    if isinstance(shard, list) and all(isinstance(row, dict) for row in shard):
        return shard
    raise PlanError(f"a {type(shard).__name__} has no rows with names; frames, dicts of arrays, lists of dicts have")


def _count(shard: Any) -> int:
    return row_count(shard) or len(rows_of(shard))


def _number(shard: Shard) -> int:
    return int(shard.url.removeprefix("shards://"))


def _sample(row: dict[str, Any], shard: int, place: int) -> Sample:
    return {"__key__": f"{shard:05d}-{place:09d}", **row}
