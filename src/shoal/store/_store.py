"""The store of this host: objects in a folder in shared memory, for all processes of one user, without a server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from typing import Any

from shoal.errors import ObjectNotFoundError, StoreError
from shoal.store._base import BaseStore, Id
from shoal.store._collect import collect
from shoal.store._folder import Config, Folder, is_persisted, names_in
from shoal.store._format import Laid, lay_out, parse
from shoal.store._ids import ObjectID
from shoal.store._lease import Lease, lease_of, own_lease
from shoal.store._mapping import Opened, open_file
from shoal.store._meta import Link, ObjectMeta
from shoal.store._names import Names, check_name
from shoal.store._removal import discard, forget_links, forget_members
from shoal.store._room import Room
from shoal.store._sharing import Sharing
from shoal.store._status import Status, status
from shoal.store._writing import seal

__all__ = ["Store", "links_of"]


class Store(BaseStore):
    """Objects that any process of this user on this host can have, without a copy.

    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp(), memory=10_000_000)
    >>> made = store.put({"x": [1, 2]}, persist=True)
    >>> store.get(made), store.exists(made)
    ({'x': [1, 2]}, True)
    >>> store.delete(made)
    >>> store.exists(made)
    False
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        memory: int | None = None,
        spill: str | bool | None = None,
        trust: bool = False,
    ) -> None:
        self.folder = Folder(path, memory, spill)
        self.trust = trust
        self._names = Names(self.folder)
        collect(self.folder)

    def __repr__(self) -> str:
        return f"<store at {self.folder.path}>"

    def __reduce__(self) -> Any:
        return _again, (self.folder.path, self.trust)

    @property
    def instance_id(self) -> int:
        """The number of this store among those that are joined."""
        return self.folder.instance_id

    @property
    def config(self) -> Config:
        """What all processes agree on: how much memory it may use, and where the rest goes."""
        return self.folder.config

    def create(self, meta: ObjectMeta, *, persist: bool = False) -> ObjectID:
        """Write an object that was described; it can be seen when it is complete."""
        lease = lease_of(self.folder)
        object_id = lease.new_id(blob=meta.typename == "vineyard::Blob")
        sharing = Sharing(self.folder, object_id)
        laid = lay_out(meta, sharing.new_id, sharing.place)
        persist = persist or meta.isglobal
        try:
            self._write(object_id, laid, persist=persist, missing_ok=meta.isglobal)
        except BaseException:
            forget_members(self.folder, object_id, laid.links)
            forget_links(self.folder, object_id)
            raise
        return object_id

    def _write(self, object_id: ObjectID, laid: Laid, *, persist: bool, missing_ok: bool) -> None:
        self.adopt(object_id, laid.links, persist=persist, missing_ok=missing_ok)
        path = self.folder.persisted(object_id) if persist else self.folder.transient(object_id)
        if not lease_of(self.folder).recycler.write(laid.parts, laid.size, path):
            with self.room_for(laid.size):
                seal(laid.parts, path, self.folder)

    def adopt(self, parent: ObjectID, members: frozenset[ObjectID], *, persist: bool, missing_ok: bool) -> None:
        """Note the members of an object that is going to be; they stay if it is persisted."""
        self._note_parents(members, parent)
        for member in members if persist else ():
            self.persist(member, missing_ok=missing_ok)

    @contextmanager
    def room_for(self, size: int) -> Iterator[None]:
        """Have room for an object while it is written."""
        room = self._room(lease_of(self.folder))
        room.take(size)
        try:
            yield
        finally:
            room.taken(size)

    def get_meta(self, object_id: Id) -> ObjectMeta:
        """Describe an object."""
        wanted = ObjectID(object_id)
        opened = self._open(wanted)
        if opened is None:
            raise self._missing(wanted)
        return self._parsed(wanted, opened)

    def exists(self, object_id: Id) -> bool:
        """Tell whether there is an object."""
        return self.is_here(object_id)

    def is_here(self, object_id: Id) -> bool:
        """Tell whether there is an object in the store of this host."""
        places = self.folder.places(ObjectID(object_id))
        return any(os.path.exists(path) for path in places * 2)  # it may be moved from one to the other

    def persist(self, object_id: Id, *, missing_ok: bool = False) -> None:
        """Let an object stay when the process that put it ends; so do its members."""
        wanted = ObjectID(object_id)
        if not self._is_persisted(wanted) and not self._rename(wanted):
            if missing_ok:
                return
            raise self._missing(wanted)
        for member in links_of(self.get_meta(wanted)):
            self.persist(member, missing_ok=True)

    def delete(self, objects: Id | Iterable[Id], *, force: bool = False, deep: bool = True) -> None:
        """Delete objects.

        ``deep`` deletes members, too, but not those that other objects have for members, unless with ``force``. Who
        looks at one keeps what he sees.
        """
        for each in [objects] if isinstance(objects, int | str) else objects:
            self._delete(ObjectID(each), force=force, deep=deep)

    def ids(self) -> list[ObjectID]:
        """List all objects."""
        return sorted({object_id for object_id, _ in self.folder.ids()})

    def migrate(self, object_id: Id) -> ObjectID:
        """Copy a remote object to this host; one that is here already stays what it is."""
        return ObjectID(object_id)

    def put_name(self, object_id: Id, name: str) -> None:
        """Give a persisted object a name, in place of whatever had it."""
        wanted = ObjectID(object_id)
        check_name(name)
        if wanted.is_blob:
            raise StoreError(f"{wanted} is a blob, which cannot have a name")
        if not self.exists(wanted):
            raise self._missing(wanted)
        if not self.get_meta(wanted).persistent:
            raise StoreError(f"{wanted} goes when its process ends; persist it before it gets the name {name!r}")
        self._names.put(name, wanted)

    def get_name(self, name: str, wait: bool | float = False) -> ObjectID:
        """Give the id that a name stands for; with ``wait``, a truth or seconds, also when it comes later."""
        return self._names.get(name, wait)

    def list_names(self, pattern: str = "*") -> dict[str, ObjectID]:
        """List names and what they stand for."""
        return {name: number for name, number in sorted(self._names.all().items()) if fnmatchcase(name, pattern)}

    def drop_name(self, name: str) -> None:
        """Forget a name; the object stays."""
        self._names.drop(name)

    def status(self) -> Status:
        """Count what there is, and say what holds memory."""
        return status(self.folder)

    def collect(self) -> int:
        """Remove what dead processes left, and what nobody looks at any more; give the bytes that came free."""
        return collect(self.folder)

    def clear(self) -> None:
        """Delete all objects and names; what somebody looks at stays for him."""
        for name in self._names.all():
            with suppress(ObjectNotFoundError):
                self._names.drop(name)
        for object_id, path in list(self.folder.ids()):
            discard(self.folder, object_id, path)
        collect(self.folder)

    def _open(self, wanted: ObjectID) -> Opened | None:
        path = self.folder.path
        for _ in range(3):  # it may be moved while it is looked for
            for place in (self.folder.persisted(wanted), self.folder.transient(wanted)):
                if (opened := open_file(place, path, wanted)) is not None:
                    return opened
            for place in self.folder.places(wanted)[2:]:
                if (opened := open_file(place, path, wanted)) is not None:
                    return opened
        return None

    def _parsed(self, wanted: ObjectID, opened: Opened) -> ObjectMeta:
        def stranger(owner: ObjectID) -> Opened:
            there = open_file(f"{self.folder.shares(wanted)}/{owner.digits}", self.folder.path, owner)
            if there is None:
                raise ObjectNotFoundError(f"{wanted} shares bytes of {owner}, which are gone")
            return there

        meta = parse(opened, wanted, stranger)
        meta.id, meta.instance_id = wanted, self.folder.instance_id
        meta.persistent = is_persisted(opened.path)
        return meta

    def _room(self, lease: Lease) -> Room:
        with lease.lock:
            lease.room = lease.room or Room(self.folder, lease)
            return lease.room

    def _rename(self, wanted: ObjectID) -> bool:
        for _ in range(3):
            for root in self.folder.roots:
                with suppress(FileNotFoundError):
                    os.rename(f"{root}/t/{wanted.lease:010x}/{wanted.digits}", f"{root}/p/{wanted.digits}")
                    return True
        return self._is_persisted(wanted)

    def _is_persisted(self, wanted: ObjectID) -> bool:
        return any(os.path.exists(f"{root}/p/{wanted.digits}") for root in self.folder.roots)

    def _delete(self, wanted: ObjectID, *, force: bool, deep: bool) -> None:
        lease = own_lease(self.folder)
        recycler = lease.recycler if lease is not None and lease.number == wanted.lease else None
        for _ in range(3):  # it may be moved while it is looked for
            tried = [(path, discard(self.folder, wanted, path, recycler)) for path in self.folder.places(wanted)]
            if gone := [(path, what.members) for path, what in tried if what is not None]:
                break
        else:
            raise self._missing(wanted)
        if any(is_persisted(path) for path, _ in gone):
            self._names.forget(wanted)
        for member in gone[0][1] if deep else ():
            if force or not self.is_needed(member):
                with suppress(ObjectNotFoundError):
                    self._delete(member, force=force, deep=True)

    def is_needed(self, member: ObjectID) -> bool:
        """Tell whether any object has another for a member."""
        parents = names_in(self.folder.parents(member))
        return any(self.is_here(int(parent, 16)) for parent in parents)

    def _note_parents(self, members: Iterable[ObjectID], parent: ObjectID) -> None:
        for member in members:
            home = self.folder.parents(member)
            while True:
                with suppress(FileExistsError):  # makedirs would look again, and fail if it is removed meanwhile
                    os.mkdir(home, mode=0o700)
                with suppress(FileNotFoundError):  # it was empty, and removed
                    os.close(os.open(f"{home}/{parent.digits}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
                    break

    def _missing(self, wanted: ObjectID) -> ObjectNotFoundError:
        why = "it was deleted, or never persisted and its process has ended"
        return ObjectNotFoundError(f"there is no object {wanted} in the store at {self.folder.path}: {why}")


def links_of(meta: ObjectMeta) -> list[ObjectID]:
    """List the members of an object that have a life of their own."""
    found: list[ObjectID] = []
    for member in meta.members.values():
        if isinstance(member, Link):
            found.append(member.id)
        elif isinstance(member, ObjectMeta):
            found += links_of(member)
    return found


def _again(path: str, trust: bool) -> Store:
    return Store(path, trust=trust)
