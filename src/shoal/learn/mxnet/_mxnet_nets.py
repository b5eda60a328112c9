"""What is trained: a block of Gluon, or a symbol; both as arrays by their names, and what they make of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from shoal.errors import PlanError, StateError
from shoal.learn.mxnet._mxnet_there import library, listed

__all__ = ["GluonNet", "Net", "from_file", "to_file"]


class Net(ABC):
    """A model: parameters that learn, and others that it counts along, such as the means of batch norm."""

    draws = True
    """Whether it may draw random numbers."""

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """Whether the shapes of all parameters are known."""

    @abstractmethod
    def prepare(self, features: Sequence[Any], labels: Sequence[Any]) -> None:
        """Find the shapes by looking at some rows, and draw what it begins with."""

    @abstractmethod
    def weights(self) -> dict[str, Any]:
        """Give the parameters that learn."""

    @abstractmethod
    def gradients(self) -> dict[str, Any]:
        """Give their gradients, in the same order."""

    @abstractmethod
    def counted(self) -> dict[str, Any]:
        """Give what it counts along."""

    @abstractmethod
    def fixed(self) -> dict[str, Any]:
        """Give the parameters that nobody changes."""

    @abstractmethod
    def learn(self, features: Sequence[Any], labels: Sequence[Any], weight: float) -> tuple[Any, float | None]:
        """Set gradients to those of the mean loss of some rows, times a weight; give outputs and loss."""

    @abstractmethod
    def look(self, features: Sequence[Any], labels: Sequence[Any]) -> tuple[Any, float | None]:
        """Give outputs for rows, and their mean loss if there are targets and a loss."""

    @abstractmethod
    def optimizer(self, given: Any, options: Mapping[str, Any]) -> Any:
        """Make an optimizer, which knows what is special about single parameters."""

    @abstractmethod
    def dump(self) -> bytes:
        """Give all parameters as MXNet writes them."""

    @abstractmethod
    def load(self, data: bytes) -> None:
        """Take such parameters."""

    @abstractmethod
    def export(self, inputs: int) -> tuple[str | None, bytes]:
        """Give the model as a symbol, if it is one, with the parameters that belong to it."""

    @abstractmethod
    def arrays(self) -> dict[str, Any]:
        """Give all parameters as arrays of numpy."""


class GluonNet(Net):
    """A block of Gluon."""

    def __init__(self, block: Any, loss: Callable[..., Any] | None, init: Any) -> None:
        self.block, self._loss = block, loss
        for each in block.collect_params().values():
            if each._data is None and not each._deferred_init:
                each.initialize(init=None, default_init=init or library().init.Uniform())
        self.draws = any(_draws(each) for each in _blocks(block))

    @property
    def is_ready(self) -> bool:
        """Whether the shapes of all parameters are known."""
        return not any(each._deferred_init for each in self._parameters().values())

    def prepare(self, features: Sequence[Any], labels: Sequence[Any]) -> None:
        """Let rows go through it once."""
        self.block(*features)

    def weights(self) -> dict[str, Any]:
        """Give the parameters that learn."""
        return {name: each.data() for name, each in self._learning().items()}

    def gradients(self) -> dict[str, Any]:
        """Give their gradients; those of large tables are whole ones here."""
        return {name: _dense(each.grad()) for name, each in self._learning().items()}

    def counted(self) -> dict[str, Any]:
        """Give those that have no gradient by their nature."""
        return {name: each.data() for name, each in self._others().items() if not each._differentiable}

    def fixed(self) -> dict[str, Any]:
        """Give those that could learn, and are not to."""
        return {name: each.data() for name, each in self._others().items() if each._differentiable}

    def learn(self, features: Sequence[Any], labels: Sequence[Any], weight: float) -> tuple[Any, float | None]:
        """Go forward and backward; a parameter that has no part in it has a gradient of 0."""
        if self._loss is None:
            raise PlanError("a model of Gluon cannot be trained without a loss: give loss_creator to from_mxnet")
        for each in self._learning().values():
            each.zero_grad()
        with library().autograd.record():
            found = self.block(*features)
            loss = self._mean(found, labels)
            (loss * weight).backward()
        return found, float(loss.asscalar())

    def look(self, features: Sequence[Any], labels: Sequence[Any]) -> tuple[Any, float | None]:
        """Go forward."""
        found = self.block(*features)
        return found, float(self._mean(found, labels).asscalar()) if labels and self._loss is not None else None

    def optimizer(self, given: Any, options: Mapping[str, Any]) -> Any:
        """Make an optimizer, or take one."""
        made = library().optimizer.create(given, **options) if isinstance(given, str) else given
        made.param_dict = dict(enumerate(self._learning().values()))
        return made

    def dump(self) -> bytes:
        """Give what `save_parameters` writes."""
        return to_file(self.block.save_parameters)

    def load(self, data: bytes) -> None:
        """Let MXNet read it: what `save_parameters` wrote, or `export`."""
        try:
            from_file(self._read, data)
        except (AssertionError, ValueError, library().base.MXNetError) as error:
            raise StateError(f"the file has not the parameters of this model: {error}") from error

    def export(self, inputs: int) -> tuple[str | None, bytes]:
        """Follow a symbol through a block that can be one."""
        mx = library()
        if not isinstance(self.block, mx.gluon.HybridBlock):
            return None, self.dump()
        names = ["data"] if inputs == 1 else [f"data{number}" for number in range(inputs)]
        try:
            symbol = mx.sym.Group(listed(self.block(*map(mx.sym.var, names))))
        except Exception:  # whatever a block does with arrays, it may not do with symbols
            return None, self.dump()
        known, others = set(symbol.list_arguments()), set(symbol.list_auxiliary_states())
        arrays = {}
        for name, each in self.block.collect_params().items():
            if name in known | others:
                arrays[f"{'arg' if name in known else 'aux'}:{name}"] = each.data()
        return symbol.tojson(), to_file(lambda path: mx.nd.save(path, arrays))

    def arrays(self) -> dict[str, Any]:
        """Give all parameters, by the names that say where they are in the block."""
        return {name: each.data().asnumpy() for name, each in self._parameters().items()}

    def _read(self, path: str) -> None:
        is_exported = any(name.startswith(("arg:", "aux:")) for name in library().nd.load(path))
        read = self.block.collect_params().load if is_exported else self.block.load_parameters
        read(path, ctx=library().cpu())

    def _mean(self, found: Any, labels: Sequence[Any]) -> Any:
        assert self._loss is not None
        return sum(each.mean() for each in listed(self._loss(found, *labels)))

    def _learning(self) -> dict[str, Any]:
        """Give the parameters that learn, each once, wherever it is used."""
        seen: dict[int, tuple[str, Any]] = {}
        for name, each in self._parameters().items():
            if each.grad_req != "null":
                seen.setdefault(id(each), (name, each))
        return dict(seen.values())

    def _others(self) -> dict[str, Any]:
        return {name: each for name, each in self._parameters().items() if each.grad_req == "null"}

    def _parameters(self) -> dict[str, Any]:
        found: dict[str, Any] = self.block._collect_params_with_prefix()
        return found


def to_file(write: Callable[[str], Any]) -> bytes:
    """Give what a function writes into a file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "parameters"
        write(str(path))
        return path.read_bytes()


def from_file(read: Callable[[str], Any], data: bytes) -> Any:
    """Let a function read a file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "parameters"
        path.write_bytes(data)
        return read(str(path))


def _dense(array: Any) -> Any:
    return array if array.stype == "default" else array.tostype("default")


def _blocks(block: Any) -> list[Any]:
    return [block, *(inner for child in block._children.values() for inner in _blocks(child))]


def _draws(block: Any) -> bool:
    """Tell whether a block may draw random numbers: those of the library do not, but for one."""
    kind = type(block)
    return not kind.__module__.startswith("mxnet.gluon.nn.") or "Dropout" in kind.__name__
