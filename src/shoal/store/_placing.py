"""Partitions that workers put into the stores of their own hosts; who asked for it gets nothing but their names."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal import settings
from shoal.errors import PlanError, StoreError
from shoal.store._connect import connect
from shoal.store._format import lay_out
from shoal.store._globals import made_global
from shoal.store._ids import ObjectID
from shoal.store._meta import Link, ObjectMeta
from shoal.store._store import Store
from shoal.store._writing import seal

if TYPE_CHECKING:
    from shoal.store._base import BaseStore

__all__ = ["Copy", "Home", "Placed", "make_global"]

#: Types whose builders take the place of a part in the whole.
_PLACED = {("numpy", "ndarray"), ("pandas", "DataFrame"), ("torch", "Tensor")}
_FRAMES = {"vineyard::DataFrame", "vineyard::Series", "vineyard::Table", "vineyard::RecordBatch"}


class Placed(NamedTuple):
    """A partition that was put, and where.

    >>> import tempfile
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> placed = Home.of(store).place([1, 2])
    >>> placed.owner == store.instance_id, store.get(placed.object_id)
    (True, [1, 2])
    """

    object_id: int
    owner: int
    typename: str


@dataclass(frozen=True, slots=True)
class Home:
    """Where a worker finds the store of its host; it is sent to workers, and used there.

    That is the one which the worker's own settings name (``SHOAL_STORE``), else the folder of whoever asked; one that
    the caller named goes before both.

    >>> import tempfile
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> placed = [Home.of(store).place(list(range(number)), (number, 0)) for number in range(3)]
    >>> store.get(make_global(store, placed).id)
    [[], [0], [0, 1]]
    """

    named: str | None = None
    fallback: str | None = None

    @classmethod
    def of(cls, store: BaseStore, named: Any = None) -> Home:
        """Say where workers find their stores, for one who has this store."""
        return cls(None if named is None else str(named), store.folder.path if isinstance(store, Store) else None)

    def open(self) -> Any:
        """Connect to the store."""
        return connect(self.named or settings.current().store or self.fallback)

    def instance(self) -> int:
        """Tell the number of the store."""
        with self.open() as store:
            return int(store.instance_id)

    def place(self, value: Any, index: Sequence[int] | None = None, trust: bool = False) -> Placed:
        """Put a partition, and let it stay; ``index`` says which part of the whole it is."""
        with self.open() as store:
            options = {"partition_index": tuple(index)} if index is not None and _has_place(value) else {}
            made = store.put(value, persist=True, trust=trust, **options)
            return Placed(int(made), int(store.instance_id), store.get_meta(made).typename)

    def read(self, object_id: int, trust: bool = False) -> Any:
        """Get a partition as it was put."""
        with self.open() as store:
            return store.get(ObjectID(object_id), trust=trust)

    def describe(self, object_id: int) -> ObjectMeta:
        """Describe a partition."""
        with self.open() as store:
            found: ObjectMeta = store.get_meta(ObjectID(object_id))
            return found

    def remove(self, object_ids: Sequence[int]) -> None:
        """Delete partitions that became part of nothing."""
        with self.open() as store:
            for object_id in object_ids:
                with suppress(StoreError):
                    store.delete(ObjectID(object_id))


def _has_place(value: Any) -> bool:
    """Tell whether the description of a value says which part of a larger one it is."""
    return (type(value).__module__.partition(".")[0], type(value).__name__) in _PLACED


def make_global(store: BaseStore, placed: Sequence[Placed], keys: dict[str, Any] | None = None) -> ObjectMeta:
    """Make one object of partitions: a tensor of arrays, a frame of frames and tables, else a list of shards.

    >>> import numpy, tempfile
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> placed = [Home.of(store).place(numpy.full(2, number), (number,)) for number in range(3)]
    >>> store.get(make_global(store, placed).id, to="numpy").tolist()
    [0, 0, 1, 1, 2, 2]
    """
    if not placed:
        raise PlanError("there are no partitions to put")
    kinds = {each.typename.partition("<")[0] for each in placed}
    typename = "vineyard::GlobalShards"
    if kinds == {"vineyard::Tensor"}:
        typename = "vineyard::GlobalTensor"
    elif kinds <= _FRAMES:
        typename = "vineyard::GlobalDataFrame"
    return made_global(store, typename, [each.object_id for each in placed], [each.owner for each in placed], keys)


class Copy(NamedTuple):
    """A global object, to be described in the other stores that have partitions of it, under the same name.

    So a worker that reads what its own host has needs nobody else.
    """

    object_id: int
    typename: str
    keys: dict[str, Any]
    members: list[tuple[str, int]]

    @classmethod
    def of(cls, meta: ObjectMeta) -> Copy:
        """Describe one that is in a store."""
        links = [(name, int(member.id)) for name, member in meta.members.items() if isinstance(member, Link)]
        return cls(int(meta.id or 0), meta.typename, dict(meta.keys_), links)

    def write(self, home: Home) -> None:
        """Describe it in the store of a worker, on the worker; one at a URL asks the others itself."""
        with home.open() as store:
            if not isinstance(store, Store) or store.is_here(self.object_id):
                return
            meta = ObjectMeta(self.typename, self.keys)
            meta.set_global()
            for name, member in self.members:
                meta.add_member(name, ObjectID(member))
            laid = lay_out(meta, ObjectID, _copied)
            own, here = ObjectID(self.object_id), frozenset(filter(store.is_here, laid.links))
            store.adopt(own, here, persist=True, missing_ok=True)
            # Another worker of this host may be as quick.
            with store.room_for(laid.size), suppress(StoreError):
                seal(laid.parts, store.folder.persisted(own), store.folder)


def _copied(blob: Any) -> None:
    """Find a blob nowhere, so that it is written."""
