"""Training curves for TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from shoal.errors import PlanError
from shoal.learn._callbacks import Callback
from shoal.learn._events import EventWriter

__all__ = ["TensorBoard"]

#: What an epoch tells that is no curve.
_NO_CURVES = {"epoch", "num_samples", "batch_count", "val_num_samples", "train_loss", "last_train_loss"}


class TensorBoard(Callback):
    """Writes curves: ``Loss``, ``Throughput`` and ``LearningRate`` of steps to ``train``, metrics to ``validation``.

    ``freq`` is after how many steps a point is written, or ``"epoch"``.

    >>> TensorBoard("curves", freq="sometimes")
    Traceback (most recent call last):
        ...
    shoal.errors.PlanError: ...
    """

    def __init__(self, log_dir: str, freq: int | str = 1) -> None:
        if freq != "epoch" and (not isinstance(freq, int) or freq < 1):
            raise PlanError(f"freq={freq!r}; it is a number of steps, or epoch")
        self._folder, self._freq = log_dir.rstrip("/"), freq
        self._writers: dict[str, EventWriter] = {}
        self._rows, self._since, self._step = 0, 0.0, 0

    def before_run(self) -> None:
        """Begin the files; one worker writes for all."""
        if self.run.rank == 0:
            self._writers["train"] = EventWriter(f"{self._folder}/train")
        self._since = time.monotonic()

    def after_step(self, step: int, loss: float) -> None:
        """Write the points of a step."""
        self._step = step
        if not self._writers or self._freq == "epoch" or step % int(self._freq):
            return
        self._write("train", step, {"Loss": loss, **self._pace(step)})

    def after_epoch(self, epoch: int, stats: Mapping[str, Any]) -> None:
        """Write the points of an epoch."""
        if not self._writers:
            return
        if self._freq == "epoch":
            self._write("train", self._step, {"Loss": stats["train_loss"], **self._pace(self._step)})
        found = {name.removeprefix("val_"): value for name, value in stats.items() if name not in _NO_CURVES}
        if found:
            if "validation" not in self._writers:
                self._writers["validation"] = EventWriter(f"{self._folder}/validation")
            self._write("validation", self._step, {"Loss" if name == "loss" else name: v for name, v in found.items()})

    def after_run(self) -> None:
        """End the files."""
        for writer in self._writers.values():
            writer.close()

    def _pace(self, step: int) -> dict[str, float]:
        """Say how fast it goes, in rows of all workers, and how fast it learns."""
        now, rows = time.monotonic(), self.run.rows
        rate = (rows - self._rows) / max(now - self._since, 1e-9)
        self._rows, self._since = rows, now
        learning = getattr(self.run.framework, "learning_rate", None)
        return {"Throughput": rate, **({} if learning is None else {"LearningRate": learning})}

    def _write(self, name: str, step: int, numbers: Mapping[str, float]) -> None:
        for tag, value in numbers.items():
            self._writers[name].add(tag, step, float(value))
