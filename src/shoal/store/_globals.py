"""Objects in partitions, which may be in the stores of several hosts: tensors and frames too large for one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal import settings
from shoal.abc import dealt
from shoal.errors import PlanError, StoreError
from shoal.store._contexts import ResolverContext
from shoal.store._ids import ObjectID
from shoal.store._meta import Object, ObjectMeta

if TYPE_CHECKING:
    from shoal.store._base import BaseStore

__all__ = ["made_global", "make_global_dataframe", "make_global_tensor", "partition_ids", "partitions"]

_PARTITIONS = "partitions_"
_FETCHERS = 8


def make_global_tensor(
    store: BaseStore,
    blocks: Iterable[Any],
    shape: Sequence[int] | None = None,
    partition_shape: Sequence[int] | None = None,
    extra_meta: dict[str, Any] | None = None,
    owners: Sequence[int] | None = None,
) -> ObjectMeta:
    """Make one tensor of parts that lie in stores; each is an id or a description, in the order of the whole.

    ``owners`` are the numbers of those stores (`instance_id`), where they are known.

    >>> import tempfile
    >>> from shoal.store import connect
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> parts = [store.put(np.full((2, 3), number), partition_index=(number, 0)) for number in range(2)]
    >>> whole = make_global_tensor(store, parts, shape=(4, 3), partition_shape=(2, 1))
    >>> store.get(whole.id, to="numpy").sum(axis=1).tolist()
    [0, 0, 3, 3]
    """
    keys = {"shape_": list(shape or ()), "partition_shape_": list(partition_shape or ()), **(extra_meta or {})}
    meta = ObjectMeta("vineyard::GlobalTensor", keys)
    return _made(store, meta, list(blocks), owners)


def make_global_dataframe(
    store: BaseStore,
    blocks: Iterable[Any],
    extra_meta: dict[str, Any] | None = None,
    owners: Sequence[int] | None = None,
) -> ObjectMeta:
    """Make one frame of parts that lie in stores; each is an id or a description, in the order of the rows.

    >>> import pandas, tempfile
    >>> from shoal.store import connect
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> parts = [store.put(pandas.DataFrame({"x": [number]})) for number in range(3)]
    >>> store.get(make_global_dataframe(store, parts).id, to="pandas")["x"].tolist()
    [0, 1, 2]
    """
    found = list(blocks)
    keys = {"partition_shape_row_": len(found), "partition_shape_column_": 1, **(extra_meta or {})}
    return _made(store, ObjectMeta("vineyard::GlobalDataFrame", keys), found, owners)


def made_global(
    store: BaseStore,
    typename: str,
    blocks: Iterable[Any],
    owners: Sequence[int] | None = None,
    keys: dict[str, Any] | None = None,
) -> ObjectMeta:
    """Make one object of parts that lie in stores, of a type that has no function of its own here, too."""
    found = list(blocks)
    if typename == "vineyard::GlobalTensor":
        return make_global_tensor(store, found, extra_meta=keys, owners=owners)
    if typename == "vineyard::GlobalDataFrame":
        return make_global_dataframe(store, found, extra_meta=keys, owners=owners)
    return _made(store, ObjectMeta(typename, keys), found, owners)


def _made(store: BaseStore, meta: ObjectMeta, blocks: list[Any], owners: Sequence[int] | None) -> ObjectMeta:
    ids = [block.id if isinstance(block, ObjectMeta | Object) else ObjectID(block) for block in blocks]
    meta.set_global()
    meta[f"{_PARTITIONS}-size"] = len(ids)
    for number, block in enumerate(ids):
        if block is None:
            raise StoreError(f"partition {number} is not in a store yet; put it before it becomes part of {meta!r}")
        meta.add_member(f"{_PARTITIONS}-{number}", block)
    meta["owners_"] = list(owners or [_owner(store, block) for block in ids if block is not None])
    return store.get_meta(store.create(meta, persist=True))


def partition_ids(obj: Object) -> list[int]:
    """Name all partitions in order, wherever they are."""
    return [int(obj.meta[f"{_PARTITIONS}-{number}"].id) for number in range(obj.meta[f"{_PARTITIONS}-size"])]


def partitions(
    obj: Object, which: str = "mine", rank: int | None = None, world_size: int | None = None
) -> list[Object]:
    """Give partitions in order: those of this worker (``mine``), of this host's store (``local``), or ``all``.

    Workers that share a store share its partitions out by their rank among them, which launchers tell, or the caller.

    >>> import tempfile
    >>> from shoal.store import connect
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> parts = [store.put(np.full(2, number), partition_index=(number,)) for number in range(3)]
    >>> whole = store.get_object(make_global_tensor(store, parts).id)
    >>> [part.id == parts[1] for part in partitions(whole, rank=1, world_size=3)]
    [True]
    """
    if which not in ("mine", "local", "all"):
        raise PlanError(f"partitions={which!r}; it is mine, local or all")
    if (rank is None) != (world_size is None):
        raise PlanError("rank and world_size come together")
    owners = obj.meta["owners_"]
    here = [number for number, owner in enumerate(owners) if owner == obj.store.instance_id]
    chosen = list(range(len(owners))) if which == "all" else here
    if which == "mine":
        own, others = (rank, world_size) if rank is not None else _share(len(here) == len(owners))
        chosen = [here[number] for number in dealt(len(here), others or 1)[own or 0]]
    with ThreadPoolExecutor(_FETCHERS, thread_name_prefix="shoal-partition") as pool:
        return list(pool.map(obj.member, [f"{_PARTITIONS}-{number}" for number in chosen]))


def _share(all_here: bool) -> tuple[int | None, int | None]:
    """Tell which worker this is of those who share a store."""
    process = settings.process()
    if process.local_world_size is not None:
        return process.local_rank, process.local_world_size
    return (process.rank, process.world_size) if all_here else (0, 1)


def resolve_tensor(
    obj: Object,
    resolver: ResolverContext,
    partitions: str = "mine",
    rank: int | None = None,
    world_size: int | None = None,
    to: str | None = None,
) -> Any:
    """Give the arrays of partitions; with ``to="numpy"`` one array of them."""
    parts = _parts(obj, resolver, partitions, rank, world_size)
    if to is None:
        return parts
    if to != "numpy":
        raise PlanError(f"to={to!r}; a tensor in partitions becomes a list of arrays, or numpy")
    return assembled(obj, parts) if partitions == "all" else _below(parts)


def resolve_frame(
    obj: Object,
    resolver: ResolverContext,
    partitions: str = "mine",
    rank: int | None = None,
    world_size: int | None = None,
    to: str | None = None,
) -> Any:
    """Give the frames, or tables, of partitions; with ``to="pandas"`` or ``"arrow"`` one frame or table of them."""
    parts = _parts(obj, resolver, partitions, rank, world_size)
    if to is None:
        return parts
    if to not in ("pandas", "arrow"):
        raise PlanError(f"to={to!r}; a frame in partitions becomes a list of frames, or pandas, or arrow")
    if not parts:
        raise StoreError(f"{obj!r} has no partition here, of which a frame could be made")
    if to == "arrow":
        import pyarrow as pa

        from shoal._tables import as_table

        return pa.concat_tables(list(map(as_table, parts)), promote_options="permissive")
    import pandas as pd

    return pd.concat([part.to_pandas() if hasattr(part, "to_pandas") else part for part in parts])


def resolve_shards(
    obj: Object,
    resolver: ResolverContext,
    partitions: str = "mine",
    rank: int | None = None,
    world_size: int | None = None,
) -> list[Any]:
    """Give the values of partitions, whatever they are."""
    return _parts(obj, resolver, partitions, rank, world_size)


def _parts(obj: Object, resolver: ResolverContext, which: str, rank: int | None, world_size: int | None) -> list[Any]:
    found = partitions(obj, which, rank, world_size)
    with ThreadPoolExecutor(_FETCHERS, thread_name_prefix="shoal-partition") as pool:
        list(pool.map(_touch, [part for part in found if not part.meta.local]))
    return [resolver(part) for part in found]


def _touch(part: Object) -> None:
    """Let the bytes of a remote partition come."""
    part.meta.load()


def _below(parts: list[Any]) -> Any:
    if not parts:
        raise StoreError("there is no partition here, of which an array could be made")
    return np.concatenate(parts)


def assembled(obj: Object, parts: list[Any]) -> Any:
    """Put blocks together by their place in the whole, or below each other where they do not tell it."""
    places = [tuple(part.meta["partition_index_"]) for part in partitions(obj, "all")]
    if not parts or len(set(places)) < len(places) or any(len(place) != parts[0].ndim for place in places):
        return _below(parts)
    grid = np.empty([max(axis) + 1 for axis in zip(*places, strict=True)], object)
    if grid.size != len(parts):
        return _below(parts)
    for place, part in zip(places, parts, strict=True):
        grid[place] = part
    return np.block(grid.tolist()) if grid.ndim else parts[0]


def _owner(store: BaseStore, block: ObjectID) -> int:
    found = store.get_meta(block).instance_id
    return store.instance_id if found is None else found
