"""What is written for MXNet here, and is MXNet over there."""

from __future__ import annotations

from shoal.environments import stand_in

__all__ = ["gluon", "mx"]

mx = stand_in("mxnet")
gluon = stand_in("mxnet.gluon")
