"""The estimator for Keras."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from shoal.abc import Framework
from shoal.errors import PlanError
from shoal.learn._callbacks import Callback, checked
from shoal.learn._data import Ask, Prepared
from shoal.learn._estimator import BaseEstimator
from shoal.learn._history import History
from shoal.learn._predicting import Predictor
from shoal.learn.keras._keras_callbacks import KerasCallbacks, is_keras_callback
from shoal.learn.keras._keras_choice import backend_for, is_creator, library_of
from shoal.learn.keras._keras_data import keras_predicted, keras_prepared
from shoal.learn.keras._keras_framework import KerasFramework, KerasOptions
from shoal.learn.keras._keras_inputs import Names

__all__ = ["Estimator"]


class Estimator(BaseEstimator):
    """A compiled model of Keras that several workers train together.

    >>> import keras
    >>> import numpy as np
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile(optimizer="sgd", loss="mse")
    >>> Estimator.from_keras(model).predict(np.zeros((3, 2), np.float32)).tolist()
    [[0.0], [0.0], [0.0]]
    """

    _framework: KerasFramework

    @classmethod
    def from_keras(
        cls,
        keras_model: Any = None,
        *,
        model_creator: Callable[[dict[str, Any]], Any] | None = None,
        config: Mapping[str, Any] | None = None,
        compile_args_creator: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
        optimizer: Any = None,
        metrics: Any = None,
        backend: str | None = None,
        workers: int | None = None,
        model_dir: str | None = None,
        keep_checkpoints: int = 3,
        restarts: int = 3,
        seed: int = 0,
    ) -> Estimator:
        """Make an estimator of a compiled model, or of a function that makes one of a config.

        ``compile_args_creator`` gives what `compile` is called with, ``optimizer`` takes the place of the model's own.
        ``metrics`` are those of `shoal.learn.metrics`, beside those that the model was compiled with. Without a model
        `load` takes one from a file.
        """
        if keras_model is not None and model_creator is not None:
            raise PlanError("give keras_model or model_creator, not both")
        if "batch_size" in (config or {}):
            raise PlanError("batch_size does not belong into the config; give it to fit, evaluate and predict")
        model = keras_model if model_creator is None else model_creator
        if model is not None and not is_creator(model):
            library_of(model)
        options = KerasOptions(_config_of(optimizer), compile_args_creator, bool(metrics), seed=seed)
        framework = KerasFramework(model, config, options)
        given = {"metrics": metrics, "workers": workers, "model_dir": model_dir, "restarts": restarts, "seed": seed}
        return cls(framework, backend=backend_for(backend), keep_checkpoints=keep_checkpoints, **given)

    def fit(
        self,
        data: Any,
        epochs: int = 1,
        batch_size: int | None = None,
        *,
        class_weight: Mapping[int, float] | None = None,
        steps_per_epoch: int | None = None,
        verbose: int | None = None,
        callbacks: Sequence[Any] | None = None,
        **options: Any,
    ) -> History:
        """Train for some epochs, and give what came of each; see `BaseEstimator.fit`.

        An epoch has all rows, or ``steps_per_epoch`` batches, for which the data begins anew if it must. Callbacks
        are those of `shoal.learn` and of Keras; the latter write files on the first worker alone.
        """
        if steps_per_epoch is not None:
            options = {"end": "wrap", **options, "steps": steps_per_epoch}
        if verbose is not None:
            options.setdefault("progress", bool(verbose))
        self._change(class_weight=class_weight)
        return super().fit(data, epochs, batch_size, callbacks=callbacks or (), **options)

    def predict(self, data: Any, *args: Any, feature_cols: Sequence[str] | None = None, **options: Any) -> Any:
        """Predict, and give what was given with the predictions in it; see `BaseEstimator.predict`."""
        self._framework = copy(self._framework)
        self._framework.names = replace(self._framework.names, features=tuple(feature_cols or ()))
        return super().predict(data, *args, feature_cols=feature_cols, **options)

    def get_model(self) -> Any:
        """Give the model with the weights that it has learnt; an instance that was given gets them itself."""
        self._framework.build()
        return self._framework.model

    def save_keras_model(self, path: str | os.PathLike[str], overwrite: bool = True) -> None:
        """Let Keras write the model, in the format that the name says."""
        self.get_model().save(path, overwrite=overwrite)

    def save_keras_weights(self, path: str | os.PathLike[str], overwrite: bool = True) -> None:
        """Let Keras write the weights, into a file whose name ends in ``.weights.h5``."""
        self.get_model().save_weights(path, overwrite=overwrite)

    def load_keras_weights(self, path: str | os.PathLike[str]) -> None:
        """Take weights from a file that Keras wrote."""
        model = self.get_model()
        model.load_weights(path)
        self._framework = copy(self._framework)
        self._framework.files = self._framework.dump()

    save_weights, load_weights = save_keras_weights, load_keras_weights

    @classmethod
    def load_keras_model(cls, path: str | os.PathLike[str], **options: Any) -> Estimator:
        """Make an estimator of a model that Keras has saved."""
        made = cls.from_keras(**options)
        made.load(path)
        return made

    def set_constant_gradient_clipping(self, min: float, max: float) -> None:
        """Cut gradients off at these values, after they were averaged over workers."""
        if min >= max:
            raise PlanError(f"gradients cannot be cut off at {min} and {max}: the first has to be smaller")
        self._change(clip=(float(min), float(max)), clip_norm=None)

    def set_l2_norm_gradient_clipping(self, clip_norm: float) -> None:
        """Shorten gradients, all together, to a length."""
        if clip_norm <= 0:
            raise PlanError(f"gradients cannot be shortened to {clip_norm}")
        self._change(clip=None, clip_norm=float(clip_norm))

    def clear_gradient_clipping(self) -> None:
        """Leave gradients as they are."""
        self._change(clip=None, clip_norm=None)

    def _change(self, **options: Any) -> None:
        self._framework = copy(self._framework)
        self._framework.options = replace(self._framework.options, **options)

    def _prepared(self, data: Any, features: Any, labels: Any, batch_size: int | None, *, seed: int | None) -> Prepared:
        self._framework.names = Names(tuple(features or ()), tuple(labels or ()))
        ask = Ask(features, labels, shuffle=seed, workers=self._size())
        return keras_prepared(data, ask, config=self._framework.config, batch_size=batch_size)

    def _predicted(self, data: Any, predictor: Predictor) -> Any:
        return keras_predicted(data, predictor)

    def _listening(self, callbacks: Sequence[Any]) -> tuple[Framework, list[Callback]]:
        """Put all callbacks of Keras together, where the first of them is."""
        theirs = [each for each in callbacks if is_keras_callback(each)]
        ours = checked(each for each in callbacks if not is_keras_callback(each))
        return self._framework, [*([KerasCallbacks(theirs)] if theirs else []), *ours]


def _config_of(optimizer: Any) -> Any:
    """Take an optimizer as a description: each worker makes its own."""
    if optimizer is None or isinstance(optimizer, str | dict):
        return optimizer
    return library_of(optimizer).optimizers.serialize(optimizer)
