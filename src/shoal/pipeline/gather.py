"""Stages that make something of several samples: batches, buckets, packed sequences.

Each lane does this by itself: samples are collected in bins, and a full bin becomes one sample. What lies in the bins
is part of a loader's position, as references to the samples and never as their contents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from shoal.abc import Sample
from shoal.errors import MissingFieldError, PlanError, SampleError
from shoal.pipeline._collate import collate
from shoal.pipeline.stages import Place, Stage

__all__ = ["Batch", "Budget", "Gathering", "LaneStage", "Pack", "Piece", "Take"]

#: The name of a field whose length counts, or a function that tells the length of a sample.
Length: TypeAlias = "str | Callable[[Sample], int]"


class Piece(NamedTuple):
    """A sample, or a range of its sequence, on its way through a lane.

    >>> Piece({"tokens": [1, 2, 3, 4]}, start=1, stop=3).stop
    3
    """

    sample: Any
    ref: Any = ()
    """How to make the sample again."""
    id: int = 0
    start: int = 0
    stop: int | None = None


class Gathering(ABC):
    """What a stage does in one lane: pieces go into bins, and bins that are full come out.

    >>> pairs = Batch(Budget(size=2)).lane()
    >>> pairs.add(Piece({"__key__": "a", "x": 1}))
    []
    >>> (full,) = pairs.add(Piece({"__key__": "b", "x": 2}))
    >>> pairs.build(full)["x"].tolist(), pairs.end()
    ([1, 2], [])
    """

    def __init__(self) -> None:
        self.bins: list[list[Piece]] = []

    @abstractmethod
    def add(self, piece: Piece) -> list[list[Piece]]:
        """Put a piece into a bin and give the bins that are full."""

    @abstractmethod
    def end(self) -> list[list[Piece]]:
        """Give what is left."""

    @abstractmethod
    def build(self, pieces: list[Piece]) -> Sample:
        """Make a sample of a bin."""

    def restore(self, bins: list[list[Piece]]) -> None:
        """Go on with bins that are filled already."""
        self.bins = bins


class LaneStage(Stage, ABC):
    """A stage that acts inside a lane.

    >>> isinstance(Pack(8), LaneStage), Pack(8).keeps_count
    (True, False)
    """

    keeps_count = False

    @abstractmethod
    def lane(self) -> Gathering:
        """Begin a lane."""


@dataclass(frozen=True, slots=True)
class Take(Stage):
    """Ends each lane after its share of the first samples.

    >>> import shoal
    >>> shoal.from_arrays({"x": range(5)}).take(2).count()  # adds Take(2) to the plan
    2
    """

    keeps_count = False
    count: int

    def __post_init__(self) -> None:
        if self.count < 0:
            raise PlanError(f"take({self.count}) makes no sense: the count must not be negative")


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a batch may hold: so many samples, tokens or bytes.

    >>> Budget(tokens=4096, length="text").tokens
    4096
    """

    size: int | None = None
    tokens: int | None = None
    bytes: int | None = None
    length: Length | None = None
    """What counts as tokens, and what buckets go by."""

    def __post_init__(self) -> None:
        given = [limit for limit in (self.size, self.tokens, self.bytes) if limit is not None]
        if len(given) != 1:
            raise PlanError("a batch is limited by one of size=, tokens= and bytes=")
        if given[0] < 1:
            raise PlanError(f"a batch has at least 1 sample, not {given[0]}" if self.size is not None else
                            f"the limit of a batch is at least 1, not {given[0]}")  # fmt: skip
        if self.tokens is not None and self.length is None:
            raise PlanError("tokens= needs length=: the name of the field to measure, or a function")

    @property
    def limit(self) -> int:
        """The limit, in its own unit."""
        limit = self.size or self.tokens or self.bytes
        assert limit is not None
        return limit

    def cost(self, sample: Sample) -> int:
        """Measure a sample in the unit of the limit."""
        if self.size is not None:
            return 1
        return self.measure(sample) if self.tokens is not None else sum(map(_nbytes, sample.values()))

    def measure(self, sample: Sample) -> int:
        """Tell the length of a sample."""
        if callable(self.length):
            return int(self.length(sample))
        assert self.length is not None
        return len(_field(sample, self.length))


