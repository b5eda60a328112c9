"""Who runs things: each engine implements `shoal.abc.Engine` and is found by name in `shoal.registry`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.engines._current import Session, current, engine, init, native, shutdown
    from shoal.engines._shares import Share, split

__all__ = ["Session", "Share", "current", "engine", "init", "native", "shutdown", "split"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "_current": ("Session", "current", "engine", "init", "native", "shutdown"),
        "_shares": ("Share", "split"),
    },
)
