"""A torch dataset with numbered items as a source: workers read the items that fall to them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import cloudpickle

from shoal.abc import Block, Sample, Shard, Source
from shoal.learn._parts import Item

__all__ = ["ItemSource", "Kept"]

_URL = "torch://"
_BLOCK = 32
#: Items of a shard.
_SHARD = 4096


class Kept:
    """A dataset on its way to workers; it is unpacked when the first of its items is read."""

    def __init__(self, dataset: Any, packed: bytes | None = None) -> None:
        self.name, self.count = type(dataset).__qualname__, len(dataset)
        self._packed, self._opened = packed, dataset

    @classmethod
    def of(cls, dataset: Any) -> Kept | None:
        """Pack a dataset for other processes; None if it cannot be sent there."""
        try:
            return cls(dataset, cloudpickle.dumps(dataset))
        except Exception:  # whatever it holds (a file, a lock, a connection) may refuse in its own way
            return None

    def items(self, numbers: Sequence[int]) -> list[Any]:
        """Read items, many at once where the dataset can do so."""
        if self._opened is None:
            assert self._packed is not None
            self._opened = cloudpickle.loads(self._packed)
        many = getattr(self._opened, "__getitems__", None)
        return list(many(list(numbers))) if callable(many) else [self._opened[number] for number in numbers]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_packed": self._packed or cloudpickle.dumps(self._opened), "_opened": None}


class ItemSource(Source):
    """The items of a dataset, each as the field ``item``."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    def __repr__(self) -> str:
        return f"ItemSource({self._kept.name} of {self._kept.count})"

    @property
    def seekable(self) -> bool:
        """True: items have numbers."""
        return True

    @property
    def counted(self) -> bool:
        """True: the dataset knows how many it has."""
        return True

    def shards(self) -> Sequence[Shard]:
        """List ranges of numbers."""
        count = self._kept.count
        return [Shard(_URL, *pair) for pair in pairwise([*range(0, max(count, 1), _SHARD), count])]

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        """Yield the items of a shard in blocks."""
        length = self.length(shard)
        for at in range(start, length, _BLOCK):
            yield Block(self.take(shard, range(at, min(at + _BLOCK, length))), (shard,))

    def length(self, shard: Shard) -> int:
        """Count the items of a shard."""
        return len(shard.numbers(self._kept.count))

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        """Read the items at these places of a shard."""
        places = shard.numbers(self._kept.count)
        numbers = [places[index] for index in indices]
        pairs = zip(numbers, self._kept.items(numbers), strict=True)
        return [{"__key__": f"{number:09d}", "item": Item(value)} for number, value in pairs]

    def split(self, shard: Shard, parts: int) -> list[Shard]:
        """Cut a shard into ranges."""
        return shard.split(parts, self.length(shard))

    def fingerprint(self, shard: Shard) -> str:
        """Give the kind and length of the dataset, whose items nobody can compare."""
        return f"{zlib.crc32(f'{self._kept.name} {self._kept.count}'.encode()):08x}"
