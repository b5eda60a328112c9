"""The store of another host, as its server gives it."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterable
from typing import Any

from shoal._ending import ends_with_program
from shoal._flight import certificate_text, secret_text
from shoal.errors import ObjectNotFoundError
from shoal.store._base import BaseStore, Id
from shoal.store._flight_blobs import Cargo, messages, pieces
from shoal.store._flight_line import Line
from shoal.store._flight_wire import Document, as_id, blobs_of, described, layout, read_meta
from shoal.store._ids import ObjectID
from shoal.store._meta import ObjectMeta
from shoal.store._status import Holder, Status

__all__ = ["RemoteStore"]

_POLL = 0.1


class RemoteStore(BaseStore):
    """A store that is reached through `shoal store serve`, with all stores that it has joined.

    ``token`` is a text, or the `Path` of a file that holds it; ``tls_root`` the path of a certificate to trust, or its
    text. Objects that are not persisted go when the connection is closed, or this process ends.

    >>> import tempfile
    >>> from shoal.store import StoreServer
    >>> server = StoreServer(tempfile.mkdtemp(), token="at least sixteen characters")
    >>> with RemoteStore(server.url, token="at least sixteen characters") as store:
    ...     store.get(store.put([1, 2, 3]))
    [1, 2, 3]
    >>> server.close()
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | os.PathLike[str] | None = None,
        tls_root: str | os.PathLike[str] | None = None,
        trust: bool = False,
        joined: bool = True,
    ) -> None:
        """Have a store; one that is not ``joined`` answers for itself alone, and soon."""
        self.url, self.trust = url, trust
        self._token, self._tls_root, self._joined = secret_text(token), certificate_text(tls_root), joined
        self._line = Line(url, self._token, self._tls_root, hasty=not joined)
        self._session = secrets.token_hex(16)
        self._held: Any = None
        self._lock = threading.Lock()
        self._instance_id: int | None = None
        ends_with_program(self)

    def __repr__(self) -> str:
        return f"<store at {self.url}>"

    def __reduce__(self) -> Any:
        return _again, (self.url, self._token, self._tls_root, self.trust, self._joined)

    @property
    def instance_id(self) -> int:
        """The number of that store among those that are joined."""
        if self._instance_id is None:
            self._instance_id = int(self.hello()["instance"])
        return self._instance_id

    def hello(self) -> dict[str, Any]:
        """Ask who is there."""
        return self._ask("hello")

    def create(self, meta: ObjectMeta, *, persist: bool = False) -> ObjectID:
        """Send an object that was described; it can be seen there when it is complete."""
        blobs = blobs_of(meta)
        _, size = layout([blob.nbytes for blob in blobs])
        head = {**described(meta), "persist": persist or meta.isglobal, "joined": self._joined}
        if not head["persist"]:
            head["session"] = self._hold()
        return as_id(self._line.send(head, messages(pieces(meta, blobs, 0, size)), size)["id"])

    def get_meta(self, object_id: Id) -> ObjectMeta:
        """Describe an object; its bytes come when they are looked at."""
        wanted = ObjectID(object_id)
        found, data = self._line.call_with_bytes("describe", self._body(id=str(wanted)))
        return self._described(found, wanted, data)

    def exists(self, object_id: Id) -> bool:
        """Tell whether there is an object."""
        try:
            self._ask("describe", id=str(ObjectID(object_id)))
        except ObjectNotFoundError:
            return False
        return True

    def persist(self, object_id: Id) -> None:
        """Let an object stay, and be seen by all."""
        self._ask("persist", id=str(ObjectID(object_id)))

    def delete(self, objects: Id | Iterable[Id], *, force: bool = False, deep: bool = True) -> None:
        """Delete objects."""
        each = [objects] if isinstance(objects, int | str) else objects
        ids = [str(ObjectID(one)) for one in each]
        self._line.call("delete", self._body(ids=ids, force=force, deep=deep), again=False)

    def ids(self) -> list[ObjectID]:
        """List all objects that can be seen."""
        return [as_id(one) for one in self._ask("ids")["ids"]]

    def list_objects(self, pattern: str = "*", limit: int | None = None) -> list[ObjectMeta]:
        """Describe the objects whose type matches a pattern."""
        found = self._ask("objects", pattern=pattern, limit=limit)["objects"]
        return [self._described(one, as_id(one["id"])) for one in found]

    def migrate(self, object_id: Id) -> ObjectID:
        """Copy an object of another store to that one; one that is there already stays what it is."""
        body = self._body(id=str(ObjectID(object_id)), session=self._hold())
        return as_id(self._line.call("migrate", body, again=False)["id"])

    def put_name(self, object_id: Id, name: str) -> None:
        """Give a persisted object a name, in place of whatever had it."""
        self._ask("put_name", id=str(ObjectID(object_id)), name=name)

    def get_name(self, name: str, wait: bool | float = False) -> ObjectID:
        """Give the id that a name stands for; with ``wait``, a truth or seconds, also when it comes later."""
        until = time.monotonic() + (float("inf") if wait is True else float(wait))
        while True:
            try:
                return as_id(self._ask("get_name", name=name)["id"])
            except ObjectNotFoundError:
                if time.monotonic() >= until:
                    raise
                time.sleep(_POLL)

    def list_names(self, pattern: str = "*") -> dict[str, ObjectID]:
        """List names and what they stand for."""
        return {name: as_id(one) for name, one in self._ask("list_names", pattern=pattern)["names"].items()}

    def drop_name(self, name: str) -> None:
        """Forget a name; the object stays."""
        self._line.call("drop_name", self._body(name=name), again=False)

    def status(self) -> Status:
        """Count what there is."""
        found = self._ask("status")
        holders = tuple(Holder(**each) for each in found["holders"])
        viewers = {int(pid): count for pid, count in found["viewers"].items()}
        return Status(**{**found, "holders": holders, "viewers": viewers})

    def clear(self) -> None:
        """Delete all objects and names that can be seen there; those of joined stores stay."""
        self._ask("clear")

    def needed(self, object_id: ObjectID) -> bool:
        """Tell whether an object there has another one for a member."""
        return bool(self._ask("needed", id=str(object_id))["needed"])

    def join(self, peers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Tell that store of others, of which the first is the one who speaks; it tells those that it knows."""
        return list(self._ask("join", peers=peers)["peers"])

    def leave(self, instance_id: int) -> None:
        """Tell that store that another one is not to be reached any more."""
        self._line.call("leave", {"instance": instance_id}, again=False)

    def close(self) -> None:
        """End the connection; what was put and not persisted goes."""
        with self._lock:
            held, self._held = self._held, None
        if held is not None:
            held.cancel()

    def _ask(self, verb: str, **body: Any) -> dict[str, Any]:
        return self._line.call(verb, self._body(**body))

    def _body(self, **body: Any) -> dict[str, Any]:
        return {**body, "joined": self._joined}

    def _described(self, found: dict[str, Any], wanted: ObjectID, data: memoryview | None = None) -> ObjectMeta:
        def make(document: Document) -> list[Any]:
            return list(Cargo(self._line, wanted, document, joined=self._joined, data=data).blobs)

        meta = read_meta(found, make)
        meta.id, meta.instance_id = wanted, int(found["instance"])
        meta.persistent, meta.local = bool(found["persistent"]), False
        return meta

    def _hold(self) -> str:
        """Hold a stream open, by which the server knows that somebody needs what is not persisted."""
        with self._lock:
            if self._held is None:
                self._held = self._line.hold({"session": self._session})
        return self._session


def _again(url: str, token: str | None, tls_root: str | None, trust: bool, joined: bool) -> RemoteStore:
    return RemoteStore(url, token=token, tls_root=tls_root, trust=trust, joined=joined)
