"""How fast data comes: read alone, read and decoded, and as the batches of a training."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from shoal.abc import Sample, Workers
from shoal.errors import SampleError
from shoal.pipeline import Dataset
from shoal.pipeline.statistics import Statistics

__all__ = ["Measured", "Trial", "measured"]

#: Samples that tell how large samples are.
_WEIGHED = 256


@dataclass(frozen=True, slots=True)
class Trial:
    """What is tried, and for how long."""

    seconds: float = 5.0
    """After so many, each stage is ended."""
    workers: Workers = "auto"
    batch_size: int = 64
    images: str = "rgb8"


@dataclass(frozen=True, slots=True)
class Measured:
    """How one stage did."""

    stage: str
    statistics: Statistics
    cpu: float
    """Seconds of processors, those of worker processes that have ended included."""
    complete: bool
    """Whether all samples were seen before the time was over."""
    stored: float
    """Bytes of a sample before it is decoded, on the average of some."""

    @property
    def cpu_per_sample(self) -> float:
        """Seconds of processors for each sample."""
        return self.cpu / self.statistics.samples if self.statistics.samples else 0.0

    @property
    def processors(self) -> float:
        """Processors that were kept busy."""
        return self.cpu / self.statistics.elapsed if self.statistics.elapsed else 0.0

    @property
    def megabytes_per_second(self) -> float:
        """Millions of bytes of the data as it is stored, so that stages can be compared."""
        return self.statistics.samples_per_second * self.stored / 1e6

    def as_dict(self) -> dict[str, Any]:
        """Give all numbers."""
        found = self.statistics
        return {
            "stage": self.stage,
            "samples": found.samples,
            "seconds": found.elapsed,
            "complete": self.complete,
            "samples_per_second": found.samples_per_second,
            "megabytes_per_second": self.megabytes_per_second,
            "cpu_per_sample": self.cpu_per_sample,
            "processors": self.processors,
            "bottleneck": found.bottleneck,
            "advice": found.advice,
        }


def measured(dataset: Dataset, trial: Trial) -> Iterator[Measured]:
    """Run the stages one after the other, each with one more thing to do than the one before.

    >>> import numpy as np, shoal
    >>> found = list(measured(shoal.from_arrays(x=np.zeros((100, 3))), Trial(workers=1)))
    >>> [(each.stage, each.statistics.samples, each.complete, each.stored) for each in found]
    [('read', 100, True, 24.0), ('decode', 100, True, 24.0), ('deliver', 100, True, 24.0)]
    """
    stored = _mean_size(dataset)
    decoded = dataset.decode(images=trial.images)
    for stage, plan in (("read", dataset), ("decode", decoded)):
        with plan.run(workers=trial.workers) as run:
            yield _timed(stage, iter(run), run.statistics, trial.seconds, stored)
    loader = decoded.shuffle().loader(trial.batch_size, workers=trial.workers)
    try:
        yield _timed("deliver", iter(loader), loader.statistics, trial.seconds, stored)
    except SampleError as error:
        error.add_note("a batch needs the same fields in all its samples: name those that have them with -f")
        raise
    finally:
        loader.close()


def _timed(
    stage: str, items: Iterator[Any], statistics: Callable[[], Statistics], seconds: float, stored: float
) -> Measured:
    """Ask for items until there are no more, or the time is over."""
    before, end = _processor_seconds(), time.perf_counter() + seconds
    complete = all(time.perf_counter() < end for _ in items)
    return Measured(stage, statistics(), _processor_seconds() - before, complete, stored)


def _mean_size(dataset: Dataset) -> float:
    sizes = [sum(map(_size, _fields(sample))) for sample in islice(dataset, _WEIGHED)]
    return sum(sizes) / max(len(sizes), 1)


def _fields(sample: Sample) -> Iterator[Any]:
    return (value for name, value in sample.items() if not name.startswith("__"))


def _size(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_size, value))
    return len(value) if isinstance(value, bytes | str) else int(getattr(value, "nbytes", 8))


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
