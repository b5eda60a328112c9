"""Training that ends when it does not get better any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.errors import PlanError
from shoal.learn._callbacks import Callback

__all__ = ["EarlyStopping"]

_WEIGHTS = "weights."


class EarlyStopping(Callback):
    """Ends a training that does not get better any more.

    ``monitor`` is what is looked at, and is to fall, or to rise with ``mode="max"``, by more than ``min_delta`` within
    ``patience`` epochs. With ``restore_best`` the model has the weights of its best epoch in the end, whatever ended
    the training; they are kept in memory.

    >>> class Run:
    ...     stopped = False
    ...     def stop(self, why):
    ...         self.stopped = True
    >>> stopping = EarlyStopping("train_loss", patience=2)
    >>> stopping.run = Run()  # `fit(callbacks=[stopping])` does this
    >>> for epoch, loss in enumerate([0.5, 0.6, 0.7], start=1):
    ...     stopping.after_epoch(epoch, {"train_loss": loss})
    >>> stopping.state_dict()["best"]
    0.5
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        *,
        patience: int = 3,
        min_delta: float = 0.0,
        mode: str = "min",
        restore_best: bool = False,
    ) -> None:
        if mode not in ("min", "max"):
            raise PlanError(f"mode={mode!r}; it is min or max")
        self._monitor, self._patience, self._least = monitor, patience, min_delta
        self._sign = 1 if mode == "min" else -1
        self._restores, self._validated = restore_best, False
        self._best: float | None = None
        self._waited = 0
        self._weights: dict[str, bytes] = {}

    def before_validation(self) -> None:
        """Take note of it: not every epoch has a validation."""
        self._validated = True

    def after_epoch(self, epoch: int, stats: Mapping[str, Any]) -> None:
        """Compare the epoch with the best one; one that was not evaluated does not count."""
        validated, self._validated = self._validated, False
        if self._monitor not in stats:
            if self._monitor.startswith("val_") and self.run.validates and not validated:
                return
            raise PlanError(f"there is no {self._monitor!r} to watch; an epoch has {', '.join(stats)}")
        value = self._sign * float(stats[self._monitor])
        if value == value and (self._best is None or value < self._best - self._least):  # not where it is no number
            self._best, self._waited = value, 0
            if self._restores:
                self._weights = self.run.framework.dump("model")
            return
        self._waited += 1
        if self._waited >= self._patience:
            self.run.stop(f"{self._monitor} has not become better for {self._waited} epochs")

    def after_run(self) -> None:
        """Go back to the best epoch, if that is wanted."""
        if self._weights:
            self.run.framework.load(self._weights)

    def state_dict(self) -> dict[str, Any]:
        """Give the best value, how long ago that was, and the weights of then."""
        weights = {f"{_WEIGHTS}{name}": data for name, data in self._weights.items()}
        return {"best": self._best, "waited": self._waited, **weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._best, self._waited = state["best"], state["waited"]
        names = (name for name in state if name.startswith(_WEIGHTS))
        self._weights = {name.removeprefix(_WEIGHTS): state[name] for name in names} if self._restores else {}
