"""One way to train, evaluate and predict, whatever the framework, the data and the engine."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from copy import copy, deepcopy
from functools import partial
from typing import Any

from shoal.abc import Engine, Framework, Resources
from shoal.engines import current, native
from shoal.errors import PlanError, StateError
from shoal.files import local_path
from shoal.learn import _evaluating, _saving, _training
from shoal.learn._callbacks import Callback, checked
from shoal.learn._checkpoints import Checkpoint, Checkpoints, absolute, latest_checkpoint, new_run
from shoal.learn._data import Ask, Prepared, prepared
from shoal.learn._events import read_scalars
from shoal.learn._feeding import Feeders, fed
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
_ENGINES = {
    None: None, "torch_distributed": None, "horovod": None,
    "ray": "ray", "spark": "spark", "bigdl": "spark", "dask": "dask",
}  # fmt: skip
_BATCH = 32
#: What every worker imports, beside what its framework names.
_MODULES = ("shoal.learn._training", "shoal.learn._data", "shoal.engines.local")


class BaseEstimator:
    """A model that several workers train together, and that predicts wherever data is.

    >>> from shoal.learn.pytorch import Estimator
    >>> issubclass(Estimator, BaseEstimator)
    True
    """

    def __init__(
        self,
        framework: Framework,
        *,
        metrics: Any = None,
        backend: str | None = None,
        workers: int | None = None,
        model_dir: str | None = None,
        keep_checkpoints: int = 3,
        restarts: int = 3,
        seed: int = 0,
    ) -> None:
        if backend not in _ENGINES:
            known = ", ".join(repr(name) for name in _ENGINES if name)
            raise PlanError(f"there is no backend {backend!r}; known are {known}, and None for the current engine")
        self._framework, self._backend, self._workers = framework, backend, workers
        self._metrics = [] if metrics is None else _metrics_of(metrics)
        if keep_checkpoints < 1:
            raise PlanError(f"keep_checkpoints={keep_checkpoints}; at least the last one has to stay")
        self._model_dir = None if model_dir is None else absolute(model_dir)  # workers may be in other folders
        self._keep, self._restarts, self._seed = keep_checkpoints, restarts, seed
        self._epoch = self._step = 0
        self._own: list[dict[str, bytes]] = []
        home = None if model_dir is None else local_path(model_dir)  # TensorBoard's files grow, which no bucket knows
        self._curves = None if home is None else f"{absolute(home)}/curves"

    def fit(
        self,
        data: Any,
        epochs: int = 1,
        batch_size: int | None = None,
        *,
        feature_cols: Sequence[str] | None = None,
        label_cols: Sequence[str] | None = None,
        validation_data: Any = None,
        validation_freq: int = 1,
        validation_steps: int | None = None,
        checkpoint_trigger: Trigger | str | int | None = None,
        callbacks: Sequence[Any] = (),
        max_steps: int | None = None,
        end: str = "pad",
        shuffle: bool = True,
        accumulate: int = 1,
        resume: bool | str = False,
        hang_seconds: float = 600.0,
        progress: bool | None = None,
        reduce_results: bool = True,
        labels_cols: Sequence[str] | None = None,
        feeders: Feeders | None = None,
        **loader: Any,
    ) -> History:
        """Train for some epochs, and give what came of each.

        ``batch_size`` counts the rows of a step on all workers. ``epochs`` are those to run now, ``max_steps`` ends
        earlier. There is a validation after every ``validation_freq`` epochs, of all rows or ``validation_steps``
        batches. Options that are not named here are those of `Dataset.loader`.

        With ``resume`` a training that was ended in the middle goes on where its last checkpoint is, or that of a path,
        with as many workers as there are now; give it what was given before.

        ``progress`` shows how it goes: None on a terminal only, True anywhere. With ``reduce_results=False`` there is
        a list for each epoch, with the numbers of each worker; those of validation are always those of all.

        With ``feeders`` others prepare the batches: so many workers of the engine that are started for it, as many as
        are needed between two numbers, those of a `shoal.feed.Deployment`, or those at some addresses.
        """
        self._check(epochs, batch_size)
        framework, listening = self._listening(callbacks)
        labels = label_cols if labels_cols is None else labels_cols
        given = self._prepared(data, feature_cols, labels, batch_size, seed=self._seed if shuffle else None)
        held = [given]
        try:
            if feeders is not None:
                held[0], loader = fed(given, feeders, self._engine(), loader)
            if validation_data is not None:
                held.append(self._prepared(validation_data, feature_cols, labels, batch_size, seed=None))
            trigger = trigger_of(checkpoint_trigger)
            found = self._found(resume)
            if found is not None:
                self._epoch = found.info["began"]
            job = FitJob(
                framework,
                held[0].rows,
                batch_size or _BATCH,
                epochs=self._epoch + epochs,
                first_epoch=self._epoch,
                max_steps=None if max_steps is None else self._step + max_steps,
                first_step=self._step,
                accumulate=accumulate,
                end=end,
                validation=held[1].rows if validation_data is not None else None,
                validation_freq=validation_freq,
                validation_steps=validation_steps,
                metrics=deepcopy(self._metrics),
                callbacks=[*listening, *([] if self._curves is None else [TensorBoard(self._curves)])],
                checkpoints=None if self._model_dir is None else Checkpoints(new_run(self._model_dir), self._keep),
                trigger=trigger or (EveryEpoch() if self._model_dir is not None else None),
                resume=None if found is None else found.url,
                loader=loader,
                seed=self._seed,
                own=self._own,
                each_worker=not reduce_results,
            )
            results = self._together(partial(_training.fit, job=job), progress, hang_seconds)
        finally:
            for each in held:
                each.release()
        done, self._own = results[0], [each["own"] for each in results]
        self._framework = copy(self._framework)
        self._framework.files = done["files"]
        self._epoch, self._step = done["epoch"], done["step"]
        return History.of(done["history"], each_worker=not reduce_results)

    def evaluate(
        self,
        data: Any,
        batch_size: int | None = None,
        *,
        feature_cols: Sequence[str] | None = None,
        label_cols: Sequence[str] | None = None,
        num_steps: int | None = None,
        callbacks: Sequence[Any] = (),
        validation_metrics: Any = None,
        labels_cols: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Say how good the model is: ``num_samples``, ``val_loss``, and each metric by its name.

        With ``validation_metrics`` it is these metrics, in place of the estimator's own.
        """
        self._check(1, batch_size)
        framework, listening = self._listening(callbacks)
        metrics = deepcopy(self._metrics) if validation_metrics is None else _metrics_of(validation_metrics)
        if not metrics and not getattr(framework, "measures", True):
            raise PlanError("an evaluation without a loss needs metrics; give metrics= to the estimator")
        labels = label_cols if labels_cols is None else labels_cols
        given = self._prepared(data, feature_cols, labels, batch_size, seed=None)
        try:
            job = EvaluateJob(framework, given.rows, batch_size or _BATCH, metrics, num_steps, listening)
            found: dict[str, Any] = self._together(partial(_evaluating.evaluate, job=job), False, math.inf)[0]
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
        callbacks: Sequence[Any] = (),
    ) -> Any:
        """Predict, and give what was given with the predictions in it; arrays give arrays.

        Shards stay shards, a `Dataset` a `Dataset`, which predicts when it is read, and collections of Spark, Dask and
        Ray are what they were.
        """
        framework, listening = self._listening(callbacks)
        for each in listening:
            if each is not getattr(framework, "main", None):
                raise PlanError(f"{type(each).__name__} is called while a model learns; predict has no use for it")
        predictor = Predictor(framework, batch_size, feature_cols, output_cols)
        return self._predicted(data, predictor)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write what was learnt into one file, at any URL: model and optimizer."""
        if not self._framework.files:
            self._framework.build()
        files = self._framework.files or self._framework.dump()
        info = {"epoch": self._epoch, "step": self._step}
        return _saving.write(self._framework, files, info, os.fspath(path))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Take what `save` wrote, or `ModelCheckpoint`, or a checkpoint of a training."""
        files, info = _saving.read(self._framework, os.fspath(path))
        self._framework = copy(self._framework)
        self._framework.files = files
        self._own = []
        self._epoch, self._step = int(info.get("epoch", self._epoch)), int(info.get("step", self._step))

    def load_orca_checkpoint(
        self, path: str | os.PathLike[str], version: int | None = None, prefix: str | None = None
    ) -> None:
        """Take the last checkpoint in a folder of trainings, or the one after ``version`` steps.

        What was learnt is there, and a training counts on from it. Model and optimizer are one checkpoint here, so
        that ``prefix``, the name of the optimizer's files elsewhere, is not needed.
        """
        folder = os.fspath(path)
        found = latest_checkpoint(folder, version)
        if found is None:
            which = "no complete checkpoint" if version is None else f"no complete checkpoint of step {version}"
            raise StateError(f"there is {which} in {folder}; fit writes them into model_dir")
        self.load(found.url)

    def latest_checkpoint(
        self: BaseEstimator | str | os.PathLike[str], folder: str | os.PathLike[str] | None = None
    ) -> str | None:
        """Name the last complete checkpoint in ``model_dir``, or in a folder; `load` takes it.

        In a folder it is the newest file of `ModelCheckpoint`; without any, it is that of a training.
        ``Estimator.latest_checkpoint(folder)`` needs no estimator.
        """
        where = folder if isinstance(self, BaseEstimator) else self
        if where is not None:
            return _saving.newest_file(os.fspath(where)) or _url(latest_checkpoint(os.fspath(where)))
        assert isinstance(self, BaseEstimator)
        return None if self._model_dir is None else _url(latest_checkpoint(self._model_dir))

    def set_tensorboard(self, log_dir: str, app_name: str) -> None:
        """Write training curves into a folder of this machine, or of one that workers share, that TensorBoard shows."""
        folder = local_path(log_dir)
        if folder is None:
            raise PlanError(f"curves are written to files that grow, which {log_dir} cannot hold; give a local folder")
        self._curves = f"{absolute(folder)}/{app_name}"

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

    def _listening(self, callbacks: Sequence[Any]) -> tuple[Framework, list[Callback]]:
        """Give the framework and what is called besides; some callbacks are for the framework to know of."""
        return self._framework, checked(callbacks)

    def _found(self, resume: bool | str) -> Checkpoint | None:
        if resume is False:
            return None
        if isinstance(resume, str):
            return Checkpoint.read(resume)
        if self._model_dir is None:
            raise PlanError("resume=True looks for a checkpoint in model_dir, and there is none; give the path of one")
        return latest_checkpoint(self._model_dir)

    def _together(self, function: Callable[[Any], Any], progress: bool | None, hang: float) -> list[Any]:
        """Let all workers do something, and give what they return."""
        engine, size = self._engine(), self._size()
        with engine.gang(function, size, resources=self._resources(), restarts=self._restarts) as gang:
            shown(self._heard(watched(gang, size, hang) if hang < math.inf else gang.reports()), progress)
            return gang.results()

    def _heard(self, reports: Iterable[tuple[int, Any]]) -> Iterable[tuple[int, Any]]:
        """Hear what workers tell, each with its rank, and pass it on."""
        return reports

    def _resources(self) -> Resources:
        own = self._framework.modules
        return Resources(modules=own and (*_MODULES, *own))

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


def _metrics_of(given: Any) -> list[Any]:
    """Make metrics of one, or of several in a list; the estimator's are not these, for they count."""
    return [metric_of(deepcopy(each)) for each in (given if isinstance(given, list | tuple) else [given])]


def _url(found: Checkpoint | None) -> str | None:
    return None if found is None else found.url
