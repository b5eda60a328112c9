"""What a pipeline makes of any one sample, apart from a run: for those who look at data."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

from shoal.abc import Sample, Source
from shoal.errors import PlanError
from shoal.pipeline._dataset import Dataset
from shoal.pipeline._program import leading_chains
from shoal.pipeline._replay import block_of
from shoal.pipeline._steps import Alone
from shoal.pipeline.ledger import Failure
from shoal.pipeline.stages import describe

__all__ = ["Result", "Results"]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one sample.

    >>> Result([{"__key__": "a"}]).failure is None
    True
    """

    samples: list[Sample]
    """Empty where a stage left it out, several where one made more of it."""
    failure: Failure | None = None
    left_out_by: str | None = None
    """The stage that made nothing of it."""


class Results:
    """The stages right behind a source, up to the first that needs several samples, as the first epoch has them.

    What is drawn at random follows from where a sample lies, so a run makes the same of it.

    >>> import shoal
    >>> dataset = shoal.from_arrays({"x": range(5)}).map(lambda sample: {**sample, "x": sample["x"] * 10})
    >>> results = Results(dataset)
    >>> results.stages, results.of(0, 3, {"__key__": "3", "x": 3}).samples
    (('map(<lambda>)',), [{'__key__': '3', 'x': 30}])
    """

    def __init__(self, dataset: Dataset) -> None:
        plan = dataset._plan
        if not isinstance(plan.source, Source):
            raise PlanError("a mixture has several sources; look at the results of one of its components")
        self.source: Source = plan.source
        self.stages: tuple[str, ...] = tuple(map(describe, plan.leading))
        """Their names, as statistics call them; none if there is nothing that takes samples one by one."""
        self._shards = plan.source.shards()
        self._chain = leading_chains(plan, epoch=0)[0]
        self._alone: Alone | None = None
        self._lock = Lock()  # nobody said that the stages may run twice at a time

    def of(self, shard: int, offset: int, sample: Sample) -> Result:
        """Treat a sample that lies at a place of a shard, told by its number among those of the source."""
        block = block_of(sample, self._shards[shard], (0, shard, 0), offset)
        with self._lock:
            self._alone = self._alone or Alone(self._chain, catch=True)
            parcel = self._alone(block)
        if parcel.failures:
            return Result([], parcel.failures[0][1])
        made = parcel.parts[0].block.samples
        reached = [name for _, name, _, count in parcel.spent if count]
        return Result(made, left_out_by=None if made else reached[-1])