@dataclass(frozen=True, slots=True)
class Batch(LaneStage):
    """Makes one sample of several: a dict of stacked arrays, with a list of keys.

    With boundaries, samples of similar length come together: each bucket fills a batch of its own.

    >>> lane = Batch(Budget(tokens=6, length="tokens"), pad={"tokens": 0}).lane()
    >>> lane.add(Piece({"__key__": "a", "tokens": np.array([1, 2, 3])}))
    []
    >>> (full,) = lane.add(Piece({"__key__": "b", "tokens": np.array([4])}))
    >>> lane.build(full)["tokens"].tolist()
    [[1, 2, 3], [4, 0, 0]]
    """

    budget: Budget
    boundaries: tuple[int, ...] = ()
    pad: Mapping[str, Any] | None = None
    """Fields to fill up to the longest of a batch, and with what; padding counts as tokens then."""
    partial: bool = True

    def __post_init__(self) -> None:
        if any(a >= b for a, b in pairwise(self.boundaries)):
            raise PlanError(f"the boundaries of buckets increase; these do not: {list(self.boundaries)}")

    def lane(self) -> Gathering:
        """Begin a lane."""
        return _Batching(self)


class _Batching(Gathering):
    def __init__(self, stage: Batch) -> None:
        self._stage = stage
        self.restore([[] for _ in range(len(stage.boundaries) + 1)])

    def restore(self, bins: list[list[Piece]]) -> None:
        self.bins = bins
        self._costs = [[self._stage.budget.cost(piece.sample) for piece in pieces] for pieces in bins]

    def add(self, piece: Piece) -> list[list[Piece]]:
        stage, budget = self._stage, self._stage.budget
        with Place(stage, piece.sample):
            cost = budget.cost(piece.sample)
            if cost > budget.limit:
                unit = "tokens" if budget.tokens is not None else "bytes"
                raise SampleError(f"the sample has {cost} {unit}, more than the {budget.limit} of a whole batch")
            bucket = bisect_right(stage.boundaries, budget.measure(piece.sample)) if stage.boundaries else 0
        full = []
        if self.bins[bucket] and self._total([*self._costs[bucket], cost]) > budget.limit:
            full.append(self._emptied(bucket))
        self.bins[bucket].append(piece)
        self._costs[bucket].append(cost)
        if self._total(self._costs[bucket]) == budget.limit:
            full.append(self._emptied(bucket))
        return full

    def end(self) -> list[list[Piece]]:
        left = [self._emptied(bucket) for bucket, pieces in enumerate(self.bins) if pieces]
        return left if self._stage.partial else []

    def build(self, pieces: list[Piece]) -> Sample:
        samples = [piece.sample for piece in pieces]
        return collate(_padded(samples, self._stage.pad) if self._stage.pad else samples)

    def _emptied(self, bucket: int) -> list[Piece]:
        full, self.bins[bucket], self._costs[bucket] = self.bins[bucket], [], []
        return full

    def _total(self, costs: list[int]) -> int:
        if self._stage.budget.size is not None:
            return len(costs)
        return max(costs) * len(costs) if self._stage.pad and self._stage.budget.tokens is not None else sum(costs)


@dataclass(frozen=True, slots=True)
class Pack(LaneStage):
    """Fills sequences of one length with several samples, or with pieces of them.

    ``"first-fit"`` keeps samples whole: each goes into the first open bin that has room. ``"concat"`` joins all samples
    and cuts what comes out into sequences of exactly this length.

    >>> lane = Pack(4).lane()
    >>> for key, tokens in {"a": [1, 2, 3], "b": [4]}.items():
    ...     full = lane.add(Piece({"__key__": key, "tokens": np.array(tokens)}))
    >>> lane.build((full or lane.end())[0])["tokens"].tolist()
    [1, 2, 3, 4]
    """

    length: int
    fields: tuple[str, ...] = ("tokens",)
    method: str = "first-fit"
    bins: int = 16
    """Bins that are open at once; a further one sends the fullest off."""
    long: str = "error"
    """What becomes of samples longer than a sequence: ``"error"``, ``"split"``, ``"truncate"`` or ``"drop"``."""
    pad: Any = 0
    """What fills sequences up; None leaves them short."""
    partial: bool = True

    def __post_init__(self) -> None:
        if self.length < 1 or self.bins < 1:
            raise PlanError(f"pack(length={self.length}, bins={self.bins}): both are at least 1")
        if not self.fields:
            raise PlanError("pack wants the names of the fields that hold the sequences")
        for name, value, known in (
            ("method", self.method, ("first-fit", "concat")),
            ("long", self.long, ("error", "split", "truncate", "drop")),
        ):
            if value not in known:
                raise PlanError(f"pack({name}={value!r}); known are {', '.join(map(repr, known))}")

    def lane(self) -> Gathering:
        """Begin a lane."""
        return _FirstFit(self) if self.method == "first-fit" else _Concat(self)


