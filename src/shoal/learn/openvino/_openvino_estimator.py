"""The estimator for OpenVINO."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from shoal.learn._data import Ask, Prepared
from shoal.learn._estimator import BaseEstimator
from shoal.learn._history import History
from shoal.learn._predicting import Predictor
from shoal.learn.keras._keras_data import keras_predicted, keras_prepared
from shoal.learn.openvino._openvino_convert import of_keras, of_torch
from shoal.learn.openvino._openvino_files import files_of, model_of, written
from shoal.learn.openvino._openvino_framework import OpenVINOFramework, does_not_learn
from shoal.learn.openvino._openvino_options import OpenVINOOptions
from shoal.learn.openvino._openvino_rows import rowwise

__all__ = ["Estimator"]


class Estimator(BaseEstimator):
    """A model of OpenVINO that predicts wherever data is.

    >>> import numpy as np, openvino
    >>> from openvino import opset13 as ops
    >>> x = ops.parameter([-1, 2], np.float32, name="x")
    >>> estimator = Estimator.from_openvino(model_path=openvino.Model([ops.relu(x)], [x]))
    >>> estimator.predict(np.array([[1.0, -2.0], [-3.0, 4.0]]))
    array([[1., 0.],
           [0., 4.]], dtype=float32)
    """

    _framework: OpenVINOFramework

    @classmethod
    def from_openvino(
        cls,
        *,
        model_path: Any,
        device: str = "CPU",
        hint: str | None = "throughput",
        precision: str | None = "f32",
        requests: int | None = None,
        config: Mapping[str, Any] | None = None,
        metrics: Any = None,
        backend: str | None = None,
        workers: int | None = None,
    ) -> Estimator:
        """Make an estimator of an ``.xml`` file with its ``.bin`` beside it, at any URL, or of an `openvino.Model`.

        Other files that OpenVINO reads, such as ``.onnx``, are taken, too. The model is read here and sent to where
        the data is; it may take any number of rows there.

        ``hint`` is ``throughput`` or ``latency``. ``precision`` is ``f32``, ``f16`` or ``bf16``; with None it is
        OpenVINO's choice, which depends on the processor. ``requests`` are the batches under way at a time, and
        ``config`` has properties of OpenVINO. ``metrics``, ``backend`` and ``workers`` are for `evaluate`.
        """
        options = OpenVINOOptions(device, hint, precision, requests, dict(config or {}))
        framework = _checked(files_of(model_path), options)
        return cls(framework, metrics=metrics, backend=backend, workers=workers)

    @classmethod
    def from_torch(cls, model: Any, *, example_input: Any, input: Any = None, **options: Any) -> Estimator:
        """Make an estimator of a torch module; ``example_input`` is a batch, or a tuple with one for each input.

        ``input`` says of which shapes inputs may be, as in ``[(-1, 3, -1, -1)]``, if rows are not all like those of
        the example. Other options are those of `from_openvino`.
        """
        return cls.from_openvino(model_path=of_torch(model, example_input, input), **options)

    @classmethod
    def from_keras(cls, model: Any, **options: Any) -> Estimator:
        """Make an estimator of a model of Keras; options are those of `from_openvino`."""
        return cls.from_openvino(model_path=of_keras(model), **options)

    def fit(self, *args: Any, **options: Any) -> History:
        """Refuse: models of OpenVINO do not learn."""
        raise does_not_learn()

    def get_model(self) -> Any:
        """Give the model, as an `openvino.Model`; it is a copy."""
        return model_of(self._framework.files)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write the model as OpenVINO reads it, at any URL: an ``.xml`` file, and the ``.bin`` beside it."""
        return written(self._framework.files, os.fspath(path))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Take another model, as `from_openvino` does."""
        self._framework = _checked(files_of(path), self._framework.options)

    def shutdown(self) -> None:
        """Let go of what was compiled here; whoever predicts again compiles it again."""
        self._framework = OpenVINOFramework(self._framework.files, self._framework.options)

    def _prepared(self, data: Any, features: Any, labels: Any, batch_size: int | None, *, seed: int | None) -> Prepared:
        ask = Ask(features, labels, shuffle=seed, workers=self._size())
        return keras_prepared(data, ask, config={}, batch_size=batch_size)

    def _predicted(self, data: Any, predictor: Predictor) -> Any:
        return keras_predicted(data, predictor)


def _checked(files: Mapping[str, bytes], options: OpenVINOOptions) -> OpenVINOFramework:
    """Refuse a model here that no worker could predict with."""
    rowwise(model_of(files))
    return OpenVINOFramework(files, options)
