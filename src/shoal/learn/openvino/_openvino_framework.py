"""OpenVINO: a model that predicts, and does not learn."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from shoal.abc import Framework, Member
from shoal.errors import PlanError
from shoal.learn._explaining import explained
from shoal.learn._ring import Ring
from shoal.learn.openvino._inputs import filled, taken
from shoal.learn.openvino._openvino_files import model_of
from shoal.learn.openvino._openvino_options import OpenVINOOptions
from shoal.learn.openvino._openvino_requests import Requests
from shoal.learn.openvino._openvino_rows import Rowwise, rowwise

__all__ = ["OpenVINOFramework", "does_not_learn"]


class OpenVINOFramework(Framework):
    """A model as its files; it is compiled once in each process."""

    format: ClassVar[str] = "numpy"
    measures: ClassVar[bool] = False
    """There is no loss."""

    def __init__(self, files: Mapping[str, bytes], options: OpenVINOOptions | None = None) -> None:
        self.files, self.options = files, options or OpenVINOOptions()
        self.number = uuid4().int
        """The same in every copy: none of them will ever predict anything else."""
        self._begin()

    def _begin(self) -> None:
        self._rows: Rowwise | None = None
        self._requests: Requests | None = None
        self._ring: Ring | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self.files, "options": self.options, "number": self.number}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def build(self) -> None:
        """Compile the model, unless that is done."""
        with self._lock:
            if self._requests is None:
                self._rows = rowwise(model_of(self.files))
                self._requests = Requests(self._rows.model, self.options)

    def join(self, member: Member) -> None:
        """Meet the others, and compile the model."""
        self._ring = Ring(member)
        self.build()

    def train(self, features: Sequence[Any], labels: Sequence[Any], weight: float, last: bool) -> float:
        """Refuse."""
        raise does_not_learn()

    def evaluate(self, features: Sequence[Any], labels: Sequence[Any]) -> tuple[Any, float | None]:
        """Give predictions; there is no loss."""
        return self.predict(features), None

    def predict(self, features: Sequence[Any]) -> Any:
        """Give the outputs for one batch."""
        return next(self.predict_many([features]))

    def predict_many(self, batches: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """Give the outputs for batches, in order, while the next ones are computed."""
        self.build()
        assert self._rows is not None
        assert self._requests is not None
        cuts: deque[_Cut] = deque()
        found = self._requests.run(_pieces(batches, self._rows, cuts))
        for first in found:  # of a batch; it may have been cut, and then the rest follows
            cut = cuts.popleft()
            yield cut.joined([first, *islice(found, len(cut.counts) - 1)], self._rows.outputs)

    def total(self, numbers: Sequence[float]) -> list[float]:
        """Add up numbers over all workers."""
        return [float(each) for each in numbers] if self._ring is None else self._ring.total(numbers)

    def end_epoch(self, stats: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do nothing."""
        return {}

    def dump(self, parts: str = "all") -> dict[str, bytes]:
        """Give the files of the model."""
        return {} if parts == "own" else dict(self.files)

    def load(self, files: Mapping[str, bytes]) -> None:
        """Take another model."""
        self.files, self.number = files, uuid4().int
        self._rows = self._requests = None

    def leave(self, done: bool) -> None:
        """Part from the others."""
        if self._ring is not None:
            self._ring.close(done)


class _Cut:
    """How a batch was cut into pieces that a model takes."""

    __slots__ = ("counts", "size")

    def __init__(self, rows: int, batch: int | None) -> None:
        self.size = batch or max(rows, 1)
        self.counts = [max(min(self.size, rows - at), 0) for at in range(0, max(rows, 1), self.size)]

    def joined(self, parts: Sequence[Sequence[NDArray[Any]]], names: Sequence[str]) -> Any:
        """Put the outputs for the pieces together, without the rows that only filled them up."""
        outputs = [self._output(each, name) for each, name in zip(zip(*parts, strict=True), names, strict=True)]
        return outputs[0] if len(outputs) == 1 else outputs

    def _output(self, parts: Sequence[NDArray[Any]], name: str) -> NDArray[Any]:
        for part in parts:
            if part.ndim == 0 or len(part) != self.size:
                text = f"output {name!r} of the model is of shape {part.shape} for {self.size} rows"
                raise PlanError(f"{text}; there has to be one row for each, along the first dimension")
        rows = [part[:count] for part, count in zip(parts, self.counts, strict=True)]
        return rows[0] if len(rows) == 1 else np.concatenate(rows)


def _pieces(batches: Iterable[Sequence[Any]], model: Rowwise, cuts: deque[_Cut]) -> Iterator[list[NDArray[Any]]]:
    """Check batches, and cut them into what the model takes; note how."""
    for features in batches:
        with explained(features):
            arrays = taken(model.inputs, features)
            model.check(tuple(array.shape[1:] for array in arrays))
        cut = _Cut(len(arrays[0]), model.batch)
        cuts.append(cut)
        for at in range(0, len(cut.counts) * cut.size, cut.size):
            yield [filled(array[at : at + cut.size], cut.size) for array in arrays]


def does_not_learn() -> PlanError:
    """Say that there is nothing to train."""
    text = "models of OpenVINO do not learn: they have no gradients"
    return PlanError(f"{text}; train with the estimator of another framework, and make one of OpenVINO of its model")
