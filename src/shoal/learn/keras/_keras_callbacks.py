"""Callbacks of Keras in a training of several workers: each has them all, with its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np

from shoal.errors import PlanError
from shoal.learn._callbacks import Callback
from shoal.learn.keras._keras_choice import library_of

__all__ = ["KerasCallbacks", "is_keras_callback"]

#: Those that write files, which is the business of the first worker.
_WRITERS = {"CSVLogger", "ModelCheckpoint", "RemoteMonitor", "TensorBoard"}
#: What an epoch is told of that is no metric.
_PLAIN = {"batch_count", "epoch", "last_train_loss", "num_samples", "train_loss", "val_num_samples"}


def is_keras_callback(given: Any) -> bool:
    """Tell whether something is a callback of Keras, of one or the other."""
    return any(
        kind.__name__ == "Callback" and kind.__module__.partition(".")[0] in ("keras", "tf_keras")
        for kind in type(given).__mro__
    )


class KerasCallbacks(Callback):
    """Calls them at the moments that Keras has: epochs count from 0, on over several trainings."""

    def __init__(self, given: Sequence[Any], epochs: int = 1) -> None:
        for each in given:
            if type(each).__name__ == "BackupAndRestore":
                raise PlanError("BackupAndRestore is not needed: give model_dir=, and fit(resume=True) goes on")
        self._sent, self._epochs = cloudpickle.dumps(list(given)), epochs  # opened when it is sure which Keras there is
        self._batch, self._begun = 0, -1
        self._states: Mapping[str, Any] = {}

    def before_run(self) -> None:
        """Training begins."""
        self._open()
        self._model.stop_training = False
        self._list.on_train_begin()
        for number, state in self._states.items():
            for name, value in state.items():
                setattr(self._given[int(number)], name, value)

    def after_run(self) -> None:
        """Training has ended."""
        self._list.on_train_end()

    def before_epoch(self, epoch: int) -> None:
        """An epoch begins, or goes on after a restart: those who saw it begin do not see it twice."""
        if epoch == self._begun:
            return
        self._batch, self._begun = 0, epoch
        self._list.on_epoch_begin(epoch - 1)

    def after_epoch(self, epoch: int, stats: Mapping[str, Any]) -> None:
        """An epoch has ended."""
        self._list.on_epoch_end(epoch - 1, _logs(stats))
        self._look()

    def before_step(self, step: int) -> None:
        """A step begins."""
        self._list.on_train_batch_begin(self._batch)

    def after_step(self, step: int, loss: float) -> None:
        """A step has ended."""
        framework: Any = self.run.framework
        self._list.on_train_batch_end(self._batch, {**framework.logs, "loss": loss})
        self._batch += 1
        self._look()

    def before_validation(self) -> None:
        """The model is about to be evaluated."""
        self._open()
        self._list.on_test_begin()

    def after_validation(self, stats: Mapping[str, Any]) -> None:
        """The model was evaluated."""
        self._list.on_test_end(_logs({name.removeprefix("val_"): value for name, value in stats.items()}))

    def state_dict(self) -> dict[str, Any]:
        """Say how far the epoch is that was begun, and what callbacks remember: numbers and texts."""
        states = {str(number): _remembered(each) for number, each in enumerate(self._given)}
        return {"begun": self._begun, "batch": self._batch, "states": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there; what callbacks remember is told them when training begins, where they forget all."""
        self._begun, self._batch, self._states = state["begun"], state["batch"], state["states"]

    def _open(self) -> None:
        if hasattr(self, "_list"):
            return
        framework: Any = self.run.framework
        self._model, self._given = framework.model, cloudpickle.loads(self._sent)
        found = [each for each in self._given if self.run.rank == 0 or not _writes(each)]
        self._list = library_of(self._model).callbacks.CallbackList(
            found, model=self._model, add_history=False, add_progbar=False, epochs=self._epochs, verbose=0, steps=None
        )

    def _look(self) -> None:
        if self._model.stop_training and not self.run.stopped:
            self.run.stop("a callback of Keras has ended it")


def _writes(callback: Any) -> bool:
    return any(kind.__name__ in _WRITERS for kind in type(callback).__mro__)


def _logs(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Name numbers as Keras does."""
    found = {"loss": stats["train_loss"]} if "train_loss" in stats else {}
    plain = {name: value for name, value in stats.items() if name not in _PLAIN}
    return {**found, **{name.removeprefix("train_"): value for name, value in plain.items()}}


def _remembered(callback: Any) -> dict[str, Any]:
    """Give the numbers and texts that a callback has."""
    found = {name: value.item() if isinstance(value, np.generic) else value for name, value in vars(callback).items()}
    return {name: value for name, value in found.items() if value is None or isinstance(value, int | float | str)}
