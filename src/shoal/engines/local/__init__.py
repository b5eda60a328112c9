"""The embedded engine: threads of this process, and processes of its own for whole tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.engines.local._engine import LocalEngine
    from shoal.engines.local._tasks import distributed_map_unordered

__all__ = ["LocalEngine", "distributed_map_unordered"]

__getattr__, __dir__ = attach(__name__, {"_engine": ("LocalEngine",), "_tasks": ("distributed_map_unordered",)})
