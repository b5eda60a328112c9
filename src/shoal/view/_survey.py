"""How samples are spread: their classes, the sizes of their fields, the sides of their pictures.

A look at some samples, evenly spread over all, is there in a moment; all of them are counted if somebody asks for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal.abc import Sample
from shoal.errors import SampleError
from shoal.shards.codecs import DecodeOptions
from shoal.view._catalogue import Catalogue
from shoal.view._jobs import Job, Pace
from shoal.view._looks import fields_of, label_of, look_of
from shoal.view._pictures import header

__all__ = ["Histogram", "Survey"]

#: Samples that a first look takes, and those it reads at once.
_SOME = 20_000
_PIECE = 500
#: Samples in which a picture is looked for: more tell nothing new.
_PICTURES = 5_000
#: Bins to each doubling, and how many are drawn at most.
_FINE = 32
_MOST_BINS = 30
_MOST_CLASSES = 10_000
_SHOWN_CLASSES = 200
_TOLD = 0.2


@dataclass
class Histogram:
    """Numbers in bins that grow by a factor: many to each doubling, and fewer where that would be too many to see.

    >>> histogram = Histogram()
    >>> for size in (100, 101, 5000):
    ...     histogram.add(size)
    >>> histogram.least, histogram.greatest, [bin["count"] for bin in histogram.bins() if bin["count"]]
    (100, 5000, [2, 1])
    """

    counts: Counter[int] = field(default_factory=Counter)
    least: int | None = None
    greatest: int | None = None
    total: int = 0
    number: int = 0

    def add(self, size: int) -> None:
        """Count a number."""
        self.counts[0 if size < 1 else 1 + int(math.log2(size) * _FINE)] += 1
        self.least = size if self.least is None else min(self.least, size)
        self.greatest = size if self.greatest is None else max(self.greatest, size)
        self.total, self.number = self.total + size, self.number + 1

    def bins(self) -> list[dict[str, Any]]:
        """List the bins from the first to the last that has something, with what lies between."""
        counts, coarse = self.counts.copy(), 1
        while counts and max(counts) - min(counts) >= _MOST_BINS:
            halved: Counter[int] = Counter()
            for at, count in counts.items():
                halved[at // 2] += count
            counts, coarse = halved, coarse * 2
        return [
            {"from": _edge(at * coarse), "to": _edge((at + 1) * coarse), "count": counts.get(at, 0)}
            for at in (range(min(counts), max(counts) + 1) if counts else ())
        ]

    def described(self) -> dict[str, Any]:
        """Give it as JSON has it."""
        mean = self.total / self.number if self.number else 0.0
        return {"bins": self.bins(), "least": self.least, "greatest": self.greatest, "mean": mean, "of": self.number}


def _edge(at: int) -> float:
    return 0.0 if at == 0 else round(2 ** ((at - 1) / _FINE), 2)


class Survey:
    """Counts in the background; what is known by now can be asked for at any time."""

    def __init__(
        self, catalogue: Catalogue, options: DecodeOptions, class_field: str | None, *, whole: bool = False
    ) -> None:
        self._catalogue, self._options, self._class = catalogue, options, class_field
        self.whole = whole
        self.seen = 0
        self._classes: Counter[str] = Counter()
        self._all_classes = True
        self._sizes: dict[str, Histogram] = {}
        self._sides = {"width": Histogram(), "height": Histogram()}
        self._measured = 0
        self.job = Job(self._run)
        self.job.start()

    def described(self) -> dict[str, Any]:
        """Tell what is known by now."""
        classes = self._classes.copy().most_common(_SHOWN_CLASSES)
        sides = {name: found.described() for name, found in self._sides.items() if found.number}
        return {
            "whole": self.whole,
            "seen": self.seen,
            "total": self._catalogue.total.samples,
            "done": self.job.done,
            "stopped": self.job.stopped,
            "error": self.job.error,
            "classes": {
                "field": self._class,
                "different": len(self._classes),
                "complete": self._all_classes,
                "counts": [{"label": label, "count": count} for label, count in classes],
            },
            "sizes": {name: found.described() for name, found in sorted(self._sizes.copy().items())},
            "sides": sides,
        }

    def _run(self, job: Job) -> None:
        pace = Pace(_TOLD)
        for sample in self._samples():
            self._add(sample)
            if pace.due():
                job.tick()

    def _samples(self) -> Iterator[Sample]:
        total = self._catalogue.total.samples if self.whole else self._catalogue.count_all().samples
        if self.whole or total <= _SOME or not self._catalogue.source.seekable:
            self.whole = True
            for piece in self._catalogue.scan():
                yield from piece.samples
            return
        chosen = np.unique(np.linspace(0, total - 1, _SOME).astype(np.int64)).tolist()
        for at in range(0, len(chosen), _PIECE):
            yield from self._catalogue.samples(chosen[at : at + _PIECE])

    def _add(self, sample: Sample) -> None:
        self.seen += 1
        for name in fields_of(sample):
            size = _size(sample[name])
            if size is not None:
                if name not in self._sizes:
                    self._sizes[name] = Histogram()
                self._sizes[name].add(size)
        label = sample.get(self._class) if self._class else None
        if label is not None:
            self._count(label_of(label))
        if self._measured < _PICTURES:
            self._measure(sample)

    def _count(self, label: str) -> None:
        if label in self._classes or len(self._classes) < _MOST_CLASSES:
            self._classes[label] += 1
        else:
            self._all_classes = False

    def _measure(self, sample: Sample) -> None:
        self._measured += 1
        for name in fields_of(sample):
            value = sample[name]
            if isinstance(value, int | float | str):
                continue
            look = look_of(name, value, self._options)
            if look.kind == "picture":
                try:
                    width, height, *_ = header(name, look.value)
                except SampleError:
                    return
                self._sides["width"].add(width)
                self._sides["height"].add(height)
                return


def _size(value: Any) -> int | None:
    if isinstance(value, dict) and isinstance(value.get("bytes"), bytes):
        value = value["bytes"]
    if isinstance(value, bytes | memoryview):
        return len(value)
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    return int(value.nbytes) if isinstance(value, np.ndarray) else None
