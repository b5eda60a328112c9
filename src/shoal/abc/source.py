"""Where samples come from.

A source lists its shards and opens one of them as a stream of blocks. A shard is a description, small and picklable:
opening it is the source's job, wherever that happens to run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from shoal.errors import PlanError

__all__ = [
    "Batch",
    "Block",
    "Columns",
    "Listable",
    "Picks",
    "Sample",
    "Shard",
    "Source",
    "SupportsBatches",
    "SupportsColumns",
    "SupportsRandomAccess",
    "SupportsSplit",
]

#: A dict of fields plus ``"__key__"``.
Sample: TypeAlias = dict[str, Any]

#: For each field a list, or an array with a row for each sample; also ``"__key__"``.
Columns: TypeAlias = "dict[str, list[Any] | NDArray[Any]]"


class Listable(Protocol):
    """Values that become a list when somebody looks at them: it must be quick, and cannot fail.

    >>> class Numbers:
    ...     nbytes = 24
    ...     def tolist(self): return [1, 2, 3]
    >>> numbers: Listable = Numbers()
    >>> numbers.tolist()
    [1, 2, 3]
    """

    @property
    def nbytes(self) -> int:
        """Their memory."""

    def tolist(self) -> list[Any]:
        """List them."""


#: A batch: columns, some of which are not listed yet.
Batch: TypeAlias = "dict[str, list[Any] | NDArray[Any] | Listable]"


@dataclass(frozen=True, slots=True)
class Shard:
    """A lazy piece of a source: samples ``start``, ``start + step``, ... below ``stop`` of what ``url`` names.

    A step above 1 shares out a stream whose length nobody knows and in which nobody can seek.

    >>> Shard("a.tar", start=10, stop=20)
    Shard(url='a.tar', start=10, stop=20, step=1)
    """

    url: str
    start: int = 0
    stop: int | None = None
    step: int = 1

    def numbers(self, total: int) -> range:
        """Say which samples these are of ``total`` that there are.

        >>> list(Shard("a.tar", 1, 6, 2).numbers(4))
        [1, 3]
        """
        return range(self.start, total if self.stop is None else min(self.stop, total), self.step)

    def split(self, parts: int, length: int | None) -> list[Shard]:
        """Cut it into ranges, if its length is known; else deal its samples out in turn.

        >>> [(part.start, part.stop) for part in Shard("a.tar").split(2, 5)]
        [(0, 2), (2, 5)]
        >>> Shard("a.tar").split(2, None)[1]
        Shard(url='a.tar', start=1, stop=None, step=2)
        """
        if parts < 1:
            raise PlanError(f"a shard is split into at least 1 part, not {parts}")
        if length is None:
            starts = (self.start + part * self.step for part in range(parts))
            return [Shard(self.url, start, self.stop, self.step * parts) for start in starts]
        cuts = [self.start + length * part // parts * self.step for part in range(parts + 1)]
        return [Shard(self.url, low, high, self.step) for low, high in pairwise(cuts)]


class Picks(NamedTuple):
    """Samples of several shards of a source, each by the number of its shard and its place in it.

    >>> picks = Picks([Shard("a"), Shard("b")], np.array([1, 0]), np.array([7, 3]))
    >>> [(picks.shards[number].url, int(offset)) for number, offset in zip(picks.numbers, picks.offsets)]
    [('b', 7), ('a', 3)]
    """

    shards: Sequence[Shard]
    """All shards of the source."""
    numbers: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def by_shard(self, *, in_order: bool = True) -> list[tuple[Shard, NDArray[np.int64]]]:
        """Give for each shard which of the picks are of it, in the order in which they lie there, if that matters.

        >>> picks = Picks([Shard("a"), Shard("b")], np.array([1, 0, 1]), np.array([7, 3, 2]))
        >>> [(shard.url, places.tolist()) for shard, places in picks.by_shard()]
        [('a', [1]), ('b', [2, 0])]
        """
        if not len(self.numbers):
            return []
        # Small numbers are sorted by their digits, in no time.
        small = self.numbers.astype(np.uint16) if len(self.shards) <= 2**16 else self.numbers
        order = np.lexsort((self.offsets, self.numbers)) if in_order else np.argsort(small, kind="stable")
        runs = np.split(order, np.flatnonzero(np.diff(self.numbers[order])) + 1)
        return [(self.shards[int(self.numbers[run[0]])], run) for run in runs]


@dataclass(frozen=True, slots=True)
class Block:
    """Some samples in their order; what crosses queues, processes and hosts.

    Fields that no stage has decoded are bytes, or read-only views into a mapped shard.

    >>> block = Block([{"__key__": "a", "x": 1}, {"__key__": "b", "x": 2}], [Shard("numbers.tar")])
    >>> block.origin("b")
    'numbers.tar'
    >>> block.pick([1], [{"__key__": "b", "x": 4}]).rows
    [1]
    """

    samples: list[Sample]
    origins: Sequence[Shard] = ()
    """The shard each sample came from; one entry if it is the same for all, none if it is not known."""
    ids: NDArray[np.uint64] | None = None
    """A number of its own for each sample, where one is needed."""
    rows: Sequence[int] | None = None
    """Which sample of the block that came in each one was made of; None while they are the same."""
    salt: int = 0
    """What random stages of this run and epoch are keyed with, beside the ids."""

    def origin(self, key: str) -> str | None:
        """Find the URL of the shard that a sample came from, for the text of an error.

        Shards that have the same keys cannot be told apart by them, so all that it may be are named.
        """
        if len(self.origins) < 2:
            return self.origins[0].url if self.origins else None
        pairs = zip(self.samples, self.origins, strict=True)
        urls = dict.fromkeys(shard.url for sample, shard in pairs if sample["__key__"] == key)
        return " or ".join(urls) or None

    def with_samples(self, samples: list[Sample]) -> Block:
        """Put another sample in the place of each."""
        return replace(self, samples=samples)

    def pick(self, places: Sequence[int], samples: list[Sample]) -> Block:
        """Put samples that were made of those at ``places`` in the place of all."""
        origins = self.origins if len(self.origins) < 2 else [self.origins[place] for place in places]
        ids = None if self.ids is None else self.ids[np.asarray(places, np.int64)]
        rows = places if self.rows is None else [self.rows[place] for place in places]
        return Block(samples, origins, ids, rows, self.salt)


class Source(ABC):
    """A list of shards and a way to open one.

    >>> class Countdown(Source):
    ...     def shards(self):
    ...         return [Shard("countdown")]
    ...     def open(self, shard, start=0):
    ...         yield Block([{"__key__": str(number), "n": number} for number in (3, 2, 1)[start:]])
    >>> from shoal import Dataset
    >>> [sample["n"] for sample in Dataset(Countdown())]
    [3, 2, 1]
    """

    @abstractmethod
    def shards(self) -> Sequence[Shard]:
        """List the shards, in storage order."""

    @abstractmethod
    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        """Yield the shard's samples in blocks, from its sample ``start`` on."""

    @property
    def seekable(self) -> bool:
        """Whether single samples can be picked out of shards without reading what lies before them."""
        return isinstance(self, SupportsRandomAccess)

    @property
    def counted(self) -> bool:
        """Whether the lengths of shards are known without opening each of them."""
        return False

    @property
    def waits(self) -> bool:
        """Whether reading waits for a server or a decompressor, so that several threads read more than one does."""
        return True

    def fingerprint(self, shard: Shard) -> str:
        """Give a short text that changes when the shard does, as far as can be told without reading it."""
        return ""

    def size(self, shard: Shard) -> int | None:
        """Give the bytes of the shard, if they are known without reading it."""
        return None


