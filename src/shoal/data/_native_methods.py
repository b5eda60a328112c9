"""Shards of other systems' collections, and collections of shards: partitions stay partitions, where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.abc import SupportsNative
from shoal.data._base import Shards
from shoal.data._lazy import Recipe
from shoal.engines import native
from shoal.errors import PlanError

if TYPE_CHECKING:
    from shoal.data._xshards import XShards
    from shoal.pipeline import Dataset

__all__ = ["NativeMethods"]


class NativeMethods(Shards):
    """Ways of `XShards` to and from Spark, Dask and Ray."""

    @classmethod
    def from_spark(cls, df: Any, shard_size: int | None = None) -> XShards:
        """Make a frame of each partition of a Spark DataFrame; of so many rows of it at most, if that is given."""
        shards = _adopted("spark", df)
        return shards if shard_size is None else shards._in_pieces(shard_size)

    @classmethod
    def from_dask(cls, collection: Any) -> XShards:
        """Make a shard of each partition of a Dask data frame, array or bag."""
        return _adopted("dask", collection)

    @classmethod
    def from_ray(cls, dataset: Any) -> XShards:
        """Make a frame of each block of a Ray dataset."""
        return _adopted("ray", dataset)

    def to_spark_df(self) -> Any:
        """Make a Spark DataFrame of frames, or of dicts of arrays; each shard is a partition."""
        return self._exported("spark")

    def to_dask(self) -> Any:
        """Make a Dask data frame of frames, an array of arrays, or a bag of lists; each shard is a partition."""
        return self._exported("dask")

    def to_ray(self) -> Any:
        """Make a Ray dataset of frames, or of dicts of arrays; each shard is a block."""
        return self._exported("ray")

    def to_dataset(self) -> Dataset:
        """Read the rows as samples of a `Dataset`: those of frames, of dicts of arrays, and dicts in lists.

        >>> import numpy as np
        >>> from shoal.data import XShards
        >>> dataset = XShards.partition({"x": np.arange(4), "y": np.ones(4)}, 2).to_dataset()
        >>> [batch["x"].tolist() for batch in dataset.loader(2)]
        [[0, 1], [2, 3]]
        """
        from shoal.data._dataset import dataset_of

        return dataset_of(self._then(_itself))

    def _exported(self, name: str) -> Any:
        engine = native(name)
        assert isinstance(engine, SupportsNative)
        handle = self._tried(self._handle)
        if engine is not self._engine:
            # Another engine holds the shards: they come through this process, one after the other.
            handle = engine.scatter(self._engine.gather(handle))
        return engine.export(handle)


def _itself(shard: Any) -> Any:
    return shard


def _adopted(name: str, collection: Any) -> XShards:
    from shoal.data._xshards import XShards  # which is made of this

    engine = native(name)
    if not isinstance(engine, SupportsNative):
        raise PlanError(f"{name} has no collections of its own kind")
    return XShards(Recipe.of(engine, engine.adopt(collection)))
