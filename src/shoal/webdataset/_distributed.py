"""Work on many shards at once, by the local engine."""

from __future__ import annotations

from shoal.engines.local import distributed_map_unordered

__all__ = ["distributed_map_unordered"]
