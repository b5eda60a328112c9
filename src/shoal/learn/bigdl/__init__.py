"""Estimators for BigDL, whose models are written here and live in an environment of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.learn.bigdl._bigdl_estimator import Estimator
    from shoal.learn.bigdl._bigdl_model import BigDLModel
    from shoal.learn.bigdl._bigdl_session import Session

__all__ = ["BigDLModel", "Estimator", "Session"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "_bigdl_estimator": ("Estimator",),
        "_bigdl_model": ("BigDLModel",),
        "_bigdl_session": ("Session",),
    },
)
