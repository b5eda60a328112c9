"""BigDL with a model, as the guest has it that drives Spark: it learns from rows that it was given, and predicts.

Each stretch of steps is a training of BigDL's own distributed optimizer, which goes on where the last one ended: its
weights, its momentum and its counts are those that it had.
"""

from __future__ import annotations

import importlib
import inspect
import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import PlanError, StateError
from shoal.learn import _random as random_numbers
from shoal.learn.bigdl._bigdl_jvm import Jvm
from shoal.learn.bigdl._bigdl_rows import Preprocessing

__all__ = ["BigDLDriver"]

MODEL, WEIGHTS, OPTIMIZER = "model.bigdl", "model.bin", "optimizer.bin"
#: What BigDL counts of a training, where it has it; the optimizer that works has older numbers.
_COUNTS = ("epoch", "neval", "recordsProcessedThisEpoch", "score")
#: Rows that become objects of Java at a time.
_CHUNK = 4096


class BigDLDriver:
    """Does with a model of BigDL what its host asks for; there is one at a time."""

    def __init__(self, cores: int, memory: str, folder: str) -> None:
        self._folder = folder
        self._jvm = Jvm(cores, memory, folder)
        self._number = ""
        self._rows: Any = self._jvm.names.java.util.ArrayList()
        self._order: Any = self._rows
        self._clipping: tuple[str, tuple[float, ...]] = "", ()
        self._stretches = 0

    def has(self, number: str) -> bool:
        """Tell whether the model here is the one that has this number."""
        return number == self._number

    def rename(self, number: str) -> None:
        """Give the model as it is now another number."""
        self._number = number

    def build(self, parts: bytes, files: Mapping[str, bytes], number: str) -> None:
        """Make model, loss and optimizer, and take what was learnt before."""
        self._number = ""
        with self._jvm.asked("making the model"):
            seed, make = pickle.loads(parts)  # noqa: S301 - of this program
            self._jvm.seeded(seed)  # so that every guest makes the same weights
            random_numbers.seeded(seed, 0)
            given = pickle.loads(make)  # noqa: S301 - only now is the rest of it made
            self._model = _made(given["model"], given["config"])
            self._loss = _made(given["loss"], given["config"])
            optimizer = _made(given["optimizer"], given["config"])
            self._optimizer = _of("optim.optimizer", "SGD")() if optimizer is None else optimizer
            self._features = Preprocessing(self._jvm, given["features"])
            self._labels = Preprocessing(self._jvm, given["labels"])
            _check(self._model, "nn.layer", "Layer", "model")
            _check(self._optimizer, "optim.optimizer", "OptimMethod", "optimizer")
            if self._loss is not None:
                _check(self._loss, "nn.criterion", "Criterion", "loss")
            self._estimator: Any = None
            self._twin: Any = None  # what predicts: layers that did so keep their weights when they are trained
        if files:
            self.load(files)
        self._number = number

    def hold(self, features: Sequence[Any], labels: Sequence[Any], anew: bool) -> int:
        """Keep rows to learn from, in place of those before or with them; give how many there are."""
        with self._jvm.asked("taking rows"):
            if anew:
                self._rows = self._jvm.names.java.util.ArrayList()
            x, y = self._features.arrays(features), self._labels.arrays(labels)
            for at in range(0, len(x[0]), _CHUNK):
                some = slice(at, at + _CHUNK)
                self._rows.addAll(self._jvm.rows([each[some] for each in x], [each[some] for each in y]))
            return int(self._rows.size())

    def release(self) -> None:
        """Let go of the rows."""
        with self._jvm.asked("letting go of rows"):
            self._rows = self._order = self._jvm.names.java.util.ArrayList()

    def begin(self, seed: int | None, batch_size: int) -> int:
        """Put the rows in the order of an epoch, and give how many steps it has; the last is filled up."""
        with self._jvm.asked("putting rows in order"):
            java = self._jvm.names.java.util
            order = java.ArrayList(self._rows)
            if seed is not None:
                java.Collections.shuffle(order, java.Random(seed))
            steps = -(-order.size() // batch_size)
            while missing := steps * batch_size - order.size():
                order.addAll(java.ArrayList(order.subList(0, min(missing, order.size()))))
            self._order = order
            return int(steps)

    def train(self, epoch: int, first: int, last: int, batch_size: int) -> list[float]:
        """Take the steps of an epoch from ``first`` to ``last``, and give the loss of each."""
        with self._jvm.asked("a training"):
            part = self._order.subList(first * batch_size, last * batch_size)
            if self._estimator is None:
                self._estimator = self._begin()
            rows = self._jvm.distributed(self._jvm.names.java.util.ArrayList(part))
            make = "createSampleFeatureSetFromRDD", rows, "DRAM", True, False  # memory, in order, as it lies
            data = _of("feature.common", "FeatureSet")(self._jvm.call(*make))
            state = self._optimizer.value.state()
            state.update("epoch", epoch + 1)
            done = state.apply("neval") - 1 if state.contains("neval") else 0
            summary = self._summary()
            try:
                end = _of("optim.optimizer", "MaxIteration")(done + last - first)
                self._estimator.train(data, self._loss, end_trigger=end, batch_size=batch_size)
            finally:
                with suppress(Exception):
                    data.value.unpersist()
            summary = summary or self._estimator.value.internalEstimator().trainSummary().get()
            losses = self._losses(summary)
            self._twin = None
        if len(losses) != last - first:
            raise StateError(f"BigDL took {len(losses)} steps, and should have taken {last - first}")
        return losses

    def evaluate(self, features: Sequence[Any], labels: Sequence[Any]) -> tuple[Any, float | None]:
        """Give predictions for rows, and their mean loss if there is a loss."""
        found = self.predict(features)
        if self._loss is None:
            return found, None
        with self._jvm.asked("computing the loss"):
            targets = self._labels.arrays(labels)
            loss = self._loss.forward(found, targets[0] if len(targets) == 1 else targets)
        return found, float(loss)

    def predict(self, features: Sequence[Any]) -> Any:
        """Give predictions: an array, or a list of them."""
        with self._jvm.asked("predicting"):
            inputs = self._features.arrays(features)
            if self._twin is None:
                self._twin = self._read(self._written())
                self._twin.training(False)
            return self._twin.forward(inputs[0] if len(inputs) == 1 else inputs)

    def dump(self, parts: str) -> dict[str, bytes]:
        """Give what is needed to go on, as files."""
        if parts == "own":
            return {}
        with self._jvm.asked("writing the model"):
            files = self._written()
            return files if parts == "model" else {**files, OPTIMIZER: self._jvm.packed(self._state())}

    def load(self, files: Mapping[str, bytes]) -> None:
        """Take what `dump` gave, or a part of it."""
        if MODEL not in files:
            return
        with self._jvm.asked("reading the model"):
            state = self._jvm.unpacked(files[OPTIMIZER]) if OPTIMIZER in files else self._state()
            self._model = self._read(files)
            self._optimizer = _of("optim.optimizer", "OptimMethod")(state, "float")
            self._estimator = self._twin = None

    def weights(self) -> dict[str, dict[str, Any]]:
        """Give the weights of all layers that have some, by their names."""
        with self._jvm.asked("reading weights"):
            found = self._model.parameters()
        return {
            layer: {name: np.array(value) for name, value in values.items() if not name.startswith("grad")}
            for layer, values in found.items()
        }

    def described(self) -> str:
        """Say which layers the model has."""
        with self._jvm.asked("describing the model"):
            return str(self._model)

    def rate(self) -> float | None:
        """Say how fast it learns, if that is a number."""
        with self._jvm.asked("reading the rate"):
            for name in ("learningRate", "learningrate"):
                with suppress(AttributeError, TypeError):
                    return float(getattr(self._optimizer.value, name)())
        return None

    def set_rate(self, rate: float) -> None:
        """Let it learn as fast."""
        if self.rate() is None:
            raise PlanError("the rate of this optimizer cannot be set; give it a schedule of BigDL")
        with self._jvm.asked("setting the rate"):
            for each in (self._optimizer.value, self._working()):
                getattr(each, "learningRate_$eq")(float(rate))

    def clip(self, kind: str, numbers: Sequence[float]) -> None:
        """Cut gradients off, in a way that BigDL has, from now on."""
        given = kind, tuple(numbers)
        if given != self._clipping and self._estimator is not None:  # which never forgets how it did it before
            with self._jvm.asked("cutting gradients off"):
                self._optimizer = _of("optim.optimizer", "OptimMethod")(self._state(), "float")
                self._estimator = None
        self._clipping = given

    def leave(self, done: bool) -> None:
        """End Java; nothing of it is needed any more."""
        self._jvm.close()

    def _written(self) -> dict[str, bytes]:
        """Let BigDL write the model."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            self._model.saveModel(*(f"{folder}/{name}" for name in (MODEL, WEIGHTS)), True)
            return {name: Path(folder, name).read_bytes() for name in (MODEL, WEIGHTS)}

    def _read(self, files: Mapping[str, bytes]) -> Any:
        """Let BigDL read a model."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            paths = [Path(folder, name) for name in (MODEL, WEIGHTS)]
            for path in paths:
                path.write_bytes(files[path.name])
            model = self._jvm.call("loadBigDLModule", *map(str, paths))
            return _of("nn.layer", "Layer")(model, "float")  # of Keras' kind or not

    def _begin(self) -> Any:
        """Let BigDL begin, or go on with what the optimizer knows."""
        made = _of("estimator.estimator", "Estimator")(self._model, self._optimizer)
        kind, numbers = self._clipping
        if kind:
            getattr(made, f"set_{kind}_gradient_clipping")(*numbers)
        return made

    def _summary(self) -> Any:
        """Let BigDL write down the losses of a stretch; the first time it makes the file itself."""
        self._stretches += 1
        place = f"{self._folder}/losses", str(self._stretches)
        working = self._estimator.value.internalEstimator()
        if working is None:
            self._estimator.set_tensorboard(*place)
            return None
        made = _of("optim.optimizer", "TrainSummary")(*place).value
        working.setTrainSummary(made)
        return made

    def _losses(self, summary: Any) -> list[float]:
        summary.close()  # what was not written yet is written now
        found = [(step, value) for step, value, _ in self._jvm.call("summaryReadScalar", summary, "Loss")]
        return [float(value) for _, value in sorted(found)]

    def _working(self) -> Any:
        """Give the optimizer that has the momentum: the one that works."""
        internal = None if self._estimator is None else self._estimator.value.internalEstimator()
        if internal is None or internal.cachedModels() is None:
            return self._optimizer.value
        return self._jvm.cached(internal.cachedModels()).optimMethods().values().head()

    def _state(self) -> Any:
        """Give a copy of the optimizer with all that is needed to go on."""
        counts, made = self._optimizer.value.state(), self._jvm.copied(self._working())
        for name in _COUNTS:
            if counts.contains(name):
                made.state().update(name, counts.apply(name))
        return made


def _of(module: str, name: str) -> Any:
    """Give something of BigDL."""
    return getattr(importlib.import_module(f"bigdl.dllib.{module}"), name)


def _made(given: Any, config: Mapping[str, Any]) -> Any:
    """Call a function that makes something, with the config if it wants one."""
    if not inspect.isroutine(given):
        return given
    wanted: Callable[..., Any] = given
    return wanted(dict(config)) if inspect.signature(wanted).parameters else wanted()


def _check(value: Any, module: str, name: str, what: str) -> None:
    if not isinstance(value, _of(module, name)):
        raise PlanError(f"{what}= is a {type(value).__name__}, and no {name} of BigDL, nor a function that makes one")
