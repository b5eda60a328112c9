"""What is in some data: how many samples, which fields, how large they are, which classes. Needs little memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal._kinds import source_of
from shoal.abc import Sample
from shoal.cli._at_once import Stop
from shoal.files import scheme, stat

__all__ = ["FieldSummary", "Sizes", "Summary", "merged", "summary_of"]

#: Different sizes that are counted exactly; beyond, they are rounded to three digits.
_EXACT = 2**16
#: Different classes that are counted at all.
_MOST_CLASSES = 100_000


class Sizes:
    """Counts sizes: smallest, largest and sum are exact, the median to a thousandth where sizes are very many.

    >>> sizes = Sizes()
    >>> for size in (3, 1, 2):
    ...     sizes.add(size)
    >>> sizes.smallest, sizes.median, sizes.largest, sizes.total
    (1, 2, 3, 6)
    """

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._rounded = False
        self.smallest: int | None = None
        self.largest: int | None = None
        self.total = 0

    def add(self, size: int) -> None:
        """Count a size."""
        self.total += size
        self.smallest = size if self.smallest is None else min(self.smallest, size)
        self.largest = size if self.largest is None else max(self.largest, size)
        self._count(size, 1)

    def merge(self, other: Sizes) -> None:
        """Add what another has counted."""
        if other._rounded and not self._rounded:
            self._round()
        for size, count in other._counts.items():
            self._count(size, count)
        self.total += other.total
        self.smallest = min(_known(self.smallest, other.smallest), default=None)
        self.largest = max(_known(self.largest, other.largest), default=None)

    @property
    def median(self) -> int | None:
        """The size that no more than half of all are below, and no more than half above."""
        left = (sum(self._counts.values()) + 1) // 2
        for size in sorted(self._counts):
            left -= self._counts[size]
            if left <= 0:
                return size
        return None

    def _count(self, size: int, count: int) -> None:
        self._counts[_rounded(size) if self._rounded else size] += count
        if not self._rounded and len(self._counts) > _EXACT:
            self._round()

    def _round(self) -> None:
        counts, self._counts, self._rounded = self._counts, Counter(), True
        for size, count in counts.items():
            self._counts[_rounded(size)] += count


@dataclass
class FieldSummary:
    """A field: in how many samples it is, of which types, how large."""

    samples: int = 0
    types: Counter[str] = field(default_factory=Counter)
    sizes: Sizes = field(default_factory=Sizes)

    def add(self, value: Any) -> None:
        """Count a value."""
        self.samples += 1
        self.types[_type(value)] += 1
        size = _size(value)
        if size is not None:
            self.sizes.add(size)

    def merge(self, other: FieldSummary) -> None:
        """Add what another has counted."""
        self.samples += other.samples
        self.types += other.types
        self.sizes.merge(other.sizes)


@dataclass
class Summary:
    """Shards, and all that is in them."""

    shards: list[tuple[str, int, int | None]] = field(default_factory=list)
    """For each its URL, samples and bytes."""
    fields: dict[str, FieldSummary] = field(default_factory=dict)
    classes: Counter[str] = field(default_factory=Counter)
    all_classes: bool = True
    """Whether all classes are counted: where nearly each sample has its own, most are not."""

    @property
    def samples(self) -> int:
        """All of them."""
        return sum(samples for _, samples, _ in self.shards)

    @property
    def bytes(self) -> int | None:
        """The bytes of all shards, as far as they are known."""
        known = [size for _, _, size in self.shards if size is not None]
        return sum(known) if known else None

    def add(self, sample: Sample, class_field: str) -> None:
        """Count a sample; in which shard it is, is not looked at."""
        for name, value in sample.items():
            if name != "__key__" and value is not None:
                if name not in self.fields:
                    self.fields[name] = FieldSummary()
                self.fields[name].add(value)
        label = sample.get(class_field)
        if label is not None:
            self._count({_label(label): 1})

    def merge(self, other: Summary) -> None:
        """Add what another has counted."""
        self.shards += other.shards
        for name, found in other.fields.items():
            self.fields.setdefault(name, FieldSummary()).merge(found)
        self.all_classes &= other.all_classes
        self._count(other.classes)

    def _count(self, classes: dict[str, int]) -> None:
        for name, count in classes.items():
            if name in self.classes or len(self.classes) < _MOST_CLASSES:
                self.classes[name] += count
            else:
                self.all_classes = False


def summary_of(url: str, class_field: str = "cls", *, trust: bool = False, stop: Stop | None = None) -> Summary:
    """Read one shard to its end, and tell what is in it."""
    summary, samples, stop = Summary(), 0, stop or Stop()
    source = source_of(url, trust=trust)
    for shard in source.shards():
        for block in source.open(shard):
            stop.check()
            samples += len(block.samples)
            for sample in block.samples:
                summary.add(sample, class_field)
    summary.shards.append((url, samples, None if scheme(url) in ("-", "pipe") else stat(url).size))
    return summary


def merged(summaries: Iterable[Summary]) -> Summary:
    """Put the summaries of shards together."""
    whole = Summary()
    for summary in summaries:
        whole.merge(summary)
    return whole


def _known(*bounds: int | None) -> list[int]:
    return [bound for bound in bounds if bound is not None]


def _rounded(size: int) -> int:
    digits = len(str(size)) - 3
    return size if digits <= 0 else round(size, -digits)


def _size(value: Any) -> int | None:
    if isinstance(value, bytes | memoryview):
        return len(value)
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    return int(value.nbytes) if isinstance(value, np.ndarray) else None


def _type(value: Any) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype} array" if isinstance(value, np.ndarray) else str(value.dtype)
    return "bytes" if isinstance(value, memoryview) else type(value).__name__


def _label(value: Any) -> str:
    if isinstance(value, bytes | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace").strip()
    return str(value)
