"""Batches over the network: many hosts prepare them, a few trainers use them, and nothing of the order is lost.

A *feeder* runs a plan and serves the rows of some lanes. A trainer connects to several of them and has a loader with
the same batches, order and states as if it ran the plan itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal._flight import Tls
    from shoal.feed._deploy import Deployment, deploy
    from shoal.feed._feeder import Feeder, serve
    from shoal.feed._loader import FeederInfo, FeedLoader, connect

__all__ = ["Deployment", "FeedLoader", "Feeder", "FeederInfo", "Tls", "connect", "deploy", "serve"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "_deploy": ("Deployment", "deploy"),
        "_feeder": ("Feeder", "Tls", "serve"),
        "_loader": ("FeedLoader", "FeederInfo", "connect"),
    },
)
