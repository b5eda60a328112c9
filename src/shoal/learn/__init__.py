"""Models that learn: one way to train, evaluate and predict, whatever the framework, the data and the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.learn._callbacks import Callback
    from shoal.learn._checkpoints import Checkpoint, Checkpoints
    from shoal.learn._early_stopping import EarlyStopping
    from shoal.learn._estimator import BaseEstimator
    from shoal.learn._events import curves_of
    from shoal.learn._history import History
    from shoal.learn._model_checkpoint import ModelCheckpoint
    from shoal.learn._schedule import LearningRateScheduler
    from shoal.learn._tensorboard import TensorBoard
    from shoal.learn._triggers import EveryEpoch, SeveralIteration

__all__ = [
    "BaseEstimator",
    "Callback",
    "Checkpoint",
    "Checkpoints",
    "EarlyStopping",
    "EveryEpoch",
    "History",
    "LearningRateScheduler",
    "ModelCheckpoint",
    "SeveralIteration",
    "TensorBoard",
    "curves_of",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "_callbacks": ("Callback",),
        "_checkpoints": ("Checkpoint", "Checkpoints"),
        "_early_stopping": ("EarlyStopping",),
        "_estimator": ("BaseEstimator",),
        "_events": ("curves_of",),
        "_history": ("History",),
        "_model_checkpoint": ("ModelCheckpoint",),
        "_schedule": ("LearningRateScheduler",),
        "_tensorboard": ("TensorBoard",),
        "_triggers": ("EveryEpoch", "SeveralIteration"),
    },
)
