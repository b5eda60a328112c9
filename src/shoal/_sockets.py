"""Connections between processes that belong together.

Whoever connects says a secret first, which only those know who were told it; before that nothing of what he sends is
looked at.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["Door", "Entrance", "connected", "exactly", "knows", "new_secret"]

_SECRET = 32  # bytes
_PATIENCE = 20.0  # seconds for somebody to answer, and to say the secret


def new_secret() -> bytes:
    """Make a secret."""
    return secrets.token_bytes(_SECRET)


def connected(address: tuple[str, int], secret: bytes) -> socket.socket:
    """Connect to who waits at an address, and say the secret; OSError if nobody is there."""
    end = socket.create_connection(address, timeout=_PATIENCE)
    end.settimeout(None)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.sendall(secret)
    return end


def knows(end: socket.socket, secret: bytes) -> bool:
    """Hear whether somebody who connected knows the secret; who does not is sent away."""
    end.settimeout(_PATIENCE)
    known = False
    with suppress(OSError):
        known = hmac.compare_digest(exactly(end, len(secret)), secret)
    end.settimeout(None)
    if not known:
        end.close()
    return known


def exactly(end: socket.socket, size: int) -> bytearray:
    """Wait for so many bytes; OSError if the other end goes before."""
    data = bytearray(size)
    view, have = memoryview(data), 0
    while have < size:
        got = end.recv_into(view[have:])
        if not got:
            raise ConnectionResetError("the other end is closed")
        have += got
    return data


class Entrance:
    """Where others connect; a thread attends to each who knows the secret."""

    def __init__(self, listener: socket.socket, secret: bytes, attend: Callable[[socket.socket], None]) -> None:
        self.token, self._listener, self._attend = secret, listener, attend
        threading.Thread(target=self._welcome, name="shoal-door", daemon=True).start()

    def close(self) -> None:
        """Let nobody in any more; those who are in stay."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes up who waits at the door
        self._listener.close()

    def _welcome(self) -> None:
        while True:
            try:
                end, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._admit, args=(end,), name="shoal-guest", daemon=True).start()

    def _admit(self, end: socket.socket) -> None:
        if knows(end, self.token):
            self._attend(end)


class Door(Entrance):
    """An entrance for other hosts, too, with a secret of its own."""

    def __init__(self, host: str, guests: int, attend: Callable[[socket.socket], None]) -> None:
        listener = socket.create_server((host, 0), backlog=guests)
        self.address: tuple[str, int] = listener.getsockname()[:2]
        super().__init__(listener, new_secret(), attend)
