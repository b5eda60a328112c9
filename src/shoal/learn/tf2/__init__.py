"""Estimators for TensorFlow 2: models of Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.learn.tf2.estimator import Estimator

__all__ = ["Estimator"]

__getattr__, __dir__ = attach(__name__, {"estimator": ("Estimator",)})
