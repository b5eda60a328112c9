"""One way to train, evaluate and predict, whatever the framework, the data and the engine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from functools import partial
from typing import Any

from shoal.abc import Engine, Framework
from shoal.engines import current, native
from shoal.errors import PlanError
from shoal.learn import _training
from shoal.learn._checkpoints import Checkpoint, Checkpoints, latest_checkpoint
from shoal.learn._data import Ask, Prepared, prepared
from shoal.learn._events import read_scalars
from shoal.learn._history import History
from shoal.learn._job import EvaluateJob, FitJob
from shoal.learn._predicting import Predictor, predicted
from shoal.learn._progress import shown
from shoal.learn._tensorboard import TensorBoard
from shoal.learn._triggers import EveryEpoch, Trigger, trigger_of
from shoal.learn._watch import watched
from shoal.learn.metrics import metric_of

__all__ = ["BaseEstimator"]

#: Where workers are, by the name of a backend; None is wherever the current engine has them.
_ENGINES = {None: None, "torch_distributed": None, "ray": "ray", "spark": "spark", "bigdl": "spark", "dask": "dask"}
_BATCH = 32


class BaseEstimator:
    """A model that several workers train together, and that predicts wherever data is."""

    def __init__(
        self,
        framework: Framework,
        *,
        metrics: Any = None,
        backend: str | None = None,
        workers: int | None = None,
        model_dir: str | None = None,
        restarts: int = 3,
        seed: int = 0,
    ) -> None:
        if backend not in _ENGINES:
            known = ", ".join(repr(name) for name in _ENGINES if name)
            raise PlanError(f"there is no backend {backend!r}; known are {known}, and None for the current engine")
        self._framework, self._backend, self._workers = framework, backend, workers
        several = metrics if isinstance(metrics, list | tuple) else [] if metrics is None else [metrics]
        self._metrics = [metric_of(each) for each in several]
        self._model_dir, self._restarts, self._seed = model_dir, restarts, seed
        self._epoch = self._step = 0
        self._curves = None if model_dir is None else f"{model_dir}/curves"

    def fit(
        self,
        data: Any,
        epochs: int = 1,
        batch_size: int | None = None,
        *,
        feature_cols: Sequence[str] | None = None,
        label_cols: Sequence[str] | None = None,
        validation_data: Any = None,
        checkpoint_trigger: Trigger | str | int | None = None,
        callbacks: Sequence[Any] = (),
        max_steps: int | None = None,
        end: str = "pad",
        shuffle: bool = True,
        accumulate: int = 1,
        resume: bool | str = False,
        hang_seconds: float = 600.0,
        progress: bool | None = None,
        labels_cols: Sequence[str] | None = None,
        **loader: Any,
    ) -> History:
        """Train for some epochs, and give what came of each.

        ``batch_size`` counts the rows of a step on all workers. ``epochs`` are those to run now, ``max_steps`` ends
        earlier. Options that are not named here are those of `Dataset.loader`.

        With ``resume`` a training that was ended in the middle goes on where its last checkpoint is, or that of a path,
        with as many workers as there are now; give it what was given before.
        """
        self._check(epochs, batch_size)
        labels = label_cols if labels_cols is None else labels_cols
        given = self._prepared(data, feature_cols, labels, batch_size, seed=self._seed if shuffle else None)
        held = [given]
        try:
            if validation_data is not None:
                held.append(self._prepared(validation_data, feature_cols, labels, batch_size, seed=None))
            trigger = trigger_of(checkpoint_trigger)
            found = self._found(resume)
            if found is not None:
                self._epoch = found.info["began"]
            job = FitJob(
                self._framework,
                given.rows,
                batch_size or _BATCH,
                self._epoch + epochs,
                self._epoch,
                None if max_steps is None else self._step + max_steps,
                self._step,
                accumulate,
                end,
                held[1].rows if validation_data is not None else None,
                deepcopy(self._metrics),
                [*callbacks, *([] if self._curves is None else [TensorBoard(self._curves)])],
                None if self._model_dir is None else Checkpoints(f"{self._model_dir}/{_run_name()}"),
                trigger or (EveryEpoch() if self._model_dir is not None else None),
                None if found is None else found.url,
                loader,
            )
            done = self._together(partial(_training.fit, job=job), progress, hang_seconds)
        finally:
            for each in held:
                each.release()
        self._framework = copy(self._framework)
        self._framework.files = done["files"]
        self._epoch, self._step = done["epoch"], done["step"]
        return History(done["history"])

    def evaluate(
        self,
        data: Any,
        batch_size: int | None = None,
        *,
        feature_cols: Sequence[str] | None = None,
        label_cols: Sequence[str] | None = None,
        num_steps: int | None = None,
    ) -> dict[str, Any]:
        """Say how good the model is: ``num_samples``, ``val_loss``, and each metric by its name."""
        self._check(1, batch_size)
        given = self._prepared(data, feature_cols, label_cols, batch_size, seed=None)
        try:
            job = EvaluateJob(self._framework, given.rows, batch_size or _BATCH, deepcopy(self._metrics), num_steps)
            found: dict[str, Any] = self._together(partial(_training.evaluate, job=job), False, math.inf)
        finally:
            given.release()
        return found

    def predict(
        self,
        data: Any,
        batch_size: int = _BATCH,
        *,
        feature_cols: Sequence[str] | None = None,
        output_cols: Sequence[str] | None = None,
    ) -> Any:
        """Predict, and give what was given with the predictions in it; arrays give arrays.

        Shards stay shards, a `Dataset` a `Dataset`, which predicts when it is read, and collections of Spark, Dask and
        Ray are what they were.
        """
        predictor = Predictor(self._framework, batch_size, feature_cols, output_cols)
        return self._predicted(data, predictor)

    def set_tensorboard(self, log_dir: str, app_name: str) -> None:
        """Write training curves into a folder that TensorBoard shows."""
        self._curves = f"{log_dir.rstrip('/')}/{app_name}"

    def get_train_summary(self, tag: str = "Loss") -> list[tuple[int, float]] | None:
        """Give a curve of training, ``Loss``, ``Throughput`` or ``LearningRate``, as pairs of step and value.

        There is one after a training with ``model_dir`` or `set_tensorboard`; None else.
        """
        return None if self._curves is None else read_scalars(f"{self._curves}/train", tag) or None

    def get_validation_summary(self, tag: str = "Loss") -> list[tuple[int, float]] | None:
        """Give a curve of validation: ``Loss``, or a metric by its name; see `get_train_summary`."""
        return None if self._curves is None else read_scalars(f"{self._curves}/validation", tag) or None

    def shutdown(self) -> None:
        """Let go of everything; workers end with each call anyway."""

    def _predicted(self, data: Any, predictor: Predictor) -> Any:
        return predicted(data, predictor)

    def _prepared(self, data: Any, features: Any, labels: Any, batch_size: int | None, *, seed: int | None) -> Prepared:
        return prepared(data, Ask(features, labels, shuffle=seed, workers=self._size()))

    def latest_checkpoint(self) -> str | None:
        """Name the last complete checkpoint in ``model_dir``."""
        found = None if self._model_dir is None else latest_checkpoint(self._model_dir)
        return None if found is None else found.url

    def _found(self, resume: bool | str) -> Checkpoint | None:
        if resume is False:
            return None
        if isinstance(resume, str):
            return Checkpoint.read(resume)
        if self._model_dir is None:
            raise PlanError("resume=True looks for a checkpoint in model_dir, and there is none; give the path of one")
        return latest_checkpoint(self._model_dir)

    def _together(self, function: Callable[[Any], Any], progress: bool | None, hang: float) -> Any:
        """Let all workers do something, and give what the first of them returns."""
        engine, size = self._engine(), self._size()
        with engine.gang(function, size, restarts=self._restarts) as gang:
            shown(watched(gang, size, hang) if hang < math.inf else gang.reports(), progress)
            return gang.results()[0]

    def _size(self) -> int:
        """Say how many workers there are."""
        return self._workers or max(int(sum(worker.cpus for worker in self._engine().describe().workers)), 1)

    def _engine(self) -> Engine:
        name = _ENGINES[self._backend]
        return current() if name is None else native(name)

    def _check(self, epochs: int, batch_size: int | None) -> None:
        if epochs < 0:
            raise PlanError(f"epochs={epochs} must not be negative")
        if batch_size is not None and batch_size < 1:
            raise PlanError(f"batch_size={batch_size}; batch_size should be greater than 0")


def _run_name() -> str:
    return time.strftime("%Y-%m-%d_%H-%M-%S")