class _Packing(Gathering):
    def __init__(self, stage: Pack) -> None:
        super().__init__()
        self._stage = stage

    def end(self) -> list[list[Piece]]:
        left, self.bins = self.bins, []
        return left if self._stage.partial else []

    def build(self, pieces: list[Piece]) -> Sample:
        stage = self._stage
        sizes = [_span(piece) for piece in pieces]
        first = pieces[0].sample["__key__"]
        made: Sample = {"__key__": first if len(pieces) == 1 else f"{first}+{len(pieces) - 1}"}
        for name in stage.fields:
            made[name] = self._filled(np.concatenate([_field(p.sample, name)[p.start : p.stop] for p in pieces]))
        made["segments"] = self._filled(np.repeat(np.arange(1, len(sizes) + 1, dtype=np.int32), sizes), 0)
        made["positions"] = self._filled(np.concatenate([np.arange(size, dtype=np.int32) for size in sizes]), 0)
        made["__parts__"] = [(p.sample["__key__"], p.start, p.start + n) for p, n in zip(pieces, sizes, strict=True)]
        return made

    def _filled(self, values: Any, filler: Any = None) -> Any:
        stage = self._stage
        missing = stage.length - len(values)
        if stage.pad is None or not missing:
            return values
        widths = [(0, missing), *[(0, 0)] * (values.ndim - 1)]
        return np.pad(values, widths, constant_values=stage.pad if filler is None else filler)

    def _length(self, sample: Sample) -> int:
        with Place(self._stage, sample):
            lengths = {name: len(_field(sample, name)) for name in self._stage.fields}
            if len(set(lengths.values())) > 1:
                raise SampleError(f"the fields to pack differ in length: {lengths}")
            return next(iter(lengths.values()))


class _FirstFit(_Packing):
    def add(self, piece: Piece) -> list[list[Piece]]:
        stage, length = self._stage, self._length(piece.sample)
        if not length:
            return []
        if length <= stage.length:
            return self._place(piece._replace(stop=length))
        if stage.long == "error":
            with Place(stage, piece.sample):
                hint = 'long="split", "truncate" or "drop" would take it'
                raise SampleError(f"the sample has length {length}, more than the {stage.length} of a sequence; {hint}")
        if stage.long == "drop":
            return []
        starts = range(0, length if stage.long == "split" else 1, stage.length)
        pieces = [piece._replace(start=at, stop=min(at + stage.length, length)) for at in starts]
        return [full for each in pieces for full in self._place(each)]

    def _place(self, piece: Piece) -> list[list[Piece]]:
        room = self._stage.length - _span(piece)
        at = next((at for at, pieces in enumerate(self.bins) if _filling(pieces) <= room), None)
        if at is not None:
            self.bins[at].append(piece)
            return [self.bins.pop(at)] if _filling(self.bins[at]) == self._stage.length else []
        if room == 0:
            return [[piece]]
        self.bins.append([piece])
        if len(self.bins) <= self._stage.bins:
            return []
        return [self.bins.pop(max(range(len(self.bins)), key=lambda at: (_filling(self.bins[at]), -at)))]


class _Concat(_Packing):
    def add(self, piece: Piece) -> list[list[Piece]]:
        full, at, length = [], 0, self._length(piece.sample)
        while at < length:
            if not self.bins:
                self.bins.append([])
            taken = min(self._stage.length - _filling(self.bins[0]), length - at)
            self.bins[0].append(piece._replace(start=at, stop=at + taken))
            at += taken
            if _filling(self.bins[0]) == self._stage.length:
                full.append(self.bins.pop())
        return full


def _span(piece: Piece) -> int:
    assert piece.stop is not None
    return piece.stop - piece.start


def _filling(pieces: list[Piece]) -> int:
    return sum(map(_span, pieces))


def _field(sample: Sample, name: str) -> Any:
    if name not in sample:
        present = ", ".join(sorted(field for field in sample if field != "__key__"))
        raise MissingFieldError(f"the sample has no such field; it has {present}", key=sample["__key__"], field=name)
    value = sample[name]
    return np.asarray(value) if isinstance(value, list | tuple) else value


def _nbytes(value: Any) -> int:
    if isinstance(value, bytes | memoryview | bytearray):
        return len(value)
    if isinstance(value, str):
        return len(value.encode())
    return int(getattr(value, "nbytes", 8))


def _padded(samples: Sequence[Sample], pad: Mapping[str, Any]) -> list[Sample]:
    """Fill fields up to the longest of them."""
    made = [dict(sample) for sample in samples]
    for name, filler in pad.items():
        values = [np.asarray(_field(sample, name)) for sample in samples]
        longest = max(len(value) for value in values)
        for sample, value in zip(made, values, strict=True):
            widths = [(0, longest - len(value)), *[(0, 0)] * (value.ndim - 1)]
            sample[name] = np.pad(value, widths, constant_values=filler)
    return made
