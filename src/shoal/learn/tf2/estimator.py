"""The estimator for models of Keras, under the name that it has beside TensorFlow 2."""

from __future__ import annotations

from shoal.learn.keras import Estimator

__all__ = ["Estimator"]
