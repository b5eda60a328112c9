"""What travels through the steps of a run: samples of one or several leaves, and what became of them so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal.abc import Batch, Block, Sample
from shoal.pipeline.ledger import Failure

__all__ = ["Batches", "Outputs", "Parcel", "Part", "Spent", "weight"]

#: What became of one input: a list of (sample, id); where a mixture lies between stages, a list of such lists.
Outputs: TypeAlias = list[Any]
#: The number of the step, the stage, the seconds it took, and the samples it was given.
Spent: TypeAlias = tuple[int, str, float, int]

# Samples of a parcel that are weighed; the others are taken to be like them.
_WEIGHED = 8


@dataclass(slots=True)
class Part:
    """Samples of one leaf."""

    leaf: int
    block: Block
    places: Sequence[int]
    """Which inputs of the parcel the samples were read for."""
    rows: NDArray[Any] | None = None
    """Where a stage that fills rows of the batch does so."""
    crossed: list[Sequence[int] | None] = field(default_factory=list)
    """Which samples were made of which, up to each mixture that was passed."""

    def input_of(self, place: int) -> int:
        """Find the input of which a sample of the block was made."""
        for rows in (self.block.rows, *reversed(self.crossed)):
            place = place if rows is None else rows[place]
        return self.places[place]

    def outputs(self) -> list[Outputs]:
        """Tell for each input what became of it."""
        assert self.block.ids is not None
        items: list[Any] = list(zip(self.block.samples, self.block.ids.tolist(), strict=True))
        levels = [*self.crossed, self.block.rows]
        counts = [len(self.places)]
        for rows in levels:
            counts.append(counts[-1] if rows is None else len(rows))
        for rows, count in zip(reversed(levels), counts[-2::-1], strict=True):
            items = _grouped(items, rows, count)
        return items


def _grouped(items: list[Any], rows: Sequence[int] | None, count: int) -> list[Outputs]:
    if rows is None:
        return [[item] for item in items]
    groups: list[Outputs] = [[] for _ in range(count)]
    for row, item in zip(rows, items, strict=True):
        groups[row].append(item)
    return groups


#: Batches that were made as columns, each with its number of rows.
Batches: TypeAlias = "list[tuple[Batch, int]]"


@dataclass(slots=True)
class Parcel:
    """Some inputs on their way through the steps of a run."""

    wanted: Any
    """What is to be read, which can tell the ``urls()`` of its shards; None when it has been."""
    parts: list[Part] = field(default_factory=list)
    batches: Batches | None = None
    failures: list[tuple[int, Failure]] = field(default_factory=list)
    """Inputs of which a sample could not be used, and why."""
    spent: list[Spent] = field(default_factory=list)
    stage: str = ""
    """What is being done with it."""

    @property
    def nbytes(self) -> int:
        """The memory that its samples take, about."""
        held = sum(weight(part.block.samples) for part in self.parts)
        if not self.batches:
            return held
        batch, count = self.batches[0]  # the others are taken to be like it
        return sum(map(_weight, batch.values())) * sum(size for _, size in self.batches) // max(count, 1)

    @property
    def address(self) -> str:
        """Say which shards it is of, and in which stage it is."""
        wanted, parts = self.wanted, list(self.parts)  # a worker may be at it
        unread = [] if parts or wanted is None else wanted.urls()
        count = len(unread) + sum(len(part.places) for part in parts)
        shards = dict.fromkeys([*unread, *(shard.url for part in parts for shard in part.block.origins)])
        doing = f", in stage {self.stage}" if self.stage else ""
        return f"{count} samples of {', '.join(shards) or 'a source'}{doing}"


def weight(samples: Sequence[Sample]) -> int:
    """Estimate the bytes of samples.

    >>> weight([{"__key__": "a", "jpg": bytes(1000)}] * 100)
    100100
    """
    some = samples if len(samples) <= _WEIGHED else samples[:: len(samples) // _WEIGHED]
    held = sum(_weight(value) for sample in some for value in sample.values())
    return held * len(samples) // max(len(some), 1)


def _weight(value: Any) -> int:
    if isinstance(value, bytes | str | bytearray):
        return len(value)
    if isinstance(value, np.ndarray | memoryview):
        return value.nbytes
    if isinstance(value, list) and value:
        return (_weight(value[0]) + _weight(value[len(value) // 2])) * len(value) // 2
    return int(getattr(value, "nbytes", 0))
