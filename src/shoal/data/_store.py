"""Shards in the object store: each is put by the worker that has it, and read by the worker that needs it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from shoal.data._base import Shards
from shoal.data._lazy import Recipe
from shoal.engines import current
from shoal.errors import StoreError
from shoal.store import BaseStore, Home, Object, ObjectMeta, Placed, connect, make_global, trusted
from shoal.store import partitions as partitions_of

if TYPE_CHECKING:
    from shoal.data._xshards import XShards

__all__ = ["StoreMethods", "build_shards"]


class StoreMethods(Shards):
    """The way of `XShards` out of the object store; the way in is ``store.put(shards)``."""

    @classmethod
    def from_store(
        cls, object_id: Any, store: BaseStore | None = None, *, partitions: str = "all", trust: bool = False
    ) -> XShards:
        """Make a shard of each partition of a stored object, which is read where it is needed, without a copy.

        ``partitions`` are ``"all"``, or those of this host's store (``"local"``), or of this worker (``"mine"``).
        Arrays are views that cannot be written to. ``trust`` allows pickles.

        >>> import tempfile
        >>> from shoal.data import XShards
        >>> from shoal.store import connect
        >>> store = connect(tempfile.mkdtemp(), memory="10MB")
        >>> number = store.put(XShards.from_shards([[1, 2], [3]]))
        >>> XShards.from_store(number, store).transform_shard(len).collect()
        [2, 1]
        """
        from shoal.data._xshards import XShards  # which is made of this

        opened = connect() if store is None else store
        found: Object = opened.get_object(object_id)
        if not found.meta.isglobal:
            ids = [int(found.id or 0)]
        elif partitions == "all":
            ids = [int(found.meta[f"partitions_-{number}"].id) for number in range(found.meta["partitions_-size"])]
        else:
            ids = [int(part.id or 0) for part in partitions_of(found, partitions)]
        if not ids:
            raise StoreError(f"{found!r} has no partition for this worker, so there are no shards")
        engine = current()
        read = partial(_read, _home(engine, opened, None), trust)
        return XShards(Recipe.of(engine, engine.scatter(ids)), chain=(read,))


def build_shards(target: BaseStore, value: XShards, /, store: Any = None) -> ObjectMeta:
    """Put each shard where it is: frames become one frame in partitions, arrays one tensor, anything else a list."""
    home = _home(value._engine, target, store)
    placed = value._then(partial(_placed, home, trusted()))._gathered("put")
    return make_global(target, [Placed(*each) for each in placed])


def _home(engine: Any, store: BaseStore, named: Any) -> Home:
    """Say where workers find the store; those of this process are where it is, whatever the settings are."""
    home = Home.of(store, named)
    return Home(home.named or home.fallback) if engine.describe().name == "local" else home


def _placed(home: Home, trust: bool, shard: Any) -> tuple[int, int, str]:
    placed = home.place(shard, trust=trust)
    return placed.object_id, placed.owner, placed.typename


def _read(home: Home, trust: bool, object_id: int) -> Any:
    return home.read(object_id, trust)
