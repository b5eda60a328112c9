"""Symbols: models that have their losses in them, as `mx.mod.Module` trains them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shoal.errors import PlanError, StateError
from shoal.learn.mxnet._mxnet_nets import Net, from_file, to_file
from shoal.learn.mxnet._mxnet_there import library, listed

__all__ = ["SymbolNet"]

#: Operators that end a symbol and have gradients of their own, which are sums over rows unless they are told otherwise.
_LOSSES = (
    "SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput", "MakeLoss",
    "make_loss", "SVMOutput",
)  # fmt: skip
_DRAWING = ("Dropout", "random", "sample", "RNN")
_EPSILON = 1e-12


class SymbolNet(Net):
    """A symbol, with the names of what is fed."""

    def __init__(self, given: Any, loss: Callable[..., Any] | None, init: Any) -> None:
        self._symbol, self._data, self._targets, fixed = _described(given)
        self._loss, self._init = loss, init or library().init.Uniform(0.01)
        graph = json.loads(self._symbol.tojson())
        self._heads = [graph["nodes"][head[0]] for head in graph["heads"]]
        self._is_mean = _is_mean(self._heads)
        self.draws = any(word in node["op"] for node in graph["nodes"] for word in _DRAWING)
        fed = {*self._data, *self._targets}
        self._names = [name for name in self._symbol.list_arguments() if name not in fed]
        self._learning = [name for name in self._names if name not in fixed]
        self._arguments: dict[str, Any] = {}
        self._gradients: dict[str, Any] = {}
        self._others: dict[str, Any] = {}
        self._executors: dict[Any, Any] = {}
        if getattr(given, "params_initialized", False):
            self._take(*given.get_params())

    @property
    def is_ready(self) -> bool:
        """Whether there are parameters."""
        return bool(self._arguments) or not self._names

    def prepare(self, features: Sequence[Any], labels: Sequence[Any]) -> None:
        """Infer the shapes, and draw parameters as a module does."""
        arguments, others = self._shapes(features)
        described = self._symbol.attr_dict()
        made = [
            {name: self._drawn(name, shapes[name], described.get(name)) for name in names}
            for names, shapes in ((self._names, arguments), (self._symbol.list_auxiliary_states(), others))
        ]
        self._take(*made)

    def weights(self) -> dict[str, Any]:
        """Give the parameters that learn."""
        return {name: self._arguments[name] for name in self._learning}

    def gradients(self) -> dict[str, Any]:
        """Give their gradients."""
        return dict(self._gradients)

    def counted(self) -> dict[str, Any]:
        """Give what it counts along."""
        return dict(self._others)

    def fixed(self) -> dict[str, Any]:
        """Give the parameters that a module was told to leave."""
        return {name: each for name, each in self._arguments.items() if name not in self._gradients}

    def learn(self, features: Sequence[Any], labels: Sequence[Any], weight: float) -> tuple[Any, float | None]:
        """Go forward and backward; gradients are divided by rows, as a module does it."""
        executor, targets = self._fed(features, labels)
        executor.forward(is_train=True)
        executor.backward()
        factor = weight if self._is_mean else weight / len(features[0])
        for each in self._gradients.values():
            each *= factor
        found = [each.copy() for each in executor.outputs]
        return _single(found), self._measured(found, labels, targets)

    def look(self, features: Sequence[Any], labels: Sequence[Any]) -> tuple[Any, float | None]:
        """Go forward; targets are not needed for that."""
        executor, targets = self._fed(features, labels)
        executor.forward(is_train=False)
        found = [each.copy() for each in executor.outputs]
        return _single(found), self._measured(found, labels, targets) if labels else None

    def optimizer(self, given: Any, options: Mapping[str, Any]) -> Any:
        """Make an optimizer, which leaves biases out of weight decay, as for a module."""
        names = dict(enumerate(self._learning))
        if not isinstance(given, str):
            given.idx2name = names
            return given
        return library().optimizer.create(given, sym=self._symbol, param_idx2name=names, **options)

    def dump(self) -> bytes:
        """Give what `mx.model.save_checkpoint` writes."""
        arrays = {f"arg:{name}": each for name, each in self._arguments.items()}
        arrays |= {f"aux:{name}": each for name, each in self._others.items()}
        return to_file(lambda path: library().nd.save(path, arrays))

    def load(self, data: bytes) -> None:
        """Take such arrays."""
        found = from_file(library().nd.load, data)
        kinds: dict[str, dict[str, Any]] = {"arg": {}, "aux": {}}
        for name, each in found.items() if isinstance(found, dict) else ():
            kind, _, rest = name.partition(":")
            kinds.get(kind, {})[rest] = each
        missing = {*self._names, *self._symbol.list_auxiliary_states()} - {*kinds["arg"], *kinds["aux"]}
        if missing:
            raise StateError(f"the file has not the parameters of this symbol: it lacks {', '.join(sorted(missing))}")
        self._take(kinds["arg"], kinds["aux"])

    def export(self, inputs: int) -> tuple[str | None, bytes]:
        """Give the symbol and its parameters."""
        return self._symbol.tojson(), self.dump()

    def arrays(self) -> dict[str, Any]:
        """Give all parameters by their names."""
        return {name: each.asnumpy() for name, each in {**self._arguments, **self._others}.items()}

    def _take(self, arguments: Mapping[str, Any], others: Mapping[str, Any]) -> None:
        """Have parameters, in the arrays that there are if there are any."""
        if self._arguments:
            for mine, theirs in ((self._arguments, arguments), (self._others, others)):
                for name, each in mine.items():
                    each[:] = theirs[name]
            return
        self._arguments = {name: arguments[name].copy() for name in self._names}
        self._gradients = {name: self._arguments[name].zeros_like() for name in self._learning}
        self._others = {name: others[name].copy() for name in self._symbol.list_auxiliary_states()}

    def _drawn(self, name: str, shape: tuple[int, ...], described: Mapping[str, Any] | None) -> Any:
        array = library().nd.zeros(shape)
        self._init(library().init.InitDesc(name, described), array)
        return array

    def _shapes(self, features: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        if len(features) != len(self._data):
            wanted = f"{len(self._data)} inputs ({', '.join(self._data)})"
            raise PlanError(f"the symbol has {wanted}, and the rows have {len(features)}")
        given = {name: each.shape for name, each in zip(self._data, features, strict=True)}
        arguments, _, others = self._symbol.infer_shape(**given)
        if arguments is None:
            raise PlanError(f"the shapes of the symbol do not follow from inputs of {given}")
        names = self._symbol.list_arguments(), self._symbol.list_auxiliary_states()
        return dict(zip(names[0], arguments, strict=True)), dict(zip(names[1], others, strict=True))

    def _fed(self, features: Sequence[Any], labels: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
        """Give what computes with as many rows, fed; and the targets in the shapes that the symbol wants."""
        shapes = self._shapes(features)[0]
        if labels and self._targets and len(labels) != len(self._targets):
            wanted = f"{len(self._targets)} targets ({', '.join(self._targets)})"
            raise PlanError(f"the symbol has {wanted}, and the rows have {len(labels)}")
        targets = {}
        for name, each in zip(self._targets, labels, strict=False):
            fits = each.size == _count(shapes[name])
            targets[name] = each.reshape(shapes[name]) if fits else each
        fed = {**dict(zip(self._data, features, strict=True)), **targets}
        whole = {name: fed[name].shape if name in fed else shapes[name] for name in (*self._data, *self._targets)}
        executor = self._executor(whole)
        for name, each in fed.items():
            executor.arg_dict[name][:] = each
        return executor, targets

    def _executor(self, shapes: Mapping[str, Any]) -> Any:
        key = tuple(shapes.items())
        if key not in self._executors:
            mx = library()
            places = {name: mx.nd.zeros(shape) for name, shape in shapes.items()}
            wanted = {name: "write" if name in self._gradients else "null" for name in self._symbol.list_arguments()}
            self._executors[key] = self._symbol.bind(
                mx.cpu(), {**self._arguments, **places}, self._gradients, wanted, self._others
            )
        return self._executors[key]

    def _measured(self, found: Sequence[Any], labels: Sequence[Any], targets: Mapping[str, Any]) -> float | None:
        """Say what the loss is: as a function tells it, or as the operators at the end of the symbol mean it."""
        if self._loss is not None:
            outputs = _single(list(found))
            return float(sum(each.mean() for each in listed(self._loss(outputs, *labels))).asscalar())
        order = list(targets.values())
        losses = [
            _loss_of(node, output, order[number] if number < len(order) else None)
            for number, (node, output) in enumerate(zip(self._heads, found, strict=True))
        ]
        return None if not losses or None in losses else sum(each for each in losses if each is not None)


def _described(given: Any) -> tuple[Any, list[str], list[str], set[str]]:
    """Say which names of a symbol are fed; a module knows, and a bare symbol has names that tell."""
    if hasattr(given, "data_names") and hasattr(given, "label_names"):
        return given.symbol, list(given.data_names), list(given.label_names or ()), set(given._fixed_param_names or ())
    names = given.list_arguments()
    data = [name for name in names if name.startswith("data")]
    if not data:
        text = f"nobody can tell which of {', '.join(names)} are the inputs of this symbol"
        raise PlanError(f"{text}; return mx.mod.Module(symbol, data_names=[...], label_names=[...])")
    return given, data, [name for name in names if name.endswith("label")], set()


def _is_mean(heads: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether gradients are means already; nobody could scale several that differ in this."""
    kinds = {node.get("attrs", {}).get("normalization", "null") != "null" for node in heads if node["op"] in _LOSSES}
    if len(kinds) > 1:
        raise PlanError("some outputs of the symbol have a normalization and others none; let all have the same")
    return kinds == {True}


