"""MXNet: a model whose gradients are added up by the servers of a kvstore; this runs in the environment that has it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from shoal.abc import Framework, Member
from shoal.errors import PlanError, StateError
from shoal.learn import _random as random_numbers
from shoal.learn.mxnet._mxnet_exchange import Exchange
from shoal.learn.mxnet._mxnet_metrics import Measuring
from shoal.learn.mxnet._mxnet_nets import GluonNet, Net
from shoal.learn.mxnet._mxnet_stepping import Stepping
from shoal.learn.mxnet._mxnet_symbols import SymbolNet
from shoal.learn.mxnet._mxnet_there import alike, library, seeded

__all__ = ["Creators", "MXNetFramework"]

_MODEL, _STATE, _OWN = "model.params", "training.json", "metrics.json"


@dataclass(frozen=True, slots=True)
class Creators:
    """Functions of the config that make a model and what belongs to it."""

    model: Callable[..., Any]
    loss: Callable[..., Any] | None = None
    train_metrics: Callable[..., Any] | None = None
    validation_metrics: Callable[..., Any] | None = None


class MXNetFramework(Framework):
    """A model of Gluon, or a symbol, in one of several workers."""

    format: ClassVar[str] = "numpy"

    def __init__(self, creators: Creators, config: Mapping[str, Any], seed: int) -> None:
        self._creators, self.config, self._seed = creators, dict(config), seed
        self.files: Mapping[str, bytes] = {}
        self.meeting: Mapping[str, str] = {}
        """Where the scheduler of the kvstore is, as MXNet wants to be told."""
        self._rank, self._size, self._is_joined = 0, 1, False
        self._exchange: Exchange | None = None
        self._stepping: Stepping | None = None
        self._kept: dict[str, Any] | None = None
        self._steps, self._inputs = 0, 1

    def join(self, member: Member) -> None:
        """Meet the others at the kvstore, and build everything."""
        self._rank, self._size, self._is_joined = member.rank, member.size, True
        for name, value in self.meeting.items():
            os.putenv(name, value)  # read by the library, which is not Python
        self.build()
        self._exchange = Exchange(member.rank, member.size)

    def build(self) -> None:
        """Make the model and its metrics, and take what was learnt before."""
        mx, made = library(), self._creators
        random_numbers.seeded(self._seed, 0)
        seeded(self._seed)
        with mx.name.NameManager():
            model = made.model(self.config)
        loss = None if made.loss is None else made.loss(self.config)
        self._net = _net(model, loss, self.config.get("init"))
        metrics = made.train_metrics, made.validation_metrics
        self._training, self._validation = (Measuring(None if each is None else each(self.config)) for each in metrics)
        if self.files:
            self.load(self.files)

    def train(self, features: Sequence[Any], labels: Sequence[Any], weight: float, last: bool) -> float:
        """Learn from some rows."""
        assert self._exchange is not None
        self._prepare(features, labels)
        stepping = self._begun()
        if self._net.draws:
            seeded(self._seed, self._rank, self._steps)
        before = None if weight else {name: each.copy() for name, each in self._net.counted().items()}
        with _told(features, labels):
            found, loss = self._net.learn(features, labels, weight)
        self._steps += 1
        gradients = self._added(self._net.gradients())
        self._kept = None if last else {name: each.copy() for name, each in gradients.items()}
        if last:
            self._exchange.add_up(gradients)
            stepping.step(self._net.weights(), gradients)
        self._average(weight, before)
        if weight:
            self._training.update(labels, found)
        return float("nan") if loss is None else loss

    def evaluate(self, features: Sequence[Any], labels: Sequence[Any]) -> tuple[Any, float | None]:
        """Give predictions, and their loss."""
        self._prepare(features, labels)
        with _told(features, labels):
            found, loss = self._net.look(features, labels)
        self._validation.update(labels, found)
        return found, loss

    def predict(self, features: Sequence[Any]) -> Any:
        """Give predictions."""
        self._prepare(features, ())
        with _told(features, ()):
            return self._net.look(features, ())[0]

    def measured(self) -> dict[str, float]:
        """Say what the metrics are that MXNet has for validation, over all workers."""
        return self._validation.results(self.total)

    def total(self, numbers: Sequence[float]) -> list[float]:
        """Add up numbers over all workers."""
        assert self._exchange is not None
        return self._exchange.total(numbers)

    def end_epoch(self, stats: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell the metrics of training."""
        return {f"train_{name}": value for name, value in self._training.results(self.total).items()}

    def dump(self, parts: str = "all") -> dict[str, bytes]:
        """Give parameters, what the optimizer remembers, and where random numbers are."""
        if parts == "own":
            return {_OWN: json.dumps(self._training.dump()).encode()}
        if not self._net.is_ready:
            if self._is_joined:  # there was no row to learn from
                return {}
            raise StateError("the shapes of this model follow from its inputs, and it has seen none; train it first")
        state = {"steps": self._steps, "inputs": self._inputs}
        found = {_MODEL: self._net.dump(), _STATE: json.dumps(state).encode()}
        if parts != "all":
            return found
        kept = {name: data for name, data in self.files.items() if name.startswith("optimizer.")}
        return {**found, **(kept if self._stepping is None else self._stepping.dump())}

    def load(self, files: Mapping[str, bytes]) -> None:
        """Take what `dump` gave, or a part of it."""
        self.files = {**self.files, **files}
        if _MODEL in files:
            self._net.load(files[_MODEL])
        if _STATE in files:
            state = json.loads(files[_STATE])
            self._steps, self._inputs = state["steps"], state["inputs"]
        if self._stepping is not None:
            self._stepping.load(files)
        if _OWN in files:
            self._training.load(json.loads(files[_OWN]))

    def exported(self) -> tuple[str | None, dict[str, Any], bytes]:
        """Give the model as text, its parameters as arrays, and these in a file of MXNet."""
        if not self._net.is_ready:
            raise StateError("the shapes of this model follow from its inputs, and it has seen none; train it first")
        symbol, parameters = self._net.export(self._inputs)
        return symbol, self._net.arrays(), parameters

    @property
    def learning_rate(self) -> float | None:
        """How fast it learns now."""
        return self._optimized().rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._optimized().rate = rate

    def leave(self, done: bool) -> None:
        """Part from the others."""
        if self._exchange is not None:
            self._exchange.close(done)

    def _prepare(self, features: Sequence[Any], labels: Sequence[Any]) -> None:
        """Let a model whose shapes are not known see rows first; all workers draw the same parameters."""
        self._inputs = len(features)
        if not self._net.is_ready:
            with alike(self._seed), _told(features, labels):
                self._net.prepare(features, labels)

    def _optimized(self) -> Stepping:
        if self._stepping is None:
            given, options = self.config["optimizer"], self.config["optimizer_params"]
            self._stepping = Stepping(self._net.optimizer(given, options), self._size)
            self._stepping.load(self.files)
        return self._stepping

    def _begun(self) -> Stepping:
        """Begin with the same parameters on all workers, at the first step of all."""
        assert self._exchange is not None
        if not self._exchange.has_begun:
            self._exchange.begin({**self._net.weights(), **self._net.counted(), **self._net.fixed()})
        return self._optimized()

    def _added(self, gradients: dict[str, Any]) -> dict[str, Any]:
        """Add what was kept of rows before, which belong to the same step."""
        for name, each in (self._kept or {}).items():
            gradients[name] += each
        return gradients

    def _average(self, weight: float, before: Mapping[str, Any] | None) -> None:
        """Average what a model counts along over the rows of all workers; rows that do not count leave it alone."""
        assert self._exchange is not None
        counted = self._net.counted()
        if not counted:
            return
        for name, each in (before or {}).items():
            counted[name][:] = each
        if self._size == 1:
            return
        share = library().nd.array([weight])
        told = {**{f"counted.{name}": each * weight for name, each in counted.items()}, "counted": share}
        self._exchange.add_up(told)
        whole = float(share.asscalar())
        for name, each in counted.items() if whole else ():
            each[:] = told[f"counted.{name}"] / whole


def _net(model: Any, loss: Any, init: Any) -> Net:
    mx = library()
    if isinstance(model, mx.gluon.Block):
        return GluonNet(model, loss, init)
    if isinstance(model, mx.sym.Symbol | mx.mod.Module):
        return SymbolNet(model, loss, init)
    text = f"model_creator made a {type(model).__name__}"
    raise PlanError(f"{text}; it should return a gluon.Block, an mx.sym.Symbol, or an mx.mod.Module")


@contextmanager
def _told(features: Sequence[Any], labels: Sequence[Any]) -> Iterator[None]:
    """Say with which shapes MXNet could not go on."""
    try:
        yield
    except library().base.MXNetError as error:
        shapes = [tuple(each.shape) for each in features], [tuple(each.shape) for each in labels]
        said = str(error).strip().splitlines()[-1]
        text = f"MXNet cannot do this with inputs of the shapes {shapes[0]} and targets of {shapes[1]}"
        raise PlanError(f"{text}: {said}") from error
