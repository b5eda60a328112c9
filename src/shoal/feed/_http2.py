"""One call of gRPC that is answered with a stream, over a connection of its own, received where the caller wants it.

gRPC's own client has its bytes in slices of its own, and puts them together, before anybody sees them. What is said
here is the little of HTTP/2 that a call takes; whatever the server answers in headers is left to that client, to which
a caller can turn when a call is refused.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from typing import NoReturn
from urllib.parse import urlsplit

from shoal._sockets import exactly

__all__ = ["Call", "CallEndedError", "varint"]

_LAST, _ACK, _WHOLE, _PADDED = 1, 1, 4, 8  # flags
_WINDOW_SIZE, _FRAME_SIZE = 4, 5  # settings
_LARGEST, _FRAME, _FIRST_WINDOW = 2**31 - 1, 2**14, 2**16 - 1
_STREAM = 1
#: Bytes that a server may send before it hears that some were taken: those of a fast line that is long.
_ROOM = 2**24
_PIECE = 2**16
_PATIENCE = 20.0


class _Kind(IntEnum):
    """What a frame is."""

    DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8


class CallEndedError(Exception):
    """The server has ended the call: it refuses it, or has said all."""


class Call:
    """A call, and the bytes of its answer; OSError if the connection breaks."""

    def __init__(self, url: str, tls_root: str | None, path: str, headers: dict[str, str], message: bytes) -> None:
        self._end = _connected(url, tls_root)
        self._left = self._padding = self._taken = 0
        self._early = bytearray()
        self._is_over = False
        self._windows, self._first_window = {0: _FIRST_WINDOW, _STREAM: _FIRST_WINDOW}, _FIRST_WINDOW
        scheme = "https" if url.startswith("grpc+tls") else "http"
        first = {":method": "POST", ":scheme": scheme, ":path": path, ":authority": urlsplit(url).netloc}
        fields = {**first, "te": "trailers", "content-type": "application/grpc", **headers}
        try:
            self._begin(b"".join(_field(name, value) for name, value in fields.items()))
            self._say(b"\0" + len(message).to_bytes(4, "big") + message)
        except BaseException:
            self.close()
            raise

    def fill(self, room: memoryview) -> None:
        """Wait for as many bytes as there is room for."""
        have = min(len(room), len(self._early))
        room[:have] = self._early[:have]
        del self._early[:have]
        while have < len(room):
            while not self._left:
                self._left = self._next_frame()
            have += self._received(room[have : have + self._left])
        self._took(have)

    def attend(self) -> None:
        """Hear what has come already: a server takes those for lost who do not listen for long."""
        while not self._is_over and self._is_there_more():
            if self._left:
                piece = bytearray(min(self._left, _PIECE))
                self._early += piece[: self._received(memoryview(piece))]
            else:
                with suppress(CallEndedError):  # who wants more than has come will hear of it
                    self._left = self._next_frame()

    def read(self, size: int) -> bytearray:
        """Wait for so many bytes."""
        data = bytearray(size)
        self.fill(memoryview(data))
        return data

    def hang_up(self) -> None:
        """Break the connection; who waits for bytes finds it broken."""
        with suppress(OSError):
            socket.socket.shutdown(self._end, socket.SHUT_RDWR)  # that of TLS would forget its keys in mid-read

    def close(self) -> None:
        """Let go of the connection, when nobody waits for bytes."""
        self.hang_up()
        self._end.close()

    def _begin(self, headers: bytes) -> None:
        settings = b"".join(
            name.to_bytes(2, "big") + value.to_bytes(4, "big")
            for name, value in {_WINDOW_SIZE: _ROOM, _FRAME_SIZE: 2**24 - 1}.items()
        )
        hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_Kind.SETTINGS, 0, 0, settings)
        room = _frame(_Kind.WINDOW, 0, 0, (_ROOM - _FIRST_WINDOW).to_bytes(4, "big"))
        self._end.sendall(hello + room + _frame(_Kind.HEADERS, _WHOLE, _STREAM, headers))

    def _say(self, data: bytes) -> None:
        """Send the question, as the server has room for it."""
        at = 0
        while at < len(data):
            size = min(len(data) - at, _FRAME, *self._windows.values())
            if size <= 0:
                self._heard(*self._head())
                continue
            last = _LAST if at + size == len(data) else 0
            self._end.sendall(_frame(_Kind.DATA, last, _STREAM, data[at : at + size]))
            self._windows = {stream: window - size for stream, window in self._windows.items()}
            at += size

    def _took(self, size: int) -> None:
        self._taken += size
        if self._taken >= _ROOM // 2:
            more = self._taken.to_bytes(4, "big")
            self._end.sendall(_frame(_Kind.WINDOW, 0, 0, more) + _frame(_Kind.WINDOW, 0, _STREAM, more))
            self._taken = 0

    def _is_there_more(self) -> bool:
        if isinstance(self._end, ssl.SSLSocket) and self._end.pending():
            return True
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        return bool(poll.poll(0))

    def _received(self, room: memoryview) -> int:
        got = self._end.recv_into(room)
        if not got:
            raise ConnectionResetError("the other end is closed")
        self._left -= got
        return got

    def _next_frame(self) -> int:
        """Wait for a frame, and say how many bytes of the answer it has."""
        if self._is_over:
            raise CallEndedError
        if self._padding:
            exactly(self._end, self._padding)
            self._padding = 0
        size, kind, flags, stream = self._head()
        if kind != _Kind.DATA:
            self._heard(size, kind, flags, stream)
            return 0
        if flags & _PADDED:
            self._padding = exactly(self._end, 1)[0]
            size -= 1 + self._padding
        return size

    def _head(self) -> tuple[int, int, int, int]:
        head = exactly(self._end, 9)
        return int.from_bytes(head[:3], "big"), head[3], head[4], int.from_bytes(head[5:], "big") & _LARGEST

    def _heard(self, size: int, kind: int, flags: int, stream: int) -> None:
        """Take what is no part of the answer."""
        data = exactly(self._end, size)
        match kind:
            case _Kind.HEADERS if flags & _LAST:
                self._end_here()
            case _Kind.RESET:
                self._end_here()
            case _Kind.SETTINGS if not flags & _ACK:
                self._set(dict(_settings(data)))
                self._end.sendall(_frame(_Kind.SETTINGS, _ACK, 0))
            case _Kind.PING if not flags & _ACK:
                self._end.sendall(_frame(_Kind.PING, _ACK, 0, bytes(data)))
            case _Kind.GOAWAY if any(data[4:8]):  # without an error, calls that have begun go on
                raise ConnectionResetError(f"the server goes away: {bytes(data[8:200]).decode('ascii', 'replace')}")
            case _Kind.WINDOW if stream in self._windows:
                self._windows[stream] += int.from_bytes(data, "big") & _LARGEST

    def _end_here(self) -> NoReturn:
        self._is_over = True
        raise CallEndedError

    def _set(self, settings: dict[int, int]) -> None:
        window = settings.get(_WINDOW_SIZE, self._first_window)
        self._windows[_STREAM] += window - self._first_window
        self._first_window = window


def _connected(url: str, tls_root: str | None) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    end = socket.create_connection((parts.hostname, parts.port), timeout=_PATIENCE)
    try:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if parts.scheme == "grpc+tls":
            context = ssl.create_default_context(cadata=tls_root)
            context.set_alpn_protocols(["h2"])
            end = context.wrap_socket(end, server_hostname=parts.hostname)
        end.settimeout(None)
    except BaseException:
        end.close()
        raise
    return end


def _frame(kind: int, flags: int, stream: int, data: bytes = b"") -> bytes:
    return len(data).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + data


def _settings(data: bytearray) -> Iterator[tuple[int, int]]:
    for at in range(0, len(data) - 5, 6):
        yield int.from_bytes(data[at : at + 2], "big"), int.from_bytes(data[at + 2 : at + 6], "big")


def _field(name: str, value: str) -> bytes:
    """Write a header as it is, and so that nobody on the way remembers it: one of them is the token."""
    return b"\x10" + _text(name.encode()) + _text(value.encode())


def _text(data: bytes) -> bytes:
    """Write a text behind its length, which has 7 bits in its first byte."""
    if len(data) < 127:
        return bytes([len(data)]) + data
    return b"\x7f" + varint(len(data) - 127) + data


def varint(number: int) -> bytes:
    """Write a number in sevens of bits, the lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    written = bytearray()
    while number >= 128:
        written.append(number % 128 + 128)
        number //= 128
    return bytes([*written, number])
