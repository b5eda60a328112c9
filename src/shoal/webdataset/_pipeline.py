"""A source and stages after it, run anew at each iteration."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Self

from shoal.errors import PlanError

__all__ = ["Pipeline"]


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often the source is run, and where to stop."""

    passes: int | None = 1
    """None for without end."""
    items: int | None = None
    """None for as many as come."""


class Pipeline:
    """A source and stages.

    The source is an iterable, or a function that gives one; a stage is a function from a stream to a stream, or has a
    method ``run`` that is. `compose` and the fluid methods give a new pipeline; `append`, `with_epoch`, `with_length`
    and `repeat` change this one, as they do in WebDataset.

    >>> list(Pipeline([3, 1, 2], sorted))
    [1, 2, 3]
    """

    def __init__(self, *stages: Any) -> None:
        self._stages: tuple[Any, ...] = tuple(stage for stage in stages if stage is not None)
        self._rounds = Rounds()
        self._length: int | None = None

    def __iter__(self) -> Iterator[Any]:
        if self._rounds == Rounds():
            return self._pass()
        return islice(self._passes(), self._rounds.items)

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError(
                "the number of samples is not known before they are read; give it with .with_length(n) or length=n"
            )
        return self._length

    def __bool__(self) -> bool:
        return True  # not by the length, which need not be known

    def compose(self, *stages: Any) -> Self:
        """Give a pipeline with more stages at its end."""
        longer = copy.copy(self)
        for stage in stages:
            longer.append(stage)
        return longer

    def append(self, stage: Any) -> None:
        """Add a stage at the end of this pipeline."""
        self._stages = (*self._stages, stage)

    def stage(self, i: int) -> Any:
        """Look up a stage; 0 is the source."""
        return self._stages[i]

    def with_length(self, n: int, silent: bool = False) -> Self:
        """Let ``len`` answer ``n``, which is believed; ``silent`` has no effect here."""
        self._length = n
        return self

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> Self:
        """Give exactly so many items an epoch, going round the source as often as that takes."""
        wanted = max(nsamples, nbatches)
        self._rounds = Rounds(None, None if wanted < 0 else wanted)
        return self

    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> Self:
        """Go round the source so often, or without end, and stop after ``nbatches`` items if given."""
        self._rounds = Rounds(None if nepochs < 0 else nepochs, None if nbatches < 0 else nbatches)
        return self

    def close(self) -> None:
        """Let go of what the stages hold open."""
        for stage in self._stages:
            if hasattr(stage, "close"):
                stage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def _pass(self) -> Iterator[Any]:
        if not self._stages:
            raise PlanError("the pipeline has no source: its first stage gives the samples")
        stream = _started(self._stages[0])
        for stage in self._stages[1:]:
            stream = stage.run(stream) if hasattr(stage, "run") else stage(stream)
        return iter(stream)

    def _passes(self) -> Iterator[Any]:
        passes = self._rounds.passes
        for _ in count() if passes is None else range(passes):
            is_empty = True
            for item in self._pass():
                is_empty = False
                yield item
            if is_empty and passes is None:
                raise PlanError("a pass gave no items at all, so repeating it would never end")


def _started(source: Any) -> Iterable[Any]:
    start = getattr(source, "run", source)
    stream: Iterable[Any] = start() if callable(start) else source
    return stream
