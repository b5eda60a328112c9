"""Ray: datasets are put block by block, each by a task on the node that has it, and come back the same way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from shoal._optional import require
from shoal._tables import as_table
from shoal.errors import StoreError
from shoal.store._contexts import BuilderContext, ResolverContext, context, trusted
from shoal.store._globals import partition_ids
from shoal.store._meta import Object, ObjectMeta
from shoal.store._placing import Copy, Home, Placed, make_global

if TYPE_CHECKING:
    from shoal.store._base import BaseStore

__all__ = ["ray_context", "register_ray_types"]

ray: Any = require("ray", "shoal.store.ray")
ray_data: Any = require("ray.data", "shoal.store.ray")
strategies: Any = require("ray.util.scheduling_strategies", "shoal.store.ray")


def register_ray_types(builder_ctx: BuilderContext | None = None, resolver_ctx: ResolverContext | None = None) -> None:
    """Register what puts Ray datasets, and what makes them of stored objects in partitions; either may be None.

    Nodes use their ``SHOAL_STORE``, or else the folder that is used here; ``put(dataset, store=folder)`` names another.

    >>> from shoal.store import get_current_resolvers, resolver_context
    >>> with resolver_context() as resolvers:
    ...     register_ray_types(None, resolvers)
    ...     get_current_resolvers() is resolvers
    True
    """
    if builder_ctx is not None:
        builder_ctx.register(ray_data.Dataset, build_dataset)
    if resolver_ctx is not None:
        for name in ("GlobalTensor", "GlobalDataFrame", "GlobalShards"):
            resolver_ctx.register(f"vineyard::{name}", resolve_dataset)


@contextmanager
def ray_context() -> Iterator[tuple[BuilderContext, ResolverContext]]:
    """Put and get Ray datasets for a while.

    >>> from shoal.store import get_current_resolvers
    >>> with ray_context() as (_, resolvers):
    ...     get_current_resolvers() is resolvers
    True
    """
    with context() as (builders, resolvers):
        register_ray_types(builders, resolvers)
        yield builders, resolvers


def build_dataset(target: BaseStore, value: Any, /, store: Any = None) -> ObjectMeta:
    """Put the blocks of a dataset, as Arrow tables, where they are."""
    blocks = value.to_arrow_refs()
    ray.wait(blocks, num_returns=len(blocks), fetch_local=False)
    where = ray.experimental.get_object_locations(blocks)
    home, task = Home.of(target, store), ray.remote(_placed)
    tasks = [_on(task, where[block].get("node_ids") or ()).remote(home, block, trusted()) for block in blocks]
    found: list[tuple[str, Placed]] = ray.get(tasks)
    made = make_global(target, [placed for _, placed in found])
    elsewhere = {placed.owner: node for node, placed in found if placed.owner != target.instance_id}
    copy = ray.remote(_copied)
    ray.get([_on(copy, [node]).remote(home, Copy.of(made)) for node in elsewhere.values()])
    return made


def resolve_dataset(obj: Object, store: Any = None) -> Any:
    """Make a dataset of the partitions, each read on the node whose store has it."""
    ids = partition_ids(obj)
    if not ids:
        raise StoreError(f"{obj!r} has no partitions, of which a dataset could be made")
    home, task = Home.of(obj.store, store), ray.remote(_read)
    nodes = _nodes(home)
    pairs = zip(ids, obj.meta["owners_"], strict=True)
    tasks = [_on(task, nodes.get(owner, ())).remote(home, object_id, trusted()) for object_id, owner in pairs]
    return ray_data.from_arrow_refs(tasks)


def _nodes(home: Home) -> dict[int, list[str]]:
    """Ask each node which store it has."""
    names = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    task = ray.remote(_instance)
    found: dict[int, list[str]] = {}
    for name, owner in zip(names, ray.get([_on(task, [name]).remote(home) for name in names]), strict=True):
        found.setdefault(owner, []).append(name)
    return found


def _on(task: Any, nodes: Any) -> Any:
    """Let a task run on a node, or anywhere if that is gone."""
    first = next(iter(nodes), None)
    return (
        task
        if first is None
        else task.options(scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(first, soft=True))
    )


def _placed(home: Home, block: Any, trust: bool) -> tuple[str, Placed]:
    return ray.get_runtime_context().get_node_id(), home.place(block, trust=trust)


def _read(home: Home, object_id: int, trust: bool) -> Any:
    found = home.read(object_id, trust)
    return as_table(found if not hasattr(found, "__array_interface__") else {"data": found})


def _instance(home: Home) -> int:
    return home.instance()


def _copied(home: Home, copy: Copy) -> None:
    copy.write(home)
