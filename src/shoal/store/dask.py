"""Dask: collections are put partition by partition, each by the worker that has it, and come back the same way.

>>> from shoal.store import builder_context
>>> with builder_context() as builders:
...     register_dask_types(builders, None)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from shoal._optional import require
from shoal.errors import StoreError
from shoal.store._contexts import BuilderContext, ResolverContext, context
from shoal.store._dask_parts import Parts, client_of, dask, distributed, put_parts
from shoal.store._meta import Object, ObjectMeta

if TYPE_CHECKING:
    from shoal.store._base import BaseStore

__all__ = ["dask_context", "register_dask_builder", "register_dask_types"]

arrays: Any = require("dask.array", "shoal.store.dask")
bags: Any = require("dask.bag", "shoal.store.dask")
frames: Any = require("dask.dataframe", "shoal.store.dask")


def register_dask_types(builder_ctx: BuilderContext | None = None, resolver_ctx: ResolverContext | None = None) -> None:
    """Register what puts Dask arrays, data frames and bags, and what makes them of stored objects; either may be None.

    ``put(collection, dask_scheduler=address, store=folder)`` uses the current client without an address; workers use
    their ``SHOAL_STORE``, or else the folder that is used here, and one that is named before both. ``get(id,
    dask_scheduler=address, dask_workers={instance_id: worker})`` finds by itself who has which store, unless told.

    >>> from shoal.store import builder_context, get_current_builders
    >>> with builder_context() as builders:
    ...     register_dask_types(builders, None)
    ...     get_current_builders() is builders
    True
    """
    if builder_ctx is not None:
        builder_ctx.register(arrays.Array, build_array)
        builder_ctx.register(frames.DataFrame, build_frame)
        builder_ctx.register(frames.Series, build_frame)
        builder_ctx.register(bags.Bag, build_bag)
    if resolver_ctx is not None:
        resolver_ctx.register("vineyard::GlobalTensor", resolve_array)
        resolver_ctx.register("vineyard::GlobalDataFrame", resolve_frame)
        resolver_ctx.register("vineyard::GlobalShards", resolve_bag)


register_dask_builder = register_dask_types


@contextmanager
def dask_context() -> Iterator[tuple[BuilderContext, ResolverContext]]:
    """Put and get Dask collections for a while.

    >>> from shoal.store import get_current_resolvers
    >>> with dask_context() as (_, resolvers):
    ...     get_current_resolvers() is resolvers
    True
    """
    with context() as (builders, resolvers):
        register_dask_types(builders, resolvers)
        yield builders, resolvers


def build_array(target: BaseStore, value: Any, /, dask_scheduler: str | None = None, store: Any = None) -> ObjectMeta:
    """Put the blocks of an array, in as many dimensions as it has."""
    with client_of(dask_scheduler) as client:
        kept = client.persist(value)
        futures = {future.key: future for future in distributed.futures_of(kept)}
        blocks = [(key[1:], futures[key]) for key in _flat(kept.__dask_keys__())]
        keys: dict[str, Any] = {"partition_shape_": list(kept.numblocks)}
        if not np.isnan(kept.shape).any():
            keys["shape_"] = [int(size) for size in kept.shape]
        return put_parts(client, target, blocks, keys, store)


def build_frame(target: BaseStore, value: Any, /, dask_scheduler: str | None = None, store: Any = None) -> ObjectMeta:
    """Put the partitions of a data frame or a series."""
    with client_of(dask_scheduler) as client:
        kept = client.persist(value)
        return put_parts(client, target, _numbered(kept), _divisions(kept), store)


def build_bag(target: BaseStore, value: Any, /, dask_scheduler: str | None = None, store: Any = None) -> ObjectMeta:
    """Put the partitions of a bag, each a list."""
    with client_of(dask_scheduler) as client:
        return put_parts(client, target, _numbered(client.persist(value)), {}, store)


def resolve_array(obj: Object, dask_scheduler: str | None = None, dask_workers: Any = None, store: Any = None) -> Any:
    """Make an array of the blocks, each read by a worker whose store has it."""
    with client_of(dask_scheduler, stays=True) as client:
        parts = Parts(client, obj, dask_workers, store)
        looks = parts.looked()
        futures = parts.futures()
    places = [look.place for look in looks]
    dimensions = len(looks[0].shape)
    if any(len(place) != dimensions for place in places) or len(set(places)) < len(places):
        places = [(number, *[0] * (dimensions - 1)) for number in range(len(looks))]  # one below the other
    chunks = _chunks(obj, dict(zip(places, looks, strict=True)))
    name = f"shoal-store-{obj.id}-{dask.base.tokenize(futures)}"
    blocks = {(name, *place): future for place, future in zip(places, futures, strict=True)}
    return arrays.Array(blocks, name, chunks, dtype=looks[0].dtype)


def resolve_frame(obj: Object, dask_scheduler: str | None = None, dask_workers: Any = None, store: Any = None) -> Any:
    """Make a data frame of the partitions, each read by a worker whose store has it."""
    with client_of(dask_scheduler, stays=True) as client:
        parts = Parts(client, obj, dask_workers, store)
        looks = parts.looked()
        empty = next((look.empty for look in looks if look.shape[0]), looks[0].empty)
        known = {"divisions": _told(obj)} if "divisions_" in obj.meta else {}
        return frames.from_delayed(parts.futures(), meta=empty, verify_meta=False, **known)


def resolve_bag(obj: Object, dask_scheduler: str | None = None, dask_workers: Any = None, store: Any = None) -> Any:
    """Make a bag of the partitions."""
    with client_of(dask_scheduler, stays=True) as client:
        return bags.from_delayed([dask.delayed(part) for part in Parts(client, obj, dask_workers, store).futures()])


def _chunks(obj: Object, looks: dict[tuple[int, ...], Any]) -> tuple[tuple[int, ...], ...]:
    """Say how long blocks are in each dimension; those that lie beside each other must agree."""
    counts = [max(axis) + 1 for axis in zip(*looks, strict=True)]
    firsts = [[(*[0] * axis, at, *[0] * (len(counts) - axis - 1)) for at in range(n)] for axis, n in enumerate(counts)]
    missing = [place for line in firsts for place in line if place not in looks]
    if not missing:
        found = tuple(tuple(looks[place].shape[axis] for place in line) for axis, line in enumerate(firsts))
        wrong = [
            place
            for place in np.ndindex(*counts)
            if place not in looks or looks[place].shape != tuple(found[axis][at] for axis, at in enumerate(place))
        ]
        if not wrong:
            return found
        missing = wrong
    raise StoreError(f"the blocks of {obj!r} make no array: the one at {missing[0]} is missing, or of another size")


def _flat(keys: Any) -> Iterator[tuple[Any, ...]]:
    for key in keys:
        if isinstance(key, list):
            yield from _flat(key)
        else:
            yield key


def _numbered(kept: Any) -> list[tuple[tuple[int, int], Any]]:
    """List the futures of partitions in their order: by their numbers, for names change when Dask optimises a graph."""
    futures = sorted(distributed.futures_of(kept), key=lambda future: int(future.key[-1]))
    return [((number, 0), future) for number, future in enumerate(futures)]


def _divisions(kept: Any) -> dict[str, Any]:
    """Say where partitions begin, if Dask knows it and numbers or texts can tell it."""
    index = pd.Index(kept.divisions) if kept.known_divisions else None
    if index is None or not isinstance(index.dtype, np.dtype | pd.StringDtype):
        return {}
    if index.dtype.kind in "Mm":
        return {"divisions_": index.astype("int64").tolist(), "divisions_type_": str(index.dtype)}
    plain = index.dtype.kind in "iuf" or isinstance(index.dtype, pd.StringDtype)
    return {"divisions_": index.tolist(), "divisions_type_": str(index.dtype)} if plain else {}


def _told(obj: Object) -> tuple[Any, ...]:
    return tuple(pd.Index(obj.meta["divisions_"]).astype(obj.meta["divisions_type_"]))
