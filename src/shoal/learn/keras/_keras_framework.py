"""Keras: a compiled model, trained by several workers whose gradients are averaged before each step."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import cloudpickle
import numpy as np

from shoal.abc import Framework, Member
from shoal.errors import PlanError
from shoal.learn._ring import Ring
from shoal.learn.keras import _keras_random as random_numbers
from shoal.learn.keras import _keras_variables as variables
from shoal.learn.keras._keras_choice import choose, chosen, is_creator, library_of, modules_for, seeded
from shoal.learn.keras._keras_files import opened, packed, unpacked
from shoal.learn.keras._keras_gradients import Steps
from shoal.learn.keras._keras_inputs import Names, arranged, first_rows, rows_of
from shoal.learn.keras._keras_measuring import Counted, results
from shoal.learn.keras._keras_sending import sent

__all__ = ["KerasFramework", "KerasOptions"]


@dataclass(frozen=True, slots=True)
class KerasOptions:
    """How a model is made and trained."""

    optimizer: Any = None
    """One that takes the place of that which the model was compiled with."""
    compile_args: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None
    """Gives what a model is compiled with."""
    predictions: bool = False
    """Whether an evaluation needs predictions, because there are metrics which Keras does not know of."""
    clip: tuple[float, float] | None = None
    clip_norm: float | None = None
    class_weight: Mapping[int, float] | None = None
    seed: int = 0


class KerasFramework(Framework):
    """A compiled model, or a function that makes one of a config."""

    format: ClassVar[str] = "numpy"
    model: Any
    """The model, once it is built."""

    def __init__(
        self, model: Any, config: Mapping[str, Any] | None = None, options: KerasOptions | None = None
    ) -> None:
        self._given: Any = model
        self._sent: bytes | None = None
        self.config = dict(config or {})
        self.options = options or KerasOptions()
        self.files: Mapping[str, bytes] = {}
        """What was learnt before."""
        self.names = Names()
        self._begin()

    @property
    def modules(self) -> tuple[str, ...]:
        """TensorFlow or torch, if that is what Keras computes with: they bear a fork before anything is computed."""
        return modules_for(chosen())

    def _begin(self) -> None:
        self._ring: Ring | None = None
        self._member: Member | None = None
        self._steps = Steps(None)
        self._pending: dict[str, bytes] = {}
        self._shapes: list[Any] | None = None
        self._shared = False
        self._moving: variables.Moving | None = None
        self._counted = {"train": Counted(), "test": Counted()}
        self.logs: dict[str, float] = {}
        """What metrics said of the last rows."""
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        given = self._given
        if given is not None and not is_creator(given):
            given = sent(given)
        body = self._sent if given is None else cloudpickle.dumps((given, self.options))
        return {"body": body, "choices": chosen(), "config": self.config, "files": self.files, "names": self.names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        choose(state["choices"])
        self._given, self._sent = None, state["body"]
        self.config, self.files, self.names = state["config"], state["files"], state["names"]
        self.options = KerasOptions()
        self._begin()

    def __copy__(self) -> KerasFramework:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def join(self, member: Member) -> None:
        """Meet the others, build everything, and begin with the same weights."""
        self._member = member
        self._ring = Ring(member)
        self._open()
        seeded(self.options.seed)
        self.build()
        if self.options.clip_norm is not None and getattr(self.model, "optimizer", None) is not None:
            self.model.optimizer.global_clipnorm = self.options.clip_norm
        if self.model.built:
            self._share()

    def build(self) -> None:
        """Make the model, and take what was learnt before."""
        self._open()
        self.model = made = self._made()
        library = library_of(made)
        if self.options.compile_args is not None:
            made.compile(**self.options.compile_args(self.config))
        optimizer = getattr(made, "optimizer", None)
        if self.options.optimizer is not None and optimizer is not None:
            made.optimizer = library.optimizers.get(self.options.optimizer)
        self._steps = Steps(self._ring, self.options.clip)
        if self.files:
            self.load(self.files)

    def train(self, features: Sequence[Any], labels: Sequence[Any], weight: float, last: bool) -> float:
        """Learn from some rows."""
        self._check_compiled("training")
        x, y, sample_weight = self._arranged(features, labels)
        self._build_for(x)
        if not self._shared:
            self._share()
        self._steps.prepare(self.model, weight, last)
        if self._moving is None:
            self._moving = variables.Moving(self.model)
        given: dict[str, Any] = {"class_weight": self.options.class_weight} if sample_weight is None else {}
        given |= {"sample_weight": sample_weight, "return_dict": True, **self._counting()}
        logs = self.model.train_on_batch(x, y, **given)
        if weight:
            self._counted["train"].add(self.model)
        else:
            self.model.reset_metrics()
        if self._ring is not None and self._ring.size > 1:
            self._moving.average(self._ring, weight)
        self.logs = variables.described(logs)
        return self._loss_of(self.logs)

    def evaluate(self, features: Sequence[Any], labels: Sequence[Any]) -> tuple[Any, float | None]:
        """Give predictions, if somebody wants them, and the loss; metrics of the model count on."""
        x, y, sample_weight = self._arranged(features, labels)
        self._build_for(x)
        has_loss = bool(labels) and getattr(self.model, "optimizer", None) is not None
        found = self.predict(features) if self.options.predictions or not has_loss else None
        if not has_loss:
            return found, None
        logs = self.model.test_on_batch(x, y, sample_weight=sample_weight, return_dict=True, **self._counting())
        self._counted["test"].add(self.model)
        return found, self._loss_of(variables.described(logs))

    def predict(self, features: Sequence[Any]) -> Any:
        """Give predictions as arrays."""
        x, _, _ = self._arranged(features, [])
        with self._lock:  # a model is no function: several threads would share what it keeps between calls
            self._build_for(x)
            return _arrays(self.model.predict_on_batch(x))

    def measured(self) -> Mapping[str, float]:
        """Say what the metrics of the model have found in an evaluation, over all workers."""
        return self._results("test")

    def total(self, numbers: Sequence[float]) -> list[float]:
        """Add up numbers over all workers."""
        return [float(each) for each in numbers] if self._ring is None else self._ring.total(numbers)

    def end_epoch(self, stats: Mapping[str, Any]) -> Mapping[str, Any]:
        """Give what the metrics of the model have found in training, over all workers."""
        if self._moving is not None and self._ring is not None and self._ring.size > 1:
            self._moving.look_again(self._ring)
        return {f"train_{name}": value for name, value in self._results("train").items()}

    def dump(self, parts: str = "all") -> dict[str, bytes]:
        """Give the state of everything."""
        if not self.model.built:
            return {} if parts == "own" else dict(self._pending)
        if parts == "own":
            return {**random_numbers.dumped(self.model), "counted.npz": self._counted["train"].dumped()}
        found = {"model.npz": variables.dumped(self.model.weights)}
        if self._shapes is not None:
            found["shapes.json"] = json.dumps(self._shapes).encode()
        if parts == "all" and getattr(self.model, "optimizer", None) is not None:
            found["optimizer.npz"] = variables.dumped(variables.optimizer_variables(self.model))
        return found

    def load(self, files: Mapping[str, bytes]) -> None:
        """Take the state of everything that there is."""
        if "shapes.json" in files and not self.model.built:
            self._build_for(first_rows(json.loads(files["shapes.json"])))
        if not self.model.built:
            self._pending |= files  # until the first rows tell the shapes
            return
        if "model.npz" in files:
            variables.taken(self.model.weights, files["model.npz"], "the model")
        if "optimizer.npz" in files and getattr(self.model, "optimizer", None) is not None:
            variables.taken(variables.optimizer_variables(self.model), files["optimizer.npz"], "the optimizer")
        random_numbers.taken(self.model, files)
        if "counted.npz" in files:
            self._counted["train"] = Counted.taken(files["counted.npz"])

    def packed(self, files: Mapping[str, bytes], info: Mapping[str, Any] | None, name: str) -> bytes:
        """Make the file that Keras makes of a model."""
        self._have(files)
        return packed(self.model, info, name)

    def unpacked(self, data: bytes, name: str) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Take such a file, whoever wrote it."""
        if self._given is None and self._sent is None:
            self._given = opened(data)
        self._have({})
        info = unpacked(self.model, data, name)
        return self.dump(), info

    @property
    def learning_rate(self) -> float | None:
        """How fast it learns now."""
        optimizer = getattr(self.model, "optimizer", None)
        return None if optimizer is None else float(variables.arrays([optimizer.learning_rate])[0])

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self.model.optimizer.learning_rate = rate

    def leave(self, done: bool) -> None:
        """Part from the others."""
        if self._ring is not None:
            self._ring.close(done)

    def _open(self) -> None:
        """Unpack what came from another process, now that it is sure which Keras there is."""
        if self._sent is not None and self._given is None:
            self._given, self.options = cloudpickle.loads(self._sent)
            if hasattr(self._given, "made"):
                self._given = self._given.made()

    def _made(self) -> Any:
        if self._given is None:
            raise PlanError("there is no model: give keras_model or model_creator, or load one")
        if not is_creator(self._given):
            return self._given
        made = self._given(self.config)
        library_of(made)
        return made

    def _have(self, files: Mapping[str, bytes]) -> None:
        if getattr(self, "model", None) is None:
            self.build()
        if files:
            self.load(files)

    def _arranged(self, features: Sequence[Any], labels: Sequence[Any]) -> tuple[Any, Any, Any]:
        return arranged(self.model, features, labels, self.names)

    def _build_for(self, x: Any) -> None:
        """Let a model that does not know its inputs look at some."""
        if self.model.built:
            return
        row, self._shapes = rows_of(x)
        self.model(row)
        if self._pending:
            pending, self._pending = self._pending, {}
            self.load(pending)

    def _share(self) -> None:
        """Begin with the weights of the first worker, and with random numbers of one's own."""
        self._shared = True
        if self._ring is None or self._ring.size == 1:
            return
        variables.hand_round([*self.model.weights, *variables.optimizer_variables(self.model)], self._ring)
        random_numbers.apart(self.model, self._ring.rank)

    def _counting(self) -> dict[str, bool]:
        """Let Keras 2 leave metrics as they are after a batch: they are read then."""
        return {"reset_metrics": False} if library_of(self.model).__name__ == "tf_keras" else {}

    def _check_compiled(self, purpose: str) -> None:
        if getattr(self.model, "optimizer", None) is None:
            raise PlanError(f"{purpose} needs a compiled model: call its compile with an optimizer and a loss")

    def _loss_of(self, logs: Mapping[str, float]) -> float:
        return logs.get("loss", next(iter(logs.values()), float("nan")))

    def _results(self, kind: str) -> dict[str, float]:
        counted, self._counted[kind] = self._counted[kind], Counted()
        return {} if self._member is None else results(self.model, counted, self._member)


def _arrays(found: Any) -> Any:
    if isinstance(found, Mapping):
        return {name: _arrays(each) for name, each in found.items()}
    if isinstance(found, list | tuple):
        return [_arrays(each) for each in found]
    array = np.asarray(found)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
