"""Pipelines over anything that can be iterated, and mixtures of several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from shoal.errors import PlanError
from shoal.webdataset import _torch
from shoal.webdataset._fluid import Fluid
from shoal.webdataset._random import generator
from shoal.webdataset._torch import IterableDataset

__all__ = ["DataPipeline", "FluidWrapper", "MockDataset", "RandomMix", "RoundRobin", "WebLoader"]


class DataPipeline(Fluid, IterableDataset[Any]):
    """A source and stages after it, as a dataset that a DataLoader takes.

    >>> from shoal.webdataset import shuffle, slice
    >>> len(list(DataPipeline(range(10), shuffle(5), slice(3))))
    3
    """


class FluidWrapper(DataPipeline):
    """Anything that can be iterated, with the fluid methods.

    >>> list(FluidWrapper([1, 2, 3]).batched(2, collation_fn=list))
    [[1, 2], [3]]
    """

    def __init__(self, initial: Iterable[Any]) -> None:
        super().__init__(initial)


class WebLoader(DataPipeline):
    """A torch DataLoader with the fluid methods; the arguments are those of the DataLoader.

    >>> loader = WebLoader(MockDataset({"cls": 1}, 4), batch_size=2)
    >>> [batch["cls"].tolist() for batch in loader]
    [[1, 1], [1, 1]]
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(_torch.data_loader(*args, **options))


class MockDataset(IterableDataset[Any]):
    """The same sample so many times, for measuring what comes after it.

    >>> list(MockDataset({"cls": 1}, 2))
    [{'cls': 1}, {'cls': 1}]
    """

    def __init__(self, sample: Any, length: int) -> None:
        self.sample, self.length = sample, length

    def __iter__(self) -> Iterator[Any]:
        return (self.sample for _ in range(self.length))


class RoundRobin(IterableDataset[Any]):
    """One sample of each dataset in turn, until the first ends, or with ``longest`` until all have.

    >>> list(RoundRobin([[2, 2], [1], [3, 3, 3]], longest=True))
    [2, 1, 3, 2, 3, 3]
    """

    def __init__(self, datasets: Sequence[Iterable[Any]], longest: bool = False) -> None:
        self.datasets, self.longest = datasets, longest

    def __iter__(self) -> Iterator[Any]:
        streams = [iter(dataset) for dataset in self.datasets]
        while streams:
            for stream in list(streams):
                try:
                    sample = next(stream)
                except StopIteration:
                    if not self.longest:
                        return
                    streams.remove(stream)
                    continue
                yield sample


class RandomMix(IterableDataset[Any]):
    """Samples of several datasets at random, in the proportions ``probs``; it ends like `RoundRobin`.

    >>> sorted(RandomMix([[1, 1], [2]], probs=[0.9, 0.1], longest=True))
    [1, 1, 2]
    """

    def __init__(
        self, datasets: Sequence[Iterable[Any]], probs: Sequence[float] | None = None, longest: bool = False
    ) -> None:
        self.datasets, self.longest = datasets, longest
        self.probs = [1.0] * len(datasets) if probs is None else list(probs)
        if len(self.probs) != len(datasets) or min(self.probs, default=1) <= 0:
            raise PlanError(f"probs={probs!r}; it is one number above 0 for each of the {len(datasets)} datasets")

    def __iter__(self) -> Iterator[Any]:
        random = generator()
        streams = [iter(dataset) for dataset in self.datasets]
        weights = list(self.probs)
        while streams:
            chosen = random.choices(range(len(streams)), weights)[0]
            try:
                sample = next(streams[chosen])
            except StopIteration:
                if not self.longest:
                    return
                del streams[chosen], weights[chosen]
                continue
            yield sample