@runtime_checkable
class SupportsRandomAccess(Protocol):
    """A source that knows how long a shard is and can pick samples out of it.

    >>> from shoal.sources import ArraySource
    >>> source = ArraySource({"x": np.arange(5)})
    >>> isinstance(source, SupportsRandomAccess)
    True
    >>> [int(sample["x"]) for sample in source.take(source.shards()[0], [4, 0])]
    [4, 0]
    """

    def length(self, shard: Shard) -> int:
        """Count the samples of a shard."""
        ...

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        """Read the samples at these positions of a shard, in this order."""
        ...


@runtime_checkable
class SupportsColumns(Protocol):
    """A source that can read many samples of a shard at once as columns.

    >>> from shoal.sources import ArraySource
    >>> source = ArraySource({"x": np.arange(5)})
    >>> isinstance(source, SupportsColumns)
    True
    >>> source.take_columns(source.shards()[0], np.array([4, 0]))["x"].tolist()
    [4, 0]
    """

    def take_columns(self, shard: Shard, indices: NDArray[np.int64]) -> Columns | None:
        """Read the samples at these positions, in this order, as what a batch of them has.

        None where samples differ in their fields or cannot be columns, and have to be read one by one; and for none.
        """
        ...


@runtime_checkable
class SupportsBatches(Protocol):
    """A source that can read samples of several shards at once as batches of columns.

    >>> from shoal.sources import ArraySource, ParquetSource
    >>> issubclass(ParquetSource, SupportsBatches), issubclass(ArraySource, SupportsBatches)
    (True, False)
    """

    def take_batches(self, picks: Picks, sizes: NDArray[np.int64]) -> list[Batch] | None:
        """Read samples as batches of so many; None as above."""
        ...


@runtime_checkable
class SupportsSplit(Protocol):
    """A source that can cut a shard into smaller ones.

    >>> from shoal.sources import ArraySource
    >>> source = ArraySource({"x": np.arange(5)})
    >>> isinstance(source, SupportsSplit)
    True
    >>> [source.length(part) for part in source.split(source.shards()[0], 2)]
    [2, 3]
    """

    def split(self, shard: Shard, parts: int) -> list[Shard]:
        """Cut a shard into ``parts`` disjoint shards that together hold all its samples."""
        ...
