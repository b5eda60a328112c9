"""What is done besides, while a model is trained: on every worker, in the order in which it was given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shoal.abc import Framework
from shoal.errors import PlanError

__all__ = ["Callback", "EarlyStopping", "Run", "callbacks_of"]


class Run:
    """A training, as callbacks see it."""

    def __init__(self, rank: int, size: int, attempt: int, framework: Framework) -> None:
        self.rank = rank
        """Which worker this is; what is printed or written is the first one's business."""
        self.size = size
        self.attempt = attempt
        """How often the workers began before, because one of them was lost."""
        self.framework = framework
        self.rows = 0
        """Rows that all workers have learnt from, since this began."""
        self.stopped = False
        self.reason = ""

    def stop(self, reason: str = "") -> None:
        """End the training after this epoch, on all workers."""
        self.stopped, self.reason = True, reason


class Callback:
    """Called at these moments; override those that matter."""

    run: Run

    def before_run(self) -> None:
        """Training begins."""

    def after_run(self) -> None:
        """Training has ended."""

    def before_epoch(self, epoch: int) -> None:
        """An epoch begins; the first is 1."""

    def after_epoch(self, epoch: int, stats: Mapping[str, Any]) -> None:
        """An epoch has ended; ``stats`` are those of all workers."""

    def before_step(self, step: int) -> None:
        """A step begins; the first is 1."""

    def after_step(self, step: int, loss: float) -> None:
        """A step has ended; ``loss`` is that of this worker's rows."""


class EarlyStopping(Callback):
    """Ends a training that does not get better any more.

    ``monitor`` is what is looked at, and is to fall, or to rise with ``mode="max"``, by at least ``min_delta`` within
    ``patience`` epochs.
    """

    def __init__(
        self, monitor: str = "val_loss", *, patience: int = 3, min_delta: float = 0.0, mode: str = "min"
    ) -> None:
        if mode not in ("min", "max"):
            raise PlanError(f"mode={mode!r}; it is min or max")
        self._monitor, self._patience, self._least, self._sign = (
            monitor,
            patience,
            min_delta,
            1 if mode == "min" else -1,
        )
        self._best, self._waited = float("inf"), 0

    def after_epoch(self, epoch: int, stats: Mapping[str, Any]) -> None:
        """Compare the epoch with the best one."""
        if self._monitor not in stats:
            raise PlanError(f"there is no {self._monitor!r} to watch; an epoch has {', '.join(stats)}")
        value = self._sign * stats[self._monitor]
        if value < self._best - self._least:
            self._best, self._waited = value, 0
            return
        self._waited += 1
        if self._waited >= self._patience:
            self.run.stop(f"{self._monitor} has not become better for {self._waited} epochs")


class _All(Callback):
    """Several callbacks as one."""

    def __init__(self, callbacks: list[Callback]) -> None:
        self._callbacks = callbacks

    def before_run(self) -> None:
        for each in self._callbacks:
            each.before_run()

    def after_run(self) -> None:
        for each in self._callbacks:
            each.after_run()

    def before_epoch(self, epoch: int) -> None:
        for each in self._callbacks:
            each.before_epoch(epoch)

    def after_epoch(self, epoch: int, stats: Mapping[str, Any]) -> None:
        for each in self._callbacks:
            each.after_epoch(epoch, stats)

    def before_step(self, step: int) -> None:
        for each in self._callbacks:
            each.before_step(step)

    def after_step(self, step: int, loss: float) -> None:
        for each in self._callbacks:
            each.after_step(step, loss)


def callbacks_of(given: Iterable[Any], run: Run) -> Callback:
    """Make one callback of those that a user gave."""
    found = list(given)
    for each in found:
        if not isinstance(each, Callback):
            raise PlanError(f"{each!r} is no callback; derive it from shoal.learn.Callback")
        each.run = run
    return _All(found)