def _loss_of(node: Mapping[str, Any], output: Any, target: Any) -> float | None:
    nd, kind = library().nd, node["op"]
    if kind in ("MakeLoss", "make_loss"):
        return float(output.mean().asscalar())
    if target is None:
        return None
    if kind == "SoftmaxOutput":
        return _cross_entropy(node.get("attrs", {}), output, target)
    if kind not in ("LinearRegressionOutput", "MAERegressionOutput", "LogisticRegressionOutput"):
        return None
    target = target.reshape(output.shape)
    if kind == "LogisticRegressionOutput":
        told = target * nd.log(output + _EPSILON) + (1 - target) * nd.log(1 - output + _EPSILON)
        return -float(told.mean().asscalar())
    distance = output - target
    return float((nd.abs(distance) if kind[0] == "M" else 0.5 * distance**2).mean().asscalar())


def _cross_entropy(options: Mapping[str, str], output: Any, target: Any) -> float:
    nd = library().nd
    axis = 1 if options.get("multi_output", "False") in ("True", "1") else -1
    found = -nd.log(nd.pick(output, target, axis=axis) + _EPSILON)
    if options.get("use_ignore", "False") not in ("True", "1"):
        return float(found.mean().asscalar())
    counts = target != float(options.get("ignore_label", "-1"))
    return float(((found * counts).sum() / nd.maximum(counts.sum(), 1)).asscalar())


def _single(found: list[Any]) -> Any:
    return found[0] if len(found) == 1 else found


def _count(shape: Sequence[int]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count
