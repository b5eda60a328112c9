"""Estimators for MXNet, which lives in an environment of its own: ``shoal env create mxnet`` builds it.

``mx`` and ``gluon`` stand for the library in functions that are sent there.

>>> from shoal.learn.mxnet import gluon
>>> gluon.nn.Dense(2)
<mxnet.gluon.nn.Dense(...), which is made where it is sent>
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.learn.mxnet._mxnet_config import create_config
    from shoal.learn.mxnet._mxnet_estimator import Estimator
    from shoal.learn.mxnet._mxnet_model import MXNetModel
    from shoal.learn.mxnet._mxnet_names import gluon, mx

__all__ = ["Estimator", "MXNetModel", "create_config", "gluon", "mx"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "_mxnet_config": ("create_config",),
        "_mxnet_estimator": ("Estimator",),
        "_mxnet_model": ("MXNetModel",),
        "_mxnet_names": ("gluon", "mx"),
    },
)
