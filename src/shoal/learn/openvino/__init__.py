"""Estimators for models of OpenVINO, which predict and do not learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.learn.openvino._openvino_estimator import Estimator

__all__ = ["Estimator"]

__getattr__, __dir__ = attach(__name__, {"_openvino_estimator": ("Estimator",)})
