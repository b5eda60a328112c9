"""A value that all workers need."""

from __future__ import annotations

from typing import Generic, TypeVar

from shoal.errors import StateError

__all__ = ["SharedValue"]

T = TypeVar("T")


class SharedValue(Generic[T]):
    """Goes to a worker once, however many shards it treats with it.

    >>> import numpy as np
    >>> from shoal.data import XShards
    >>> offset = SharedValue(10)
    >>> shards = XShards.partition(np.arange(4), 2).transform_shard(lambda a, shared: a + shared.value, offset)
    >>> [shard.tolist() for shard in shards.collect()]
    [[10, 11], [12, 13]]
    """

    def __init__(self, data: T) -> None:
        self._data: list[T] = [data]

    @property
    def value(self) -> T:
        """The value."""
        if not self._data:
            raise StateError("the shared value was let go of by unpersist()")
        return self._data[0]

    def unpersist(self) -> None:
        """Let go of the value here; shards that were made with it stay."""
        self._data.clear()
