"""What the server of a store does for others, one function a verb. Whatever comes in is checked: it is from elsewhere.

Others see what is persisted. Who puts something through the server sees that as well, for as long as he holds a stream
open: a session. Questions that are not ``joined`` are answered from this store alone, or servers would ask in circles.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Any

from shoal._flight import pack
from shoal.errors import ObjectNotFoundError, StoreError
from shoal.store._arriving import arrive
from shoal.store._flight_blobs import pieces
from shoal.store._flight_wire import as_id, as_size, blobs_of, described, layout, read_meta
from shoal.store._folder import is_persisted
from shoal.store._ids import ObjectID
from shoal.store._joined import JoinedStore
from shoal.store._meta import Blob, ObjectMeta
from shoal.store._peers import Peer
from shoal.store._store import Store

__all__ = ["Verbs"]

_Body = dict[str, Any]
_FEW = 2**16


class Verbs:
    """Answers for one store."""

    def __init__(self, path: str, me: Callable[[], Peer]) -> None:
        self.store, self.alone = JoinedStore(path), Store(path)
        self._me = me
        self._guests: dict[str, set[ObjectID]] = {}
        self._lock = threading.Lock()

    def answer(self, verb: str, body: _Body) -> list[bytes]:
        """Do what is asked; a small object comes along with its description."""
        if verb == "describe":
            meta = self.meta(body)
            return [pack(self._document(meta)), *_few_bytes(meta)]
        known = _VERBS.get(verb)
        if known is None:
            raise StoreError(f"the server of the store does not know the verb {verb!r:.40}; is it of another version?")
        return [pack(known(self, body))]

    def meta(self, body: _Body) -> ObjectMeta:
        """Describe an object that whoever asks may see."""
        wanted = as_id(body.get("id"))
        joined = bool(body.get("joined"))
        meta = (self.store if joined else self.alone).get_meta(wanted)
        if not meta.persistent and not (joined and self._is_guest(wanted)):
            text = f"there is no persisted object {wanted} in the store of {socket.gethostname()}"
            raise ObjectNotFoundError(f"{text}; others see only what is persisted")
        return meta

    def seen(self, body: _Body) -> ObjectID:
        """Name an object that whoever asks may see; nobody looks at it any more when it is named."""
        self.meta(body)
        return as_id(body.get("id"))

    @contextmanager
    def session(self, name: str) -> Iterator[None]:
        """Keep what a guest puts until he goes."""
        with self._lock:
            if name in self._guests:
                raise StoreError("this session is held already")
            self._guests[name] = set()
        try:
            yield
        finally:
            with self._lock:
                left = self._guests.pop(name)
            for object_id in left:
                self._leave(object_id)

    def put(self, head: _Body, receive: Callable[[Callable[[int, Any], None], int], None]) -> ObjectID:
        """Take an object whose bytes come: all or nothing."""
        sizes: list[int] = []
        meta = read_meta(head, lambda document: [_Announced(as_size(size), sizes) for _, size in document.blobs])
        persist = bool(head.get("persist"))
        guest = None if persist else self._guest(head)

        def fill(write: Callable[[int, Any], None]) -> None:
            receive(write, layout(sizes)[1])

        made = arrive(self.store if head.get("joined") else self.alone, meta, fill, persist=persist)
        if guest is not None:
            self._add(guest, made)
        return made

    def _hello(self, body: _Body) -> _Body:
        return {"instance": self.alone.instance_id, "hostname": socket.gethostname()}

    def _persist(self, body: _Body) -> _Body:
        self.store.persist(self.seen(body))
        return {}

    def _delete(self, body: _Body) -> _Body:
        for each in _list(body, "ids"):
            wanted = self.seen({**body, "id": each})
            # By the joined store, because members may be elsewhere; the object itself is where it was found.
            self.store.delete(wanted, force=bool(body.get("force")), deep=bool(body.get("deep")))
        return {}

    def _needed(self, body: _Body) -> _Body:
        return {"needed": self.alone.is_needed(as_id(body.get("id")))}

    def _ids(self, body: _Body) -> _Body:
        found = {object_id for object_id, path in self.alone.folder.ids() if is_persisted(path)}
        if body.get("joined"):
            with self._lock:
                found |= {each for guest in self._guests.values() for each in guest}
        return {"ids": [str(each) for each in sorted(found)]}

    def _objects(self, body: _Body) -> _Body:
        pattern, limit = _text(body, "pattern"), body.get("limit")
        found: list[_Body] = []
        for each in self._ids(body)["ids"]:
            if limit is not None and len(found) >= as_size(limit):
                break
            with suppress(ObjectNotFoundError):
                meta = self.meta({**body, "id": each})
                if fnmatchcase(meta.typename, pattern):
                    found.append({**self._document(meta), "id": each})
        return {"objects": found}

    def _migrate(self, body: _Body) -> _Body:
        wanted, guest = self.seen(body), self._guest(body)
        made = self.store.migrate(wanted)
        if made != wanted:
            self._add(guest, made)
        return {"id": str(made)}

    def _put_name(self, body: _Body) -> _Body:
        (self.store if body.get("joined") else self.alone).put_name(self.seen(body), _text(body, "name"))
        return {}

    def _get_name(self, body: _Body) -> _Body:
        return {"id": str((self.store if body.get("joined") else self.alone).get_name(_text(body, "name")))}

    def _list_names(self, body: _Body) -> _Body:
        found = self.alone.list_names(_text(body, "pattern"))
        return {"names": {name: str(each) for name, each in found.items()}}

    def _drop_name(self, body: _Body) -> _Body:
        (self.store if body.get("joined") else self.alone).drop_name(_text(body, "name"))
        return {}

    def _status(self, body: _Body) -> _Body:
        return asdict(self.alone.status())

    def _clear(self, body: _Body) -> _Body:
        for name in self.alone.list_names():
            with suppress(ObjectNotFoundError):
                self.alone.drop_name(name)
        for each in self._ids(body)["ids"]:
            with suppress(ObjectNotFoundError):
                self.alone.delete(each)
        return {}

    def _join(self, body: _Body) -> _Body:
        told = [Peer.told(words) for words in _list(body, "peers")]
        me = self._me()
        for peer in told[:1]:
            if peer.instance_id == me.instance_id and peer.url != me.url:
                raise StoreError(f"{peer.url} has the same number as {me.url}: is its folder a copy?")
            self._check(peer)
        known = [me, *self.store.peers.all()]
        self.store.peers.learn(told)
        return {"peers": [peer.words() for peer in known]}

    def _leave_peers(self, body: _Body) -> _Body:
        self.store.peers.forget(_as_number(body.get("instance")))
        return {}

    def _check(self, peer: Peer) -> None:
        """See whether one who wants to join can be reached from here."""
        try:
            found = self.store.peers.store(peer).instance_id
        except StoreError as error:
            text = f"{socket.gethostname()} cannot reach {peer.url}, which wants to join: {error}"
            raise StoreError(f"{text}; --advertise says by which address others reach it") from None
        if found != peer.instance_id:
            raise StoreError(f"{peer.url}, which wants to join, is seen from here as another store")

    def _document(self, meta: ObjectMeta) -> _Body:
        return {**described(meta), "instance": meta.instance_id, "persistent": meta.persistent}

    def _guest(self, body: _Body) -> str:
        name = body.get("session")
        if not isinstance(name, str) or name not in self._guests:
            raise StoreError("an object that is not persisted is kept for a session, and there is none; connect anew")
        return name

    def _add(self, guest: str, object_id: ObjectID) -> None:
        with self._lock:
            if guest in self._guests:
                self._guests[guest].add(object_id)
                return
        self._leave(object_id)

    def _leave(self, object_id: ObjectID) -> None:
        with suppress(ObjectNotFoundError):
            if not self.alone.get_meta(object_id).persistent:
                self.alone.delete(object_id)

    def _is_guest(self, object_id: ObjectID) -> bool:
        with self._lock:
            return any(object_id in guest for guest in self._guests.values())


def _few_bytes(meta: ObjectMeta) -> list[bytes]:
    """Give the bytes of an object if they are few, and here."""
    blobs = blobs_of(meta)
    _, size = layout([blob.nbytes for blob in blobs])
    return [b"".join(pieces(meta, blobs, 0, size))] if blobs and meta.local and size <= _FEW else []


class _Announced(Blob):
    """A blob whose bytes are going to come."""

    __slots__ = ("_size",)

    def __init__(self, size: int, sizes: list[int]) -> None:
        self._size, self.id = size, None
        sizes.append(size)

    @property
    def nbytes(self) -> int:
        """Count them."""
        return self._size


def _as_number(value: Any) -> int:
    """Take the number of a store that somebody sent."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise StoreError(f"{value!r:.60} is not the number of a store")
    return value


def _list(body: _Body, key: str) -> list[Any]:
    found = body.get(key)
    if not isinstance(found, list):
        raise StoreError(f"{key} is to be a list")
    return found


def _text(body: _Body, key: str) -> str:
    found = body.get(key)
    if not isinstance(found, str):
        raise StoreError(f"{key} is to be a text")
    return found


_VERBS: dict[str, Callable[[Verbs, _Body], _Body]] = {
    "clear": Verbs._clear,
    "delete": Verbs._delete,
    "drop_name": Verbs._drop_name,
    "get_name": Verbs._get_name,
    "hello": Verbs._hello,
    "ids": Verbs._ids,
    "join": Verbs._join,
    "leave": Verbs._leave_peers,
    "list_names": Verbs._list_names,
    "migrate": Verbs._migrate,
    "needed": Verbs._needed,
    "objects": Verbs._objects,
    "persist": Verbs._persist,
    "put_name": Verbs._put_name,
    "status": Verbs._status,
}
