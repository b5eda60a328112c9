"""The numbers in a model of Keras: weights, those of its optimizer, its metrics and its random generators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from shoal.errors import StateError
from shoal.learn._packed import pack, unpack
from shoal.learn._ring import Ring

__all__ = [
    "Moving",
    "arrays",
    "assign",
    "described",
    "dumped",
    "hand_round",
    "metric_variables",
    "optimizer_variables",
    "seeds",
    "taken",
]

Array = NDArray[Any]


def arrays(variables: Sequence[Any]) -> list[Array]:
    """Give the values of variables."""
    return [_array(each) for each in variables]


def assign(variables: Sequence[Any], values: Sequence[Array]) -> None:
    """Set variables."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def dumped(variables: Sequence[Any]) -> bytes:
    """Write the values of variables into a file."""
    return pack(arrays(variables))


def taken(variables: Sequence[Any], data: bytes, what: str) -> None:
    """Set variables to what is in a file, if it is of the same kind of model."""
    found = list(unpack(data).values())
    there, here = [each.shape for each in found], [tuple(each.shape) for each in variables]
    if there != here:
        text = f"{what} in the file is not that of this model: it has {len(there)} arrays, and the model {len(here)}"
        differ = next((pair for pair in zip(there, here, strict=False) if pair[0] != pair[1]), None)
        raise StateError(text if differ is None else f"{text}; one is of shape {differ[0]}, and {differ[1]} here")
    assign(variables, found)


def hand_round(variables: Sequence[Any], ring: Ring) -> None:
    """Set the variables of all workers to those of the first."""
    for variable in variables:
        value = np.array(_array(variable), order="C")
        if value.dtype != object:
            ring.hand_round(value)
            variable.assign(value)


class Moving:
    """What a model learns without gradients: the means of BatchNormalization and the like.

    Weights of frozen layers look the same from outside; so it is found out which of them change.
    """

    def __init__(self, model: Any) -> None:
        self._candidates = [each for each in model.non_trainable_weights if _is_float(each)]
        self._before = self._digests()
        self._found: list[Any] | None = None

    def average(self, ring: Ring, weight: float) -> None:
        """Set them to their means over all workers, each of which counts with a weight."""
        if self._found is None:
            self.look_again(ring)
        if not self._found:
            return
        values = arrays(self._found)
        flat = np.concatenate([value.astype(np.float64).reshape(-1) for value in values]) * weight
        ring.add_up(flat)
        flat /= ring.size
        ends = np.cumsum([value.size for value in values])[:-1]
        parts = zip(np.split(flat, ends), values, strict=True)
        assign(self._found, [part.reshape(value.shape).astype(value.dtype) for part, value in parts])

    def look_again(self, ring: Ring) -> None:
        """Find out which have changed on any worker, since the first step."""
        changed = [float(one != other) for one, other in zip(self._digests(), self._before, strict=True)]
        flags = zip(self._candidates, ring.total(changed), strict=True)
        self._found = [variable for variable, flag in flags if flag]

    def _digests(self) -> list[int]:
        return [crc32(value.tobytes()) for value in arrays(self._candidates)]


def seeds(model: Any) -> list[Any]:
    """Find the states of random generators."""
    weights = {id(each) for each in model.weights}
    return [each for each in model.variables if id(each) not in weights and not _is_float(each)]


def optimizer_variables(model: Any) -> list[Any]:
    """Give all that the optimizer remembers; it is made to have it, if it took no step yet."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return []
    if not getattr(optimizer, "built", getattr(optimizer, "_built", False)) and hasattr(optimizer, "build"):
        optimizer.build(model.trainable_variables)
    found = optimizer.variables
    several = list(found() if callable(found) else found)
    rate = getattr(optimizer, "_learning_rate", None)  # Keras 2 does not count it
    is_missing = hasattr(rate, "assign") and all(each is not rate for each in several)
    return [*several, rate] if is_missing else several


def metric_variables(model: Any) -> list[Any]:
    """Give what metrics have counted."""
    return [each for metric in model.metrics for each in metric.variables]


def _array(variable: Any) -> Array:
    """Make an array of a variable, wherever its numbers are."""
    value = getattr(variable, "value", variable)
    value = value() if callable(value) else value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        return _of_torch(value)
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _of_torch(value: Any) -> Array:
    if str(value.dtype) != "torch.bfloat16":
        return np.asarray(value.numpy())
    import ml_dtypes

    return np.asarray(value.float().numpy().astype(ml_dtypes.bfloat16))


def _is_float(variable: Any) -> bool:
    return "float" in str(getattr(variable.dtype, "name", variable.dtype))


def described(logs: Mapping[str, Any]) -> dict[str, float]:
    """Give what metrics say as plain numbers; what is no number is left out."""
    found = {name: np.asarray(_array(value)) for name, value in logs.items()}
    return {name: float(value) for name, value in found.items() if value.size == 1}
