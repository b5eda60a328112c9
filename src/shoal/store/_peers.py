"""The stores that this one has joined: a small file for each, so that every process of the host knows them.

There is no daemon to ask: who does not find an object here asks the servers of the others, all at once.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from shoal.errors import ObjectNotFoundError, StoreError
from shoal.store._folder import Folder, names_in, write_private
from shoal.store._ids import ObjectID
from shoal.store._meta import ObjectMeta

if TYPE_CHECKING:
    from shoal.store._flight_client import RemoteStore

__all__ = ["Asked", "Peer", "Peers"]

T = TypeVar("T")

_ASKERS = 16
#: Seconds for which one that did not answer is not asked again.
_REST = 2.0
_LONG = 100_000


@dataclass(frozen=True, slots=True)
class Peer:
    """A store of another host, and how it is reached."""

    instance_id: int
    url: str
    token: str = field(repr=False)
    hostname: str
    tls_root: str | None = None
    """The certificate that its own is checked by, as text."""

    @classmethod
    def told(cls, words: Any) -> Peer:
        """Take what somebody told of a store."""
        try:
            made = cls(**words)
        except TypeError:
            raise StoreError(f"what was told of a store makes no sense: {words!r:.100}") from None
        texts = (made.url, made.token, made.hostname, made.tls_root or "")
        sound = all(isinstance(text, str) and len(text) < _LONG for text in texts) and isinstance(made.instance_id, int)
        if not sound or not 0 <= made.instance_id < 1 << 63 or not made.url.startswith(("grpc://", "grpc+tls://")):
            raise StoreError(f"what was told of a store makes no sense: {words!r:.100}")
        return made

    def words(self) -> dict[str, Any]:
        """Say how it is reached, for others."""
        return asdict(self)


class Asked(NamedTuple, Generic[T]):
    """What others answered."""

    answers: list[tuple[Peer, T]]
    silent: dict[str, str]
    """Those that could not be asked, and why."""

    def hear(self, peer: Peer, answer: Callable[[], T]) -> bool:
        """Take the answer of one of them; False if it has none."""
        try:
            self.answers.append((peer, answer()))
        except ObjectNotFoundError:
            return False
        except StoreError as error:
            self.silent[peer.url] = str(error)
            return False
        return True

    def words(self) -> str:
        """Say who could not be asked."""
        if not self.silent:
            return ""
        return "; these joined stores could not be asked: " + ", ".join(
            f"{url} ({why.partition(';')[0]})" for url, why in self.silent.items()
        )


class _Down(NamedTuple):
    """That a store could not be reached."""

    until: float
    """When it may be asked again."""
    why: str
    told: int
    """When there had been word of it."""


class Peers:
    """All stores that are joined to the one of a folder."""

    def __init__(self, folder: Folder) -> None:
        self._home = f"{folder.path}/peers"
        self._own = folder.instance_id
        self._lock = threading.Lock()
        self._stores: dict[Peer, RemoteStore] = {}
        self._down: dict[Peer, _Down] = {}

    def __len__(self) -> int:
        return len(names_in(self._home))

    def all(self) -> list[Peer]:
        """List them."""
        found = []
        for name in sorted(names_in(self._home)):
            with suppress(FileNotFoundError), open(f"{self._home}/{name}", encoding="utf-8") as file:
                found.append(Peer.told(json.load(file)))
        return found

    def learn(self, told: list[Peer]) -> None:
        """Remember stores: the first speaks for itself, and of the others it is known only by hearsay."""
        known = {peer.instance_id for peer in self.all()}
        for number, peer in enumerate(told):
            if peer.instance_id != self._own and (number == 0 or peer.instance_id not in known):
                write_private(self._path(peer.instance_id), json.dumps(peer.words()).encode())

    def forget(self, instance_id: int) -> None:
        """Forget a store."""
        with suppress(FileNotFoundError):
            os.unlink(self._path(instance_id))

    def forget_silent(self) -> list[Peer]:
        """Forget those that cannot be reached now."""
        with self._lock:
            self._down.clear()
        silent = self.ask(lambda store: store.hello()).silent
        gone = [peer for peer in self.all() if peer.url in silent]
        for peer in gone:
            self.forget(peer.instance_id)
        return gone

    def ask(self, question: Callable[[RemoteStore], T], *, first: bool = False) -> Asked[T]:
        """Ask all of them at once; ``first`` is content with one answer. Who has not got it is left out."""
        peers = self.all()
        asked: Asked[T] = Asked([], {})
        if not peers:
            return asked
        if len(peers) == 1:
            asked.hear(peers[0], lambda: self._one(peers[0], question))
            return asked
        pool = ThreadPoolExecutor(min(len(peers), _ASKERS), thread_name_prefix="shoal-peer")
        try:
            jobs = {pool.submit(self._one, peer, question): peer for peer in peers}
            for job in as_completed(jobs):
                if asked.hear(jobs[job], job.result) and first:
                    break
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return asked

    def holder(self, wanted: ObjectID, missing: ObjectNotFoundError) -> tuple[RemoteStore, ObjectMeta]:
        """Find an object in one of them; if it is nowhere, say who could not be asked."""
        asked = self.ask(lambda store: store.get_meta(wanted), first=True)
        if not asked.answers:
            raise ObjectNotFoundError(f"{missing}{asked.words()}") from None
        peer, meta = asked.answers[0]
        return self.store(peer), meta

    def store(self, peer: Peer) -> RemoteStore:
        """Give the store of one of them."""
        from shoal.store._flight_client import RemoteStore

        with self._lock:
            if peer not in self._stores:
                made = RemoteStore(peer.url, token=peer.token, tls_root=peer.tls_root, joined=False)
                self._stores[peer] = made
            return self._stores[peer]

    def _one(self, peer: Peer, question: Callable[[RemoteStore], T]) -> T:
        told = self._told(peer)
        down = self._down.get(peer)
        if down is not None and down.told == told and time.monotonic() < down.until:
            raise StoreError(down.why)
        try:
            return question(self.store(peer))
        except ConnectionError as error:
            self._down[peer] = _Down(time.monotonic() + _REST, str(error), told)
            raise

    def _told(self, peer: Peer) -> int:
        """Say when there was last word of a store: one that comes back tells."""
        with suppress(FileNotFoundError):
            return os.stat(self._path(peer.instance_id)).st_mtime_ns
        return 0

    def _path(self, instance_id: int) -> str:
        return f"{self._home}/{instance_id:016x}"
