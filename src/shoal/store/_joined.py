"""The store of this host together with those that it has joined: one namespace.

What is here is never asked for elsewhere. Only persisted objects of others can be seen.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from shoal.errors import ObjectNotFoundError, StoreError, StoreFullError
from shoal.store._arriving import arrive, copy_of
from shoal.store._base import Id
from shoal.store._folder import StoreWarning
from shoal.store._ids import ObjectID
from shoal.store._meta import Link, ObjectMeta
from shoal.store._names import check_name
from shoal.store._peers import Asked, Peers
from shoal.store._store import Store, links_of

__all__ = ["JoinedStore"]

_WAIT = 0.25
_MOVERS = 4


class JoinedStore(Store):
    """The store of this host, which finds what it has not got in the stores of others."""

    def __reduce__(self) -> Any:
        return _again, (self.folder.path, self.trust)

    @cached_property
    def peers(self) -> Peers:
        """The stores that are joined."""
        return Peers(self.folder)

    def put(self, value: Any, *, spread: bool = False, **options: Any) -> ObjectID:
        """Put a value; with ``spread`` into the joined store that has most room, if there is none here.

        There it is persisted, because nobody here could see it else.
        """
        try:
            return super().put(value, **options)
        except StoreFullError as error:
            rooms = self._rooms_elsewhere() if spread else []
            if not rooms:
                raise
            _, url = rooms[0]
            there = next(self.peers.store(peer) for peer in self.peers.all() if peer.url == url)
            name = options.pop("name", None)
            made = there.put(value, **{"trust": self.trust, **options, "persist": True})
            warnings.warn(f"{error}; {made} was put into {url} instead, and persisted", StoreWarning, stacklevel=2)
            if name is not None:
                self.put_name(made, name)
            return made

    def create(self, meta: ObjectMeta, *, persist: bool = False) -> ObjectID:
        """Write an object that was described; if there is no room, say which joined store has some."""
        try:
            return super().create(meta, persist=persist)
        except StoreFullError as error:
            fitting = [(room, url) for room, url in self._rooms_elsewhere() if room > meta.nbytes]
            if not fitting:
                raise
            room, url = fitting[0]
            text = f"{error}. The joined store {url} has {room >> 20} MiB free"
            raise StoreFullError(f"{text}: put(..., spread=True), or connect({url!r}, token=...).put(...)") from None

    def get_meta(self, object_id: Id) -> ObjectMeta:
        """Describe an object, wherever it is."""
        wanted = ObjectID(object_id)
        try:
            return super().get_meta(wanted)
        except ObjectNotFoundError as error:
            return self.peers.holder(wanted, error)[1]

    def exists(self, object_id: Id) -> bool:
        """Tell whether there is an object, here or in a joined store that can be asked."""
        wanted = ObjectID(object_id)
        return self.is_here(wanted) or bool(self.peers.ask(lambda store: store.get_meta(wanted), first=True).answers)

    def persist(self, object_id: Id, *, missing_ok: bool = False) -> None:
        """Let an object stay when the process that put it ends; what can be seen of others is persisted."""
        if self.is_here(object_id) or missing_ok:
            super().persist(object_id, missing_ok=missing_ok)
        else:
            self.get_meta(object_id)

    def migrate(self, object_id: Id, *, persist: bool = False) -> ObjectID:
        """Copy a remote object to this host, with its members; what is here already stays what it is.

        The copy has an id of its own, and goes when this process ends, unless it is persisted. Of a global object all
        partitions that are elsewhere are copied.
        """
        meta = self.get_meta(object_id)
        moved = self._moved_members(meta, persist)
        if meta.local and all(old == new for old, new in moved.items()):
            if persist:
                self.persist(ObjectID(object_id))
            return ObjectID(object_id)
        made = copy_of(meta, link=lambda link: Link(moved[link.id]))
        if "owners_" in made:
            made["owners_"] = [self.instance_id] * len(made["owners_"])
        return arrive(self, made, _filling(meta), persist=persist)

    def put_name(self, object_id: Id, name: str) -> None:
        """Give a persisted object a name, in place of whatever had it; the name is kept where the object is."""
        wanted = ObjectID(object_id)
        check_name(name)
        if self.is_here(wanted):
            if not wanted.is_blob and super().get_meta(wanted).persistent:
                self._drop_elsewhere(name)
            super().put_name(wanted, name)
            return
        holder, _ = self.peers.holder(wanted, self._missing(wanted))
        self._drop_elsewhere(name)
        with suppress(ObjectNotFoundError):
            super().drop_name(name)
        holder.put_name(wanted, name)

    def get_name(self, name: str, wait: bool | float = False) -> ObjectID:
        """Give the id that a name stands for, here or elsewhere; with ``wait`` also when it comes later."""
        until = time.monotonic() + (float("inf") if wait is True else float(wait))
        pause = 0.0
        while True:
            try:
                return super().get_name(name, pause)
            except ObjectNotFoundError as error:
                missing = error
            asked = self.peers.ask(lambda store: store.get_name(name), first=True)
            if asked.answers:
                return asked.answers[0][1]
            pause = min(_WAIT, until - time.monotonic())
            if pause <= 0:
                raise ObjectNotFoundError(f"{missing}{asked.words()}") from None

    def list_names(self, pattern: str = "*", *, joined: bool = False) -> dict[str, ObjectID]:
        """List names and what they stand for; ``joined`` with those of all joined stores."""
        found = super().list_names(pattern)
        if joined:
            for _, names in _heard(self.peers.ask(lambda store: store.list_names(pattern))).answers:
                found = {**names, **found}
        return dict(sorted(found.items()))

    def list_objects(self, pattern: str = "*", limit: int | None = None, *, joined: bool = False) -> list[ObjectMeta]:
        """Describe the objects whose type matches a pattern; ``joined`` with those of all joined stores."""
        found = [meta for meta in map(self._described, self.ids()) if meta and fnmatchcase(meta.typename, pattern)]
        if joined:
            for _, others in _heard(self.peers.ask(lambda store: store.list_objects(pattern, limit))).answers:
                found += others
        return found[:limit]

    def drop_name(self, name: str) -> None:
        """Forget a name, wherever it is kept; the object stays."""
        try:
            super().drop_name(name)
        except ObjectNotFoundError as error:
            asked = self.peers.ask(lambda store: store.drop_name(name))
            if not asked.answers:
                raise ObjectNotFoundError(f"{error}{asked.words()}") from None

    def collect(self) -> int:
        """Remove what dead processes left, and forget joined stores that cannot be reached; give the bytes."""
        self.peers.forget_silent()
        return super().collect()

    def _delete(self, wanted: ObjectID, *, force: bool, deep: bool) -> None:
        if self.is_here(wanted):
            is_global = len(self.peers) > 0 and self._is_global(wanted)
            super()._delete(wanted, force=force, deep=deep)
            if is_global:  # others may have copies of its description
                self.peers.ask(lambda store: store.delete(wanted, force=force, deep=deep))
            return
        holder, _ = self.peers.holder(wanted, self._missing(wanted))
        holder.delete(wanted, force=force, deep=deep)

    def is_needed(self, member: ObjectID) -> bool:
        """Tell whether any object has another for a member, in all stores that can be asked."""
        if super().is_needed(member):
            return True
        if self.is_here(member) and not self._is_persisted(member):
            return False  # nobody else could see it
        return any(needed for _, needed in self.peers.ask(lambda store: store.needed(member)).answers)

    def _is_global(self, wanted: ObjectID) -> bool:
        with suppress(StoreError):  # one that is damaged can be deleted, too
            return super().get_meta(wanted).isglobal
        return False

    def _moved_members(self, meta: ObjectMeta, persist: bool) -> dict[ObjectID, ObjectID]:
        links = sorted(set(links_of(meta)))
        with ThreadPoolExecutor(_MOVERS, thread_name_prefix="shoal-migrate") as pool:
            moved = list(pool.map(lambda link: self.migrate(link, persist=persist), links))
        return dict(zip(links, moved, strict=True))

    def _described(self, object_id: ObjectID) -> ObjectMeta | None:
        with suppress(ObjectNotFoundError):
            return super().get_meta(object_id)
        return None

    def _drop_elsewhere(self, name: str) -> None:
        _heard(self.peers.ask(lambda store: store.drop_name(name)))

    def _rooms_elsewhere(self) -> list[tuple[int, str]]:
        """List how much room joined stores have, and their URLs; the roomiest first."""
        found = self.peers.ask(lambda store: store.status()).answers
        rooms = [(each.memory_limit - each.memory_usage - each.aside, peer.url) for peer, each in found]
        return sorted(rooms, reverse=True)


def _heard(asked: Asked[Any]) -> Asked[Any]:
    """Say who could not be asked."""
    if asked.silent:
        warnings.warn(asked.words().removeprefix("; "), StoreWarning, stacklevel=4)
    return asked


def _filling(meta: ObjectMeta) -> Callable[[Callable[[int, Any], None]], None]:
    from shoal.store._flight_blobs import write_all

    return lambda write: write_all(meta, write)


def _again(path: str, trust: bool) -> JoinedStore:
    return JoinedStore(path, trust=trust)
