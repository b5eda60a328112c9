"""Estimators for TensorFlow, of a graph or of a model of Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shoal.learn.keras import Estimator as KerasEstimator

if TYPE_CHECKING:
    from shoal.learn.tf._tensorflow_graph_estimator import GraphEstimator

__all__ = ["Estimator"]


class Estimator(KerasEstimator):
    """A model that several workers train together: one of Keras, or a graph.

    >>> import keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile(optimizer="sgd", loss="mse")
    >>> Estimator.from_keras(model).get_model() is model
    True
    """

    @classmethod
    def from_graph(
        cls,
        *,
        inputs: Any,
        outputs: Any = None,
        labels: Any = None,
        loss: Any = None,
        optimizer: Any = None,
        metrics: Mapping[str, Any] | None = None,
        clip_norm: float | None = None,
        clip_value: float | tuple[float, float] | None = None,
        updates: Any = None,
        sess: Any = None,
        model_dir: str | None = None,
        **options: Any,
    ) -> GraphEstimator:
        """Make an estimator of the ends of a graph, as TensorFlow 1 and ``tf.compat.v1`` have them.

        ``inputs`` and ``labels`` are placeholders, ``loss`` is the mean over the rows of a batch, and ``metrics`` are
        tensors by their names, of which the mean over all rows is told. ``updates`` are run with each step.
        """
        from shoal.learn.tf._tensorflow_graph_estimator import GraphEstimator

        ends = {"inputs": inputs, "outputs": outputs, "labels": labels, "loss": loss, "metrics": metrics}
        clips = {"clip_norm": clip_norm, "clip_value": clip_value}
        return GraphEstimator.of(ends, optimizer, updates, clips, sess, model_dir=model_dir, **options)
