"""Models that learn: one way to train, evaluate and predict, whatever the framework, the data and the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.learn._callbacks import Callback, EarlyStopping
    from shoal.learn._checkpoints import Checkpoint, Checkpoints
    from shoal.learn._estimator import BaseEstimator
    from shoal.learn._history import History
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
    "SeveralIteration",
    "TensorBoard",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "_callbacks": ("Callback", "EarlyStopping"),
        "_checkpoints": ("Checkpoint", "Checkpoints"),
        "_estimator": ("BaseEstimator",),
        "_history": ("History",),
        "_tensorboard": ("TensorBoard",),
        "_triggers": ("EveryEpoch", "SeveralIteration"),
    },
)
