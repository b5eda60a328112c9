"""Estimators for Keras: Keras 3 on TensorFlow, PyTorch or JAX, and the Keras 2 that is called tf_keras."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.learn.keras._keras_estimator import Estimator

__all__ = ["Estimator"]

__getattr__, __dir__ = attach(__name__, {"_keras_estimator": ("Estimator",)})
