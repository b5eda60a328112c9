"""The optimizer: each worker has one, and all take the same step with what the servers have added up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal.errors import StateError
from shoal.learn._packed import pack, unpack
from shoal.learn.mxnet._mxnet_there import library

__all__ = ["Stepping"]

_ARRAYS, _NUMBERS = "optimizer.npz", "optimizer.json"
#: What an optimizer counts for each parameter, by its number.
_COUNTS = "_index_update_count"


class Stepping:
    """An optimizer of MXNet, with what it remembers of each parameter."""

    def __init__(self, optimizer: Any, size: int) -> None:
        self._optimizer = optimizer
        self._optimizer.rescale_grad = 1.0 / size  # gradients are sums over workers
        self._updater: Any = library().optimizer.get_updater(optimizer)

    @property
    def rate(self) -> float:
        """How fast it learns now."""
        return float(self._optimizer.learning_rate)

    @rate.setter
    def rate(self, rate: float) -> None:
        self._optimizer.lr_scheduler = None  # whoever sets a rate has a schedule of his own
        self._optimizer.lr = rate

    def step(self, weights: Mapping[str, Any], gradients: Mapping[str, Any]) -> None:
        """Take a step."""
        for number, (name, weight) in enumerate(weights.items()):
            self._updater(number, gradients[name], weight)

    def dump(self) -> dict[str, bytes]:
        """Give all that it remembers, as arrays and plain numbers."""
        arrays: dict[str, Any] = {}
        for number, state in self._updater.states.items():
            _flatten(str(number), state, arrays)
        optimizer = self._optimizer
        counts = {str(number): count for number, count in getattr(optimizer, _COUNTS).items()}
        told = {"kind": type(optimizer).__name__, "counts": counts, "numbers": _numbers(optimizer)}
        packed = pack([np.asarray(each) for each in arrays.values()], list(arrays))
        return {_ARRAYS: packed, _NUMBERS: json.dumps(told).encode()}

    def load(self, files: Mapping[str, bytes]) -> None:
        """Take what `dump` gave."""
        if _NUMBERS not in files:
            return
        told = json.loads(files[_NUMBERS])
        kind = type(self._optimizer).__name__
        if told["kind"] != kind:
            text = f"what was learnt before has the optimizer {told['kind']}, and this is {kind}"
            raise StateError(f"{text}; to begin with another one, load parameters alone: a .params file")
        getattr(self._optimizer, _COUNTS).update({int(number): count for number, count in told["counts"].items()})
        known = _numbers(self._optimizer)
        for name, value in told["numbers"].items():
            if name in known:
                setattr(self._optimizer, name, value)
        trees: dict[str, Any] = {}
        for path, array in unpack(files[_ARRAYS]).items():
            _grow(trees, path.split("."), library().nd.array(array, dtype=array.dtype))
        self._updater.states = {int(number): _built(tree) for number, tree in trees.items()}
        self._updater.states_synced = dict.fromkeys(self._updater.states, True)


def _numbers(optimizer: Any) -> dict[str, float]:
    """Give the plain numbers of an optimizer, but for the one that says how many workers there are."""
    found = {name: value for name, value in vars(optimizer).items() if type(value) in (int, float)}
    found.pop("rescale_grad", None)
    return found


def _flatten(path: str, state: Any, arrays: dict[str, Any]) -> None:
    """Name the arrays of a state by where they are: ``3`` is that of a parameter, ``3.0`` the first of several."""
    if isinstance(state, tuple | list):
        for number, each in enumerate(state):
            _flatten(f"{path}.{number}", each, arrays)
    elif state is not None:
        arrays[path] = state.asnumpy()


def _grow(trees: dict[str, Any], path: list[str], array: Any) -> None:
    *way, last = path
    for step in way:
        trees = trees.setdefault(step, {})
    trees[last] = array


def _built(tree: Any) -> Any:
    """Make a state of its parts; one that was nothing is nothing again.

    >>> _built({"0": "mean", "2": "variance"})
    ('mean', None, 'variance')
    """
    if not isinstance(tree, dict):
        return tree
    count = 1 + max(map(int, tree))
    return tuple(_built(tree[str(number)]) if str(number) in tree else None for number in range(count))
