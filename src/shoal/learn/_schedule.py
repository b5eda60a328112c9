"""How fast a model learns, as a function says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shoal.errors import PlanError
from shoal.learn._callbacks import Callback

__all__ = ["LearningRateScheduler"]


class LearningRateScheduler(Callback):
    """Sets the learning rate before each epoch to ``function(epoch, rate)``, or with ``by_step`` before each step.

    The first epoch, or step, is 0, and the rate is that which holds so far.

    >>> halved = LearningRateScheduler(lambda epoch, rate: rate / 2 if epoch else rate)
    >>> from types import SimpleNamespace
    >>> halved.run = SimpleNamespace(framework=SimpleNamespace(learning_rate=0.1))  # `fit` does this
    >>> halved.before_epoch(1), halved.before_epoch(2)
    (None, None)
    >>> halved.run.framework.learning_rate
    0.05
    """

    def __init__(self, function: Callable[[int, float], float], *, by_step: bool = False) -> None:
        self._function, self._by_step = function, by_step
        self._done = -1

    def before_epoch(self, epoch: int) -> None:
        """Set the rate of an epoch."""
        if not self._by_step:
            self._set(epoch - 1)

    def before_step(self, step: int) -> None:
        """Set the rate of a step."""
        if self._by_step:
            self._set(step - 1)

    def state_dict(self) -> dict[str, Any]:
        """Say for what the rate was set last: who goes on in the middle of an epoch does not set it again."""
        return {"done": self._done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._done = state["done"]

    def _set(self, number: int) -> None:
        if number == self._done:
            return
        framework: Any = self.run.framework
        rate = getattr(framework, "learning_rate", None)
        if rate is None:
            raise PlanError("there is no learning rate to set: LearningRateScheduler needs an optimizer that has one")
        framework.learning_rate = float(self._function(number, rate))
        self._done = number
