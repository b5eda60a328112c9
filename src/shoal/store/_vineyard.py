"""A real Vineyard as a store: its client runs in an environment of its own, and values cross to it and back."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from shoal.environments import Environment
from shoal.errors import ObjectNotFoundError, StoreError
from shoal.store._base import BaseStore, Id
from shoal.store._contexts import get_current_resolvers
from shoal.store._ids import ObjectID
from shoal.store._meta import Object, ObjectMeta
from shoal.store._names import check_name, no_name
from shoal.store._status import Status
from shoal.store._vineyard_line import Line
from shoal.store._vineyard_meta import (
    NativeMeta,
    StoredBlob,
    VineyardResolvers,
    as_packed,
    described,
    stored_blobs,
    typename_here,
)
from shoal.store._vineyard_opening import Opening
from shoal.store._vineyard_packing import Packed, pack

__all__ = ["VineyardStore"]

#: Seconds between looks for a name.
_WAIT = 0.05


class VineyardStore(BaseStore):
    """The objects of a Vineyard instance, by the path of its socket; any thread may use it.

    Its client is in ``environment``, the name or path of one (`shoal env create vineyard`), whose process starts with
    the first call; ``timeout`` is how many seconds a call may take.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str],
        *,
        trust: bool = False,
        environment: Environment | str | Path = "vineyard",
        timeout: float | None = None,
    ) -> None:
        self.socket = os.path.abspath(os.fspath(socket))
        """Where it listens."""
        self.trust = trust
        self._line = Line(self.socket, environment, timeout)
        if not _is_socket(self.socket):
            text = f"there is no Vineyard at {self.socket}: no such socket"
            raise StoreError(f"{text}; start one with `vineyardd --socket={self.socket}`, or name another")

    def __repr__(self) -> str:
        return f"<Vineyard at {self.socket}>"

    def __reduce__(self) -> Any:
        return _again, (self.socket, self.trust, self._line.environment, self._line.timeout)

    @property
    def instance_id(self) -> int:
        """The number of this instance among those that are joined."""
        return int(self._line.call("verbs:instance"))

    def create(self, meta: ObjectMeta, *, persist: bool = False) -> ObjectID:
        """Write an object that was described: one of ours, which no other program has a resolver for."""
        return self._written(as_packed(meta), persist=persist or meta.isglobal)

    def get_meta(self, object_id: Id) -> ObjectMeta:
        """Describe an object; its blobs are fetched when they are looked at."""
        wanted = ObjectID(object_id)
        found = self._metas([wanted])[0]
        if found is None:
            raise self._line.missing(wanted)
        return found

    def exists(self, object_id: Id) -> bool:
        """Tell whether there is an object."""
        return bool(self._line.call("verbs:exists", int(ObjectID(object_id))))

    def persist(self, object_id: Id) -> None:
        """Let an object be seen by all instances that are joined; so are its members."""
        wanted = ObjectID(object_id)
        if wanted.is_blob:
            raise StoreError(_BLOB.format(wanted))
        self._line.call("verbs:persist", int(wanted), about=wanted)

    def delete(self, objects: Id | Iterable[Id], *, force: bool = False, deep: bool = True) -> None:
        """Delete objects and their names.

        ``deep`` deletes members, too. Those that other objects have for members stay, unless with ``force``.
        """
        wanted = [ObjectID(each) for each in ([objects] if isinstance(objects, int | str) else objects)]
        for each in wanted:
            if not self.exists(each):
                raise self._line.missing(each)
        kept = self._line.call("verbs:delete", list(map(int, wanted)), force, deep)
        if kept:
            text = f"{ObjectID(kept[0])} is a member of another object, and Vineyard keeps it"
            raise StoreError(f"{text}; delete that one, or this one with force=True")

    def ids(self) -> list[ObjectID]:
        """List all objects; members and blobs are objects, too."""
        return sorted(ObjectID(number) for number, _ in self._line.call("verbs:ids"))

    def list_objects(self, pattern: str = "*", limit: int | None = None) -> list[ObjectMeta]:
        """Describe the objects whose type matches a pattern."""
        found = sorted((ObjectID(number), typename_here(typename)) for number, typename in self._line.call("verbs:ids"))
        chosen = [number for number, typename in found if fnmatchcase(typename, pattern)]
        return [meta for meta in self._metas(chosen[:limit]) if meta is not None]

    def migrate(self, object_id: Id) -> ObjectID:
        """Copy a remote object to this instance; one that is here already stays what it is."""
        wanted = ObjectID(object_id)
        return ObjectID(self._line.call("verbs:migrate", int(wanted), about=wanted))

    def put_name(self, object_id: Id, name: str) -> None:
        """Give a persisted object a name, in place of whatever had it."""
        wanted = ObjectID(object_id)
        check_name(name)
        if wanted.is_blob:
            raise StoreError(_BLOB.format(wanted))
        if not self.get_meta(wanted).persistent:
            raise StoreError(f"{wanted} is not persisted; persist it before it gets the name {name!r}")
        self._line.call("verbs:put_name", int(wanted), name, about=wanted)

    def get_name(self, name: str, wait: bool | float = False) -> ObjectID:
        """Give the id that a name stands for; with ``wait``, a truth or seconds, also when it comes later."""
        until = time.monotonic() + (float("inf") if wait is True else float(wait))
        while (found := self._line.call("verbs:get_name", name)) is None:
            if time.monotonic() >= until:
                raise self._no_name(name)
            time.sleep(_WAIT)
        return ObjectID(found)

    def list_names(self, pattern: str = "*") -> dict[str, ObjectID]:
        """List names and what they stand for."""
        names = sorted(self._line.call("verbs:list_names").items())
        return {name: ObjectID(number) for name, number in names if fnmatchcase(name, pattern)}

    def drop_name(self, name: str) -> None:
        """Forget a name; the object stays."""
        if name not in self.list_names():
            raise self._no_name(name)
        self._line.call("verbs:drop_name", name)

    def status(self) -> Status:
        """Count what there is; Vineyard tells nothing of who holds its memory."""
        told = self._line.call("verbs:status")
        return Status(
            path=self.socket,
            instance_id=told["instance"],
            memory_limit=told["limit"],
            memory_usage=told["usage"],
            aside=0,
            objects=told["objects"],
            persisted=told["persisted"],
            zombies=0,
            spilled=0,
            spilled_bytes=0,
            names=told["names"],
            holders=(),
            viewers={},
        )

    def clear(self) -> None:
        """Delete all objects and names, also those of other programs."""
        self._line.call("verbs:clear")

    def close(self) -> None:
        """End the process that has the connection; what was put stays. The next call starts another."""
        self._line.close()

    def bring(self, blobs: Sequence[StoredBlob]) -> None:
        """Fetch the bytes of blobs, all at once."""
        found = self._line.call("verbs:blobs", [int(blob.id or 0) for blob in blobs])
        for blob, data in zip(blobs, found, strict=True):
            blob.come(data)

    def _resolved(self, found: Object, options: dict[str, Any]) -> Any:
        """Give a copy: by Vineyard's own client, unless somebody has registered a resolver for the type."""
        resolver = VineyardResolvers(get_current_resolvers(), self._fetched)
        if not isinstance(found.meta, NativeMeta) and (coming := stored_blobs(found.meta)):
            self.bring(coming)
        return resolver.run(found, **options)

    def _fetched(self, found: Object) -> Any:
        """Get a value of a type of Vineyard's."""
        packed = self._line.call("get:get", int(found.id or 0), about=found.id)
        resolver = VineyardResolvers(get_current_resolvers(), self._fetched)
        return found if packed["form"] == "object" else Opening(self, resolver).open(packed)

    def _placed(self, value: Any, options: dict[str, Any], *, persist: bool) -> ObjectID:
        """Put a value by Vineyard's own client, where it has a type for it."""
        return self._written(pack(self, value, options), persist=persist)

    def _written(self, packed: Packed, *, persist: bool) -> ObjectID:
        if packed["form"] == "bytes" and persist:
            raise StoreError(_BLOB.format("what is put as bytes"))
        return ObjectID(self._line.call("put:put", packed, persist))

    def _metas(self, wanted: Sequence[ObjectID]) -> list[ObjectMeta | None]:
        told = self._line.call("verbs:describe", list(map(int, wanted)))
        return [None if each is None else described(self, each) for each in told]

    def _no_name(self, name: str) -> ObjectNotFoundError:
        return no_name(name, self.list_names(), f"the Vineyard at {self.socket}")


_BLOB = "{} is a blob of Vineyard's, which can neither be persisted nor have a name; put it in a tuple, or as an array"


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _again(socket: str, trust: bool, environment: Any, timeout: float | None) -> VineyardStore:
    return VineyardStore(socket, trust=trust, environment=environment, timeout=timeout)
