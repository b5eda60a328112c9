"""The server of a store, for other hosts: Arrow Flight, with a token for every call."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shoal._flight import Gate, Tls, batch_of, bytes_of, flight, is_loopback, pack, schema, url_of
from shoal.errors import StoreError
from shoal.store._flight_blobs import messages, pieces
from shoal.store._flight_client import RemoteStore
from shoal.store._flight_verbs import Verbs
from shoal.store._flight_wire import DIALECT, as_size, blobs_of
from shoal.store._folder import Folder, default_folder, locked, write_private
from shoal.store._peers import Peer

__all__ = ["StoreServer", "Tls"]

_TICK = 0.5
_PATIENCE = 10.0


class StoreServer:
    """Serves a store to other hosts, from when it is made until it is closed.

    ``token`` is what others must know; without, it is the one in the file ``token`` of the store's folder, which is
    made if it is not there. ``advertise`` is the host by which others reach this one, if that is not ``host``.

    >>> import tempfile
    >>> server = StoreServer(tempfile.mkdtemp())
    >>> server.url.startswith("grpc://127.0.0.1:"), server.is_exposed, server.peers
    (True, False, [])
    >>> server.close()
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        tls: Tls | None = None,
        advertise: str | None = None,
    ) -> None:
        self._folder = Folder(path or default_folder())
        self._lock = _only_one(self._folder)
        self.token = token or kept_token(self._folder)
        self._gate = Gate(self.token, StoreError)
        self._tls, self._host, self._advertise = tls, host, advertise
        self._ended = threading.Event()
        self._verbs = Verbs(self._folder.path, self.peer)
        self._service = self._started(host, port)
        self.port = int(self._service.port)

    def __repr__(self) -> str:
        return f"<server at {self.url} of the store at {self._folder.path}>"

    @property
    def path(self) -> str:
        """The folder of the store."""
        return self._folder.path

    @property
    def url(self) -> str:
        """Where others find it."""
        host = self._advertise or (socket.gethostname() if self._host in ("0.0.0.0", "::") else self._host)  # noqa: S104
        return url_of(host, self.port, self._tls)

    @property
    def peers(self) -> list[Peer]:
        """The stores that are joined."""
        return self._verbs.store.peers.all()

    @property
    def is_exposed(self) -> bool:
        """Whether others can listen in on what is sent: it is not on loopback, and has no TLS."""
        return self._tls is None and not is_loopback(self._host)

    def peer(self) -> Peer:
        """Say how this store is reached."""
        root = None if self._tls is None else self._tls.root or self._tls.certificate
        return Peer(self._folder.instance_id, self.url, self.token, socket.gethostname(), root)

    def join(self, url: str, *, token: str | None = None, tls_root: str | None = None) -> list[Peer]:
        """Join the store at a URL, and all that it has joined; give those that are known now.

        ``token`` and ``tls_root`` are those of the other one, if they are not the same as here.
        """
        root = tls_root or self.peer().tls_root
        there = RemoteStore(url, token=token or self.token, tls_root=root if url.startswith("grpc+tls") else None)
        self._learn(there.join(self._known()))
        self.announce()
        return self.peers

    def announce(self) -> dict[str, str]:
        """Tell all that are known of this one, and of each other; give those that could not be told, and why."""
        silent: dict[str, str] = {}
        told: set[Peer] = set()
        while new := [peer for peer in self._verbs.store.peers.all() if peer not in told]:
            told |= set(new)
            for peer in new:
                try:
                    self._learn(self._verbs.store.peers.store(peer).join(self._known()))
                except StoreError as error:
                    silent[peer.url] = str(error)
        return silent

    def close(self) -> None:
        """Tell others that this one is not to be reached any more, and end."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._verbs.store.peers.ask(lambda store: store.leave(self._folder.instance_id))
        ending = threading.Thread(target=self._service.shutdown, daemon=True, name="shoal-store-shutdown")
        ending.start()
        ending.join(_PATIENCE)  # for those who are in the middle of something
        os.close(self._lock)

    def _started(self, host: str, port: int) -> Any:
        location = url_of("[::]" if host == "::" else host, port, self._tls)
        options: dict[str, Any] = {"middleware": {"token": self._gate}}
        if self._tls is not None:
            options["tls_certificates"] = [(self._tls.certificate, self._tls.key)]
        try:
            return _Service(self._verbs, self._ended, location, **options)
        except Exception as error:
            os.close(self._lock)
            text = f"{location} cannot be served: {str(error).partition('. Detail')[0]}"
            raise StoreError(f"{text}; is the port taken, or the address another host's?") from error

    def _known(self) -> list[dict[str, Any]]:
        return [self.peer().words(), *(peer.words() for peer in self._verbs.store.peers.all())]

    def _learn(self, words: list[Any]) -> None:
        self._verbs.store.peers.learn([Peer.told(each) for each in words])


class _Service(flight.FlightServerBase):  # type: ignore[misc, name-defined]
    """What Flight calls, in threads of its own."""

    def __init__(self, verbs: Verbs, ended: threading.Event, location: str, **options: Any) -> None:
        self._verbs, self._ended = verbs, ended
        super().__init__(location, **options)

    def do_action(self, context: Any, action: Any) -> list[Any]:
        with DIALECT.telling():
            answers = self._verbs.answer(action.type, DIALECT.unpack(action.body.to_pybytes()))
            return [flight.Result(answer) for answer in answers]

    def do_get(self, context: Any, ticket: Any) -> Any:
        with DIALECT.telling():
            wanted = DIALECT.unpack(ticket.ticket)
            if isinstance(name := wanted.get("session"), str):
                return flight.GeneratorStream(schema(), self._held(context, name))
            meta = self._verbs.meta(wanted)
            begin, end = as_size(wanted.get("from")), as_size(wanted.get("to"))
            parts = pieces(meta, blobs_of(meta), begin, end)
            return flight.GeneratorStream(schema(), self._sent(parts))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        def receive(write: Any, size: int) -> None:
            at = 0
            if reader.schema != schema():
                raise StoreError(f"an object comes as {schema()}, and not as {reader.schema}")
            for chunk in reader:
                data = bytes_of(chunk)
                if at + len(data) > size:
                    raise StoreError(f"more bytes came than the {size} that were announced")
                write(at, data)
                at += len(data)
            if at < size:
                raise StoreError(f"{at} of {size} bytes came")

        with DIALECT.telling():
            made = self._verbs.put(DIALECT.unpack(descriptor.command or b"{}"), receive)
            writer.write(pack({"id": str(made)}))

    def _sent(self, parts: Iterator[Any]) -> Iterator[Any]:
        with DIALECT.telling():
            for message in messages(parts):
                yield batch_of(message)

    def _held(self, context: Any, name: str) -> Iterator[Any]:
        """Hold a session open until whoever opened it goes, however that happens."""
        with DIALECT.telling(), self._verbs.session(name):
            yield batch_of(b"\0")
            while not context.is_cancelled() and not self._ended.wait(_TICK):
                pass


def kept_token(folder: Folder) -> str:
    """Read the token of a store, or make one that stays."""
    path = Path(folder.path, "token")
    with folder.lock("token"):
        if not path.exists():
            write_private(str(path), secrets.token_urlsafe(32).encode())
        return path.read_text().strip()


def _only_one(folder: Folder) -> int:
    fd = os.open(f"{folder.path}/serve.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not locked(fd, exclusive=True):
        os.close(fd)
        raise StoreError(f"the store at {folder.path} is served already, by another process")
    return fd
