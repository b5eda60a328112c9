"""Gradients of several workers as one: an optimizer that asks the others before it takes a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.errors import PlanError
from shoal.learn._ring import Ring
from shoal.learn.keras._keras_choice import backend_of

__all__ = ["Exchange", "Steps", "share"]

Array = NDArray[Any]
#: Where tensors of a backend go through a function of arrays.
_WAYS = {
    "tensorflow": "shoal.learn.keras._tensorflow_arrays",
    "torch": "shoal.learn.keras._torch_arrays",
    "jax": "shoal.learn.keras._jax_arrays",
}


class Exchange:
    """What becomes of the gradients of a worker: they count with a weight, and are averaged over all workers."""

    def __init__(self, ring: Ring | None, backend: str, clip: tuple[float, float] | None = None) -> None:
        self._ring, self.clip = ring, clip
        self.weight = 1.0
        self.last = True
        """Whether a step is taken; if not, gradients are kept for the next one."""
        self._kept: Array | None = None
        self._through: Callable[..., list[Any]] = import_module(_WAYS[backend]).through

    def gradients(self, given: Sequence[Any]) -> list[Any] | None:
        """Give what a step is taken with; None if there is to be none. It is traced once for each kind of step."""
        places = [place for place, gradient in enumerate(given) if gradient is not None]
        some = [given[place] for place in places]
        if not some:
            return list(given)
        if not self.last:
            self._through(self._keep, some)
            return None
        found = list(given)
        for place, gradient in zip(places, self._through(self._averaged, some), strict=True):
            found[place] = gradient
        return found

    def _keep(self, flat: Array) -> Array:
        self._kept = self._with_kept(flat)
        return np.zeros_like(flat)

    def _averaged(self, flat: Array) -> Array:
        found, self._kept = self._with_kept(flat), None
        if self._ring is not None:
            self._ring.add_up(found)
            found /= self._ring.size
        if self.clip is not None:
            np.clip(found, *self.clip, out=found)
        return found

    def _with_kept(self, flat: Array) -> Array:
        found: Array = flat * flat.dtype.type(self.weight)
        if self._kept is not None:
            found += self._kept
        return found


def share(optimizer: Any, exchange: Exchange) -> None:
    """Let an optimizer take its steps with the gradients of all workers.

    It becomes one of a class derived from its own, under the same name, so that it is saved as what it was.
    """
    kind = type(optimizer)
    new_style = hasattr(kind, "stateless_apply")

    class Shared(kind):  # type: ignore[misc, valid-type]
        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            """Take a step of Keras 3."""
            found = exchange.gradients(list(grads))
            return None if found is None else super().apply(found, trainable_variables)

    class SharedPairs(kind):  # type: ignore[misc, valid-type]
        def apply_gradients(self, grads_and_vars: Any, *args: Any, **options: Any) -> Any:
            """Take a step of Keras 2."""
            pairs = list(grads_and_vars)
            found = exchange.gradients([gradient for gradient, _ in pairs])
            if found is None:
                return None
            chosen = [(gradient, variable) for gradient, (_, variable) in zip(found, pairs, strict=True)]
            return super().apply_gradients(chosen, *args, **options)

    made = Shared if new_style else SharedPairs
    for name in ("__name__", "__qualname__", "__module__"):
        setattr(made, name, getattr(kind, name))
    optimizer.__class__ = made


class Steps:
    """How a model takes its steps: as Keras does by itself, until gradients have to be averaged, kept or weighed."""

    def __init__(self, ring: Ring | None, clip: tuple[float, float] | None = None) -> None:
        self._ring = ring if ring is not None and ring.size > 1 else None
        self._clip = clip
        self._exchange: Exchange | None = None
        self._functions: dict[bool, Any] = {}

    def prepare(self, model: Any, weight: float, last: bool) -> None:
        """Say what is to become of the gradients of the next rows."""
        if self._exchange is None:
            if self._ring is None and self._clip is None and last and weight == 1:
                return
            self._exchange = self._installed(model)
        summed = _reductions(model) == {"sum"}
        size = 1 if self._ring is None else self._ring.size
        self._exchange.weight = float(size if summed and weight else weight)
        if self._exchange.last != last:  # a step is traced, so there are two: one that is taken, and one that waits
            self._functions[self._exchange.last] = model.train_function
            self._exchange.last = last
            model.train_function = self._functions.get(last)
            _renew(model)

    def _installed(self, model: Any) -> Exchange:
        kinds, backend = _reductions(model), backend_of(model)
        if "sum" in kinds and (len(kinds) > 1 or model.losses) and self._ring is not None:
            text = "a loss that is summed up over rows cannot be put together with one that is not"
            raise PlanError(f"{text}, such as that of a regularizer, on several workers; take the mean")
        exchange = Exchange(self._ring, backend, self._clip)
        share(model.optimizer, exchange)
        model.train_function = None
        _renew(model)
        if backend == "tensorflow":
            model.jit_compile = False  # a compiled step cannot ask others
        return exchange


def _renew(model: Any) -> None:
    """Let the next step be traced anew, if it is: JAX takes a method for the same as long as it is equal."""
    if model.train_function is None and backend_of(model) == "jax":
        model.train_step = partial(type(model).train_step, model)


def _reductions(model: Any) -> set[str]:
    """Say how the losses of a model are put together over rows."""
    losses = list(model.loss.values()) if isinstance(model.loss, Mapping) else model.loss
    several = losses if isinstance(losses, list | tuple) else [losses]
    return {str(getattr(each, "reduction", "mean")) for each in several if each is not None}
