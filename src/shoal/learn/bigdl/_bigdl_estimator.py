"""The estimator for BigDL."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy, deepcopy
from typing import Any

from shoal.environments import StandIn, find
from shoal.errors import PlanError, StateError, WorkerDiedError
from shoal.learn import _saving
from shoal.learn._callbacks import Callbacks, Run
from shoal.learn._checkpoints import Checkpoints, new_run
from shoal.learn._data import FOREIGN, check_columns, package_of
from shoal.learn._estimator import BaseEstimator
from shoal.learn._evaluating import validated
from shoal.learn._explaining import explained
from shoal.learn._history import History
from shoal.learn._job import FitJob, Rows
from shoal.learn._predicting import Predictor
from shoal.learn._progress import shown
from shoal.learn._tensorboard import TensorBoard
from shoal.learn._triggers import EveryEpoch, Trigger, trigger_of
from shoal.learn.bigdl._bigdl_data import FEATURES, LABELS, bigdl_predicted, bigdl_prepared, chunks, columns_of
from shoal.learn.bigdl._bigdl_framework import BigDLFramework
from shoal.learn.bigdl._bigdl_model import BigDLModel
from shoal.learn.bigdl._bigdl_session import Session
from shoal.learn.bigdl._bigdl_training import BigDLTraining
from shoal.learn.metrics import Metric

__all__ = ["Estimator"]

#: Batches of a prediction that are sent to the guest at a time.
_SENT = 64


class Estimator(BaseEstimator):
    """A model of BigDL, which BigDL's own optimizer trains on a Spark of its own.

    Model, loss and optimizer are written with `shoal.learn.bigdl.nn`, `.optim` and `.keras`, or made by functions. The
    environment ``bigdl`` has to be there: ``shoal env create bigdl`` builds it.

    >>> from shoal.learn.bigdl.nn.criterion import MSECriterion
    >>> from shoal.learn.bigdl.nn.layer import Linear, Sequential
    >>> estimator = Estimator.from_bigdl(model=Sequential().add(Linear(2, 2)), loss=MSECriterion(), cores=2)
    >>> estimator.set_l2_norm_gradient_clipping(1.0)  # Java starts with the first call that needs it
    >>> estimator.shutdown()
    """

    _framework: BigDLFramework
    _has_own_session = True

    @classmethod
    def from_bigdl(
        cls,
        *,
        model: Any,
        loss: Any = None,
        optimizer: Any = None,
        metrics: Any = None,
        feature_preprocessing: Any = None,
        label_preprocessing: Any = None,
        config: Mapping[str, Any] | None = None,
        model_dir: str | None = None,
        keep_checkpoints: int = 3,
        cores: int | None = None,
        memory: str = "2g",
        session: Session | None = None,
        seed: int = 0,
    ) -> Estimator:
        """Make an estimator of a model, or of a function that makes one, of a config if it takes an argument.

        Without an optimizer it is BigDL's SGD. ``feature_preprocessing`` and ``label_preprocessing`` say what becomes
        of the numbers of a row: a size, such as ``[28, 28]``, several, such as ``[[1], [2, 2]]``, which are several
        inputs, or a preprocessing of BigDL (`shoal.learn.bigdl.feature.common`). ``cores`` and ``memory`` are those of
        its `Session`; estimators may share a ``session``.
        """
        for name, part in (("model", model), ("loss", loss), ("optimizer", optimizer)):
            if part is not None and not isinstance(part, StandIn) and not callable(part):
                text = f"{name}= is a {type(part).__name__}; write it with shoal.learn.bigdl.nn or .optim"
                raise PlanError(f"{text}, or give a function that makes it")
        parts = {
            "model": model,
            "loss": loss,
            "optimizer": optimizer,
            "features": feature_preprocessing,
            "labels": label_preprocessing,
            "config": dict(config or {}),
        }
        find("bigdl")  # who lacks it hears so now
        framework = BigDLFramework(parts, seed, session or Session(cores=cores, memory=memory))
        given = {"metrics": _checked(metrics), "model_dir": model_dir, "keep_checkpoints": keep_checkpoints}
        made = cls(framework, **given, seed=seed)
        made._has_own_session = session is None
        return made

    def fit(  # type: ignore[override]  # in the order that users of BigDL know
        self,
        data: Any,
        epochs: int = 1,
        batch_size: int = 32,
        feature_cols: str | Sequence[str] | None = FEATURES,
        label_cols: str | Sequence[str] | None = LABELS,
        caching_sample: bool = True,
        validation_data: Any = None,
        validation_trigger: Trigger | str | int | None = None,
        checkpoint_trigger: Trigger | str | int | None = None,
        *,
        callbacks: Sequence[Any] = (),
        max_steps: int | None = None,
        shuffle: bool = True,
        resume: bool | str = False,
        progress: bool | None = None,
    ) -> History:
        """Train for some epochs, and give what came of each.

        ``batch_size`` counts the rows of a step on all cores, and is a multiple of these; where rows do not fill the
        last step of an epoch, its first ones do. Several columns are one input, or one target. There is a validation
        after every epoch, or when ``validation_trigger`` says so; so for checkpoints with ``model_dir``. Rows are kept
        in memory, whatever ``caching_sample`` says.

        With ``resume`` a training that was ended in the middle goes on where its last checkpoint is, or that of a path.
        """
        self._check(epochs, batch_size)
        if not self._framework.measures:
            raise PlanError("a training needs a loss; give loss= to the estimator, such as MSECriterion()")
        framework, listening = self._listening(callbacks)
        self._ready(batch_size)
        found = self._found(resume)
        if found is not None:
            self._epoch = found.info["began"]
        curves = [] if self._curves is None else [TensorBoard(self._curves)]
        held = [bigdl_prepared(data, feature_cols, label_cols)]
        try:
            rows = self._sent(held[0].rows)
            if validation_data is not None:
                held.append(bigdl_prepared(validation_data, feature_cols, label_cols))
            job = FitJob(
                framework,
                held[0].rows,
                batch_size,
                epochs=self._epoch + epochs,
                first_epoch=self._epoch,
                max_steps=None if max_steps is None else self._step + max_steps,
                first_step=self._step,
                validation=held[1].rows if validation_data is not None else None,
                metrics=deepcopy(self._metrics),
                callbacks=[*listening, *curves],
                checkpoints=None if self._model_dir is None else Checkpoints(new_run(self._model_dir), self._keep),
                trigger=trigger_of(checkpoint_trigger) or (EveryEpoch() if self._model_dir is not None else None),
                resume=None if found is None else found.url,
                seed=self._seed,
            )
            training = BigDLTraining(job, rows, shuffle, trigger_of(validation_trigger))
            shown(training.reports(), progress)
            self._framework.learnt(self._framework.dump(), here=True)
        finally:
            for curve in curves:
                curve.after_run()  # also of a training that has failed: its files are this process's
            for each in held:
                each.release()
            with suppress(WorkerDiedError):  # then there is nothing to release, and an error on its way
                self._framework.release()
        self._epoch, self._step = training.epoch, training.step
        return training.history

    def evaluate(  # type: ignore[override]
        self,
        data: Any,
        batch_size: int = 32,
        feature_cols: str | Sequence[str] | None = FEATURES,
        label_cols: str | Sequence[str] | None = LABELS,
        *,
        callbacks: Sequence[Any] = (),
        validation_metrics: Any = None,
    ) -> dict[str, Any]:
        """Say how good the model is: ``num_samples``, ``val_loss``, and each metric by its name."""
        self._check(1, batch_size)
        framework, listening = self._listening(callbacks)
        given = self._metrics if validation_metrics is None else _checked(validation_metrics)
        if not given and not self._framework.measures:
            raise PlanError("an evaluation without a loss needs metrics; give metrics= to the estimator")
        self._ready()
        held = bigdl_prepared(data, feature_cols, label_cols)
        try:
            loader = held.rows.loader(batch_size, 0, 1, "numpy")
            metrics = [each() if isinstance(each, type) else deepcopy(each) for each in given]
            return validated(framework, held.rows, loader, metrics, Callbacks(listening, Run(0, 1, 0, framework)))
        finally:
            held.release()

    def predict(
        self,
        data: Any,
        batch_size: int = 4,
        feature_cols: str | Sequence[str] | None = FEATURES,
        *,
        output_cols: Sequence[str] | None = None,
        callbacks: Sequence[Any] = (),
    ) -> Any:
        """Predict, before a training as well as after it, and give what was given with the predictions in it.

        Rows go to the guest of this estimator, 64 times ``batch_size`` of them at a time; a `Dataset` predicts when it
        is read.
        """
        self._check(1, batch_size)
        self._listening(callbacks)
        names = columns_of(data, feature_cols, FEATURES)
        if package_of(data) in FOREIGN:
            check_columns(names, None, labelled=False)
        self._ready()
        framework = copy(self._framework)
        framework.joins = names is not None
        return self._predicted(data, Predictor(framework, batch_size * _SENT, names, output_cols))

    def get_model(self) -> BigDLModel:
        """Give the layers and weights of the model as it is now; the model itself stays where BigDL is."""
        return BigDLModel(*self._framework.seen())

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write what was learnt into one file, at any URL: a zip of the model as BigDL writes it, and the optimizer."""
        self._ready()
        return super().save(path)

    def load(self, path: str | os.PathLike[str], is_checkpoint: bool = False) -> None:
        """Take what `save` wrote, or a checkpoint; with ``is_checkpoint`` the last one in a folder of trainings."""
        if is_checkpoint:
            self.load_orca_checkpoint(path)
            return
        files, info = _saving.read(self._framework, os.fspath(path))
        if "model.bigdl" not in files:
            raise StateError(f"{os.fspath(path)} has no model of BigDL; it is of another framework")
        self._framework.learnt(files, here=False)
        self._epoch, self._step = int(info.get("epoch", self._epoch)), int(info.get("step", self._step))

    def set_constant_gradient_clipping(self, min: float, max: float) -> None:
        """Cut gradients off at these values, from the next training on."""
        if min >= max:
            raise PlanError(f"gradients cannot be cut off at {min} and {max}: the first has to be smaller")
        self._framework.clipped("constant", float(min), float(max))

    def set_l2_norm_gradient_clipping(self, clip_norm: float) -> None:
        """Shorten gradients, all together, to a length, from the next training on."""
        if clip_norm <= 0:
            raise PlanError(f"gradients cannot be shortened to {clip_norm}")
        self._framework.clipped("l2_norm", float(clip_norm))

    def clear_gradient_clipping(self) -> None:
        """Leave gradients as they are."""
        self._framework.clipped("")

    def shutdown(self) -> None:
        """End the process of BigDL, unless others share it; the next call starts another one, with the same model."""
        if self._has_own_session:
            self._framework.session.close()

    def _predicted(self, data: Any, predictor: Predictor) -> Any:
        return bigdl_predicted(data, predictor)

    def _ready(self, batch_size: int | None = None) -> None:
        """Have a guest with the model."""
        cores = self._framework.session.cores if batch_size is not None else 1
        if batch_size is not None and batch_size % cores:
            near = max(batch_size // cores, 1) * cores
            text = f"batch_size={batch_size} cannot be shared out among the {cores} cores of BigDL"
            raise PlanError(f"{text}; give a multiple of {cores}, such as {near}, or cores=1 to the estimator")
        self._framework.build()

    def _sent(self, rows: Rows) -> int:
        """Give rows to the guest, and count them; the first are tried out."""
        count = 0
        for features, labels in chunks(rows):
            if not count:
                with explained(features, labels):
                    self._framework.evaluate([each[:2] for each in features], [each[:2] for each in labels])
            count = self._framework.hold(features, labels, not count)
        if not count:
            raise PlanError("there is no row to learn from")
        return count


def _checked(given: Any) -> Any:
    """Refuse what is no metric of Shoal."""
    for each in given if isinstance(given, list | tuple) else [] if given is None else [given]:
        if not isinstance(each, Metric) and not (isinstance(each, type) and issubclass(each, Metric)):
            text = f"Only orca metrics are supported, but get {type(each).__name__}"
            raise PlanError(f"{text} ({each!r}); give those of shoal.learn.metrics, such as Accuracy()")
    return given if given is None or isinstance(given, list | tuple) else [given]
