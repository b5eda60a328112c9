"""Messages between processes that belong together and the one that they belong to, over a socket."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from struct import Struct
from typing import Any

from shoal import _sockets
from shoal.engines._message import Buffer, pack, unpack

__all__ = ["Door", "Kind", "Lost", "Wire", "address_towards"]

_HEAD = Struct("<BQ")


class Kind(IntEnum):
    """What a message is about."""

    JOIN = 1
    GATHER = 2
    REPORT = 3
    SHARD = 4
    RESULT = 5
    ERROR = 6


class Lost(Exception):  # noqa: N818  (never leaves the engines)
    """The other end is gone."""


class Wire:
    """One end of a connection; any thread may send, one receives."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._lock = threading.Lock()
        self.host: str = end.getsockname()[0]
        """The address of this end, which others in the same network can reach."""
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def to(cls, address: tuple[str, int], token: bytes) -> Wire:
        """Connect to who waits at an address."""
        try:
            return cls(_sockets.connected(address, token))
        except OSError as error:
            raise Lost from error

    def send(self, kind: Kind, value: Any) -> None:
        """Send a value."""
        self.send_packed(kind, pack(value))

    def send_packed(self, kind: Kind, message: Buffer) -> None:
        """Send a value that was packed before."""
        try:
            with self._lock:
                self._socket.sendall(_HEAD.pack(kind, memoryview(message).nbytes))
                self._socket.sendall(message)
        except OSError as error:
            raise Lost from error

    def receive(self) -> tuple[Kind, bytearray]:
        """Wait for a message; it is not unpacked yet."""
        kind, size = _HEAD.unpack(_exactly(self._socket, _HEAD.size))
        return Kind(kind), _exactly(self._socket, size)

    def ready(self, seconds: float) -> bool:
        """Tell whether a message comes within some seconds, or the other end goes."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def value(self, kind: Kind) -> Any:
        """Wait for a message of a kind, and give what it says."""
        found, message = self.receive()
        if found is not kind:
            raise Lost
        return unpack(message)

    def close(self) -> None:
        """Hang up; who waits for a message finds the other end gone."""
        with suppress(OSError):  # it may be gone already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Door(_sockets.Door):
    """Where others connect; a thread attends to each who knows the secret."""

    def __init__(self, host: str, guests: int, attend: Callable[[Wire], None]) -> None:
        super().__init__(host, guests, lambda end: attend(Wire(end)))


def _exactly(end: socket.socket, size: int) -> bytearray:
    try:
        return _sockets.exactly(end, size)
    except OSError as error:
        raise Lost from error


def address_towards(host: str) -> str:
    """Find the address of this machine in the network in which another one is; nothing is sent.

    >>> address_towards("127.0.0.1")
    '127.0.0.1'
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.connect((host, 9))
        address: str = end.getsockname()[0]
    return address
