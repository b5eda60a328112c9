"""The embedded engine: threads of this process."""

from shoal.engines.local._engine import LocalEngine

__all__ = ["LocalEngine"]
