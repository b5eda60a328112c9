"""All samples of a source by number: where each lies, and how to read some of them.

Shards are counted in the background, one after the other, so that the first samples are there at once, however many
follow. What is read is what somebody looks at. Of a shard that breaks off, the samples before that are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal._kept import Kept
from shoal.abc import Block, Sample, Shard, Source, SupportsRandomAccess
from shoal.errors import PlanError, SampleError, ShardError, ShoalError
from shoal.view._jobs import Job

if TYPE_CHECKING:
    from shoal.pipeline import Failure

__all__ = ["Catalogue", "Piece", "Total", "weight"]

#: Samples that are read together from a source in which picking single ones is dear, and bytes of them that are kept.
_PIECE = 32
_KEPT = 64 * 2**20
#: Seconds for which a sample is waited for whose shard is not counted yet.
_PATIENCE = 60.0
#: What is wrong with a shard whose beginning may be good.
_TORN = (ShardError, SampleError)


class Total(NamedTuple):
    """How many samples are known of."""

    samples: int
    shards: int
    counted: int
    """Shards whose samples are in the number."""

    @property
    def complete(self) -> bool:
        """Whether these are all."""
        return self.counted == self.shards


class Piece(NamedTuple):
    """Samples that follow one another, and the number of the first."""

    first: int
    samples: list[Sample]


class Catalogue:
    """The samples of a source, numbered through.

    ``narrow`` gives a source that reads only some fields, where there is one.

    >>> from shoal.sources import ArraySource
    >>> catalogue = Catalogue(ArraySource({"x": np.arange(5)}))
    >>> catalogue.count_all().samples, [int(sample["x"]) for sample in catalogue.samples([4, 0])]
    (5, [4, 0])
    """

    def __init__(self, source: Source, narrow: Callable[[Collection[str]], Source] | None = None) -> None:
        if not isinstance(source, SupportsRandomAccess):
            raise PlanError(f"{source!r} is read forward only, and a page looks at any sample; convert it first")
        self.source: Source = source
        self._narrow = narrow
        self._pick: SupportsRandomAccess = source
        self._shards: Sequence[Shard] = source.shards()
        self._ends: list[int] = []
        self._failed: set[int] = set()
        self.failures: list[Failure] = []
        """Shards that cannot be read to their end."""
        self._pieces: Kept[list[Sample]] = Kept(_KEPT, weight)
        self._slow = source.waits
        self.counting = Job(self._count)
        self.counting.start()

    @property
    def shards(self) -> Sequence[Shard]:
        """All shards."""
        return self._shards

    @property
    def total(self) -> Total:
        """How many samples are known of by now."""
        counted = len(self._ends)
        return Total(self._ends[counted - 1] if counted else 0, len(self._shards), counted)

    def count_some(self, seconds: float) -> Total:
        """Wait until there is a sample, if there is any."""
        self.counting.wait_until(lambda: self.total.samples > 0, seconds)
        return self.total

    def count_all(self, seconds: float = 3600.0) -> Total:
        """Wait until all shards are counted."""
        self.counting.wait_until_done(seconds)
        return self.total

    def place(self, number: int) -> tuple[Shard, int]:
        """Give the shard of a sample, and its place in it."""
        shard, offset = self._located(np.array([number]))
        return self._shards[int(shard[0])], int(offset[0])

    def number(self, url: str | None, offset: int | None) -> int | None:
        """Give the number of a sample that lies in a shard, if it is known."""
        at = next((at for at, shard in enumerate(self._shards) if shard.url == url), None)
        if at is None or offset is None or at >= len(self._ends):
            return None
        number = (self._ends[at - 1] if at else 0) + offset - self._shards[at].start
        return number if number < self._ends[at] else None

    def samples(self, numbers: Sequence[int]) -> list[Sample]:
        """Read some samples, in this order, and nothing else."""
        wanted = np.asarray(numbers, np.int64)
        shards, offsets = self._located(wanted)
        found: dict[int, Sample] = {}
        for at in np.unique(shards).tolist():
            places = np.flatnonzero(shards == at)
            some = self._taken(at, offsets[places].tolist())
            found.update(zip(places.tolist(), some, strict=True))
        return [found[place] for place in range(len(wanted))]

    def scan(self, fields: Collection[str] | None = None) -> Iterator[Piece]:
        """Read all samples once, forward; only some fields, where the source can leave others out."""
        for at in range(len(self._shards)):
            yield from self.scan_shard(at, fields)

    def scan_shard(self, at: int, fields: Collection[str] | None = None) -> Iterator[Piece]:
        """Read the samples of one shard; of one that breaks off, those before that."""
        source = self.source if fields is None or self._narrow is None else self._narrow(fields)
        first, end = self._bounds(at)
        if first == end:
            return  # empty, or it failed before its first sample
        forward = _before_the_break(source, self._shards[at]) if at in self._failed else source.open(self._shards[at])
        for block in forward:
            yield Piece(first, block.samples)
            first += len(block.samples)

    def failed(self, at: int) -> bool:
        """Tell whether a shard cannot be read to its end; there is no index of it then."""
        self._bounds(at)
        return at in self._failed

    def _bounds(self, at: int) -> tuple[int, int]:
        """Give the numbers of a shard's first sample and of the one behind its last, once it is counted."""
        self.counting.wait_until(lambda: len(self._ends) > at, 3600.0)
        if len(self._ends) <= at:
            reason = self.counting.error or "it took too long"
            raise PlanError(f"shard {self._shards[at].url} was not counted: {reason}")
        return self._ends[at - 1] if at else 0, self._ends[at]

    def _taken(self, at: int, offsets: list[int]) -> list[Sample]:
        if not self._slow and at not in self._failed:
            return self._pick.take(self._shards[at], offsets)
        return [self._piece(at, offset // _PIECE)[offset % _PIECE] for offset in offsets]

    def _piece(self, at: int, piece: int) -> list[Sample]:
        return self._pieces.get((at, piece), lambda: self._read_piece(at, piece * _PIECE))

    def _read_piece(self, at: int, start: int) -> list[Sample]:
        first, end = self._bounds(at)
        count = min(_PIECE, end - first - start)
        if at not in self._failed:
            return self._pick.take(self._shards[at], list(range(start, start + count)))
        forward = _before_the_break(self.source, self._shards[at], start)
        return list(islice(chain.from_iterable(block.samples for block in forward), count))

    def _located(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if len(numbers):
            last = int(numbers.max())
            self.counting.wait_until(lambda: self.total.samples > last, _PATIENCE)
        ends = np.array(self._ends, np.int64)
        if len(numbers) and (not len(ends) or numbers.min() < 0 or numbers.max() >= ends[-1]):
            raise IndexError(f"there is no sample {int(numbers.max())}; {self.total.samples} are known")
        shards = np.searchsorted(ends, numbers, side="right")
        return shards, numbers - np.concatenate([[0], ends])[shards]

    def _count(self, job: Job) -> None:
        samples = 0
        for at, shard in enumerate(self._shards):
            try:
                samples += self._pick.length(shard)
            except (ShoalError, OSError) as error:
                from shoal.pipeline import Failure  # most pages are there sooner without

                self.failures.append(Failure.of(error, key=None, shard=shard.url, stage="reading the shard"))
                self._failed.add(at)
                if isinstance(error, _TORN):
                    samples += sum(len(block.samples) for block in _before_the_break(self.source, shard))
            self._ends.append(samples)
            job.tick()


def _before_the_break(source: Source, shard: Shard, start: int = 0) -> Iterator[Block]:
    """Read a shard that cannot be read to its end for as long as it can."""
    with suppress(*_TORN):
        yield from source.open(shard, start)


def weight(samples: list[Sample]) -> int:
    """Tell how many bytes some samples have, about."""
    return sum(getattr(value, "nbytes", None) or _length(value) for sample in samples for value in sample.values())


def _length(value: object) -> int:
    return len(value) if isinstance(value, bytes | str) else 64
