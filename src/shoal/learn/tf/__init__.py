"""Estimators for TensorFlow: graphs as TensorFlow 1 had them, and models of Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.learn.tf.estimator import Estimator

__all__ = ["Estimator"]

__getattr__, __dir__ = attach(__name__, {"estimator": ("Estimator",)})
