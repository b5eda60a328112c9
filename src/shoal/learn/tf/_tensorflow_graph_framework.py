"""A graph of TensorFlow 1, trained by several workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from shoal.abc import Framework, Member
from shoal.errors import PlanError
from shoal.learn._packed import pack, unpack
from shoal.learn._ring import Ring
from shoal.learn.tf._tensorflow_graph import Graph, read, started, written

__all__ = ["GraphFramework", "packed"]

_FILES = ("model.npz", "optimizer.npz")


class GraphFramework(Framework):
    """A graph, and the values of its variables."""

    format: ClassVar[str] = "numpy"
    modules: ClassVar[tuple[str, ...]] = ("tensorflow",)

    def __init__(self, graph: Graph, files: Mapping[str, bytes]) -> None:
        self.graph, self.files = graph, files
        self.predictions = False
        """Whether an evaluation needs predictions, because there are metrics which are not in the graph."""
        self.feeds: dict[str, tuple[Any, Any]] = {}
        """What else is fed: in training, and otherwise."""
        self.session_config: bytes | None = None
        self._begin()

    def _begin(self) -> None:
        self._session: Any = None
        self._ring: Ring | None = None
        self._kept: Any = None
        self._counted = np.zeros(1 + len(self.graph.metrics))

    def __getstate__(self) -> dict[str, Any]:
        gone = ("_session", "_variables", "_ring", "_kept", "_counted")
        return {name: value for name, value in self.__dict__.items() if name not in gone}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def build(self) -> None:
        """Make graph and session, and set the variables."""
        if self._session is None:
            self._session, self._variables = started(self.graph, self.session_config)
        self.load(self.files)

    def join(self, member: Member) -> None:
        """Meet the others, and build everything; all have the same values."""
        self._ring = Ring(member)
        self.build()

    def train(self, features: Sequence[Any], labels: Sequence[Any], weight: float, last: bool) -> float:
        """Learn from some rows."""
        graph = self.graph
        self.check_training()
        fetched = [graph.loss, graph.gradients, *graph.updates]
        loss, flat, *_ = self._session.run(fetched, self._fed(features, labels, training=True))
        found = flat * flat.dtype.type(weight)
        self._kept = found if self._kept is None else self._kept + found
        if last:
            self._take_step()
        if graph.moving and self._ring is not None and self._ring.size > 1:
            self._average_moving(self._ring, weight)
        return float(loss)

    def evaluate(self, features: Sequence[Any], labels: Sequence[Any]) -> tuple[Any, float | None]:
        """Give predictions, if somebody wants them, and the loss; metrics of the graph count on."""
        graph = self.graph
        found = self.predict(features) if self.predictions else None
        fetched = [*([] if graph.loss is None else [graph.loss]), *(name for _, name in graph.metrics)]
        if not fetched:
            raise PlanError("there is nothing to evaluate: give loss or metrics to from_graph")
        said = self._session.run(fetched, self._fed(features, labels, training=False))
        values = said if graph.loss is None else said[1:]
        rows = len(features[0])
        self._counted += rows * np.array([1.0, *(float(np.mean(value)) for value in values)])
        return found, None if graph.loss is None else float(said[0])

    def predict(self, features: Sequence[Any]) -> Any:
        """Give the outputs: an array, or a list of them."""
        if not self.graph.outputs:
            raise PlanError("outputs is None; it should not be None in prediction: give it to from_graph")
        found = self._session.run(list(self.graph.outputs), self._fed(features, [], training=False))
        return found[0] if len(found) == 1 else found

    def measured(self) -> Mapping[str, float]:
        """Say what the metrics of the graph are, over all rows."""
        rows, *sums = self.total(self._counted.tolist())
        self._counted[:] = 0
        return {name: total / rows for (name, _), total in zip(self.graph.metrics, sums, strict=True)} if rows else {}

    def total(self, numbers: Sequence[float]) -> list[float]:
        """Add up numbers over all workers."""
        return [float(each) for each in numbers] if self._ring is None else self._ring.total(numbers)

    def end_epoch(self, stats: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do nothing: schedules are in the graph."""
        return {}

    def dump(self, parts: str = "all") -> dict[str, bytes]:
        """Give the values of all variables; random numbers are in the session, where nobody can see them."""
        if parts == "own":
            return {}
        found = packed(self.graph, read(self._session, self._variables))
        return found if parts == "all" else {"model.npz": found["model.npz"]}

    def load(self, files: Mapping[str, bytes]) -> None:
        """Set variables to what is in files."""
        parts = (unpack(files[name]) for name in _FILES if name in files)
        values = {name: value for part in parts for name, value in part.items()}
        written(self._session, self._variables, values)

    def leave(self, done: bool) -> None:
        """Part from the others."""
        if self._ring is not None:
            self._ring.close(done)
        if self._session is not None:
            self._session.close()

    def _take_step(self) -> None:
        flat, self._kept = self._kept, None
        if self._ring is not None:
            self._ring.add_up(flat)
            flat /= self._ring.size
        self._session.run(self.graph.step, {self.graph.averaged: flat})

    def _average_moving(self, ring: Ring, weight: float) -> None:
        some = [each for each in self._variables if each.name in self.graph.moving]
        values = read(self._session, some)
        flat = np.concatenate([value.astype(np.float64).reshape(-1) for value in values.values()]) * weight
        ring.add_up(flat)
        ends = np.cumsum([value.size for value in values.values()])[:-1]
        parts = zip(np.split(flat / ring.size, ends), values.items(), strict=True)
        means = {name: part.reshape(value.shape).astype(value.dtype) for part, (name, value) in parts}
        written(self._session, some, means)

    def _fed(self, features: Sequence[Any], labels: Sequence[Any], *, training: bool) -> dict[str, Any]:
        graph = self.graph
        if len(features) != len(graph.inputs):
            raise PlanError(f"the graph has {len(graph.inputs)} inputs, and the data {len(features)}")
        fed = dict(zip(graph.inputs, features, strict=True))
        if labels and graph.labels:
            if len(labels) != len(graph.labels):
                raise PlanError(f"the graph has {len(graph.labels)} labels, and the data {len(labels)}")
            fed |= dict(zip(graph.labels, labels, strict=True))
        return {**{name: self._shaped(name, value) for name, value in fed.items()}, **self._others(training)}

    def _others(self, training: bool) -> dict[str, Any]:
        return {name: values[0 if training else 1] for name, values in self.feeds.items()}

    def _shaped(self, name: str, value: Any) -> Any:
        """Make an array of the rank that a placeholder has: columns of tables have one number a row."""
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
        rank = self._session.graph.get_tensor_by_name(name).shape.rank
        return array[:, None] if rank == array.ndim + 1 == 2 else array

    def check_training(self) -> None:
        """Refuse a graph in which nothing can be learnt."""
        for name, found in (("labels", self.graph.labels), ("loss", self.graph.loss), ("optimizer", self.graph.step)):
            if not found:
                raise PlanError(f"{name} is None; it should not be None in training: give it to from_graph")


def packed(graph: Graph, values: Mapping[str, Any]) -> dict[str, bytes]:
    """Write the values of variables into files: those of the model, and those of its optimizer."""
    slots = set(graph.slots)
    parts = [name for name in values if name not in slots], [name for name in values if name in slots]
    pairs = zip(_FILES, parts, strict=True)
    return {file: pack([np.asarray(values[name]) for name in names], names) for file, names in pairs}
