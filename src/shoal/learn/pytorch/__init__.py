"""Estimators for PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.learn.pytorch._torch_estimator import Estimator
    from shoal.learn.pytorch._torch_loaders import served
    from shoal.learn.pytorch._torch_main import MainCallback

__all__ = ["Estimator", "MainCallback", "served"]

__getattr__, __dir__ = attach(
    __name__,
    {"_torch_estimator": ("Estimator",), "_torch_loaders": ("served",), "_torch_main": ("MainCallback",)},
)
