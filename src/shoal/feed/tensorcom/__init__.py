"""Tensorcom: lists of arrays from programs that prepare them to programs that learn, over ZeroMQ.

>>> import numpy as np
>>> from shoal.feed.tensorcom import Connection
>>> with Connection("zpull://127.0.0.1:*") as trainer, Connection(trainer.urls[0].replace("pull", "push")) as loader:
...     loader.send([np.zeros((32, 8, 8, 3), "u1"), np.zeros(32, "i4")])
...     [array.shape for array in trainer.recv()]
[(32, 8, 8, 3), (32,)]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.feed.tensorcom._connection import Connection
    from shoal.feed.tensorcom._dataset import TensorcomDataset
    from shoal.feed.tensorcom._statistics import Statistics

_HOMES = {
    "_connection": ("Connection",),
    "_dataset": ("TensorcomDataset",),
    "_statistics": ("Statistics",),
    "tenbin": (),
}

__all__ = ["Connection", "Statistics", "TensorcomDataset"]

__getattr__, __dir__ = attach(__name__, _HOMES)
