"""A model of BigDL, as far as it can be seen from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["BigDLModel"]


@dataclass(frozen=True)
class BigDLModel:
    """The layers and weights of a model whose code is in another environment.

    >>> import numpy as np
    >>> model = BigDLModel("Linear(2 -> 1)", {"Linear1": {"weight": np.ones((1, 2)), "bias": np.zeros(1)}})
    >>> [each.shape for each in model.get_weights()]
    [(1, 2), (1,)]
    """

    text: str
    """How BigDL describes it."""
    weights: dict[str, dict[str, Any]]
    """Arrays of each layer that has some, by its name: ``weight``, ``bias``, ``runningMean``, ..."""

    def get_weights(self) -> list[Any]:
        """Give weights and biases of all layers, one after the other."""
        return [values[name] for values in self.weights.values() for name in ("weight", "bias") if name in values]

    def __repr__(self) -> str:
        return self.text
