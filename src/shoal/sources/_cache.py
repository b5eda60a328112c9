"""Which shard cache a source uses."""

from __future__ import annotations

import os
from typing import TypeAlias

from shoal import settings
from shoal.files import ShardCache

__all__ = ["Cache", "shard_cache"]

#: A cache, the folder of one, or True for the one of the settings.
Cache: TypeAlias = "ShardCache | bool | str | os.PathLike[str] | None"


def shard_cache(cache: Cache) -> ShardCache | None:
    """Make a cache of what a user gave.

    >>> shard_cache("/tmp/shards").folder, shard_cache(None)
    ('/tmp/shards', None)
    """
    if cache is None or cache is False:
        return None
    if isinstance(cache, ShardCache):
        return cache
    chosen = settings.current()
    return ShardCache(chosen.cache / "shards" if cache is True else os.fspath(cache), chosen.cache_size)
