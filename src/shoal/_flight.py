"""What servers of Arrow Flight have in common here, and those who talk to them.

Every call brings a token. Documents are JSON, bytes travel in messages of one column, and errors arrive at who asked by
their names: nothing that is sent can run code.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from shoal._malloc import keep_freed_memory
from shoal._optional import require
from shoal.errors import ShoalError

flight = require("pyarrow.flight", "a server of another host")

__all__ = [
    "MESSAGE",
    "Dialect",
    "Gate",
    "Tls",
    "batch_of",
    "bytes_of",
    "call_options",
    "certificate_text",
    "check_fork",
    "connected",
    "flight",
    "is_loopback",
    "pack",
    "schema",
    "secret_text",
    "url_of",
]

#: Bytes of a message: smaller ones take longer, and what is larger is out of a processor's cache when it is copied.
MESSAGE = 2**20
#: Bytes of a document, and of an error, which goes beside an answer and is limited there.
_DOCUMENT, _TEXT = 64 * 2**20, 1000
_SHORT = 16  # characters of a token, at least
#: The process that first had a connection; one that is forked from it cannot have any.
_FIRST: list[int] = []


@dataclass(frozen=True, slots=True)
class Tls:
    """A certificate of a server with its key, and the one that others check it by; each as text.

    >>> Tls(certificate="-----BEGIN CERTIFICATE-----...", key="-----BEGIN PRIVATE KEY-----...").root is None
    True
    """

    certificate: str
    key: str
    root: str | None = None
    """None if the certificate is signed by itself."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a server and those who ask it speak of what went wrong."""

    server: str
    """What the server is called, as in "the store"."""
    token_hint: str
    """What to do about a token that is not known."""
    base: type[ShoalError]
    """What is raised where nothing else is known by name."""
    others: tuple[type[ShoalError], ...] = ()

    def unpack(self, data: Any) -> dict[str, Any]:
        """Read a document that somebody sent."""
        if len(data) > _DOCUMENT:
            raise self.base(f"a document of {len(data)} bytes was sent; there are none of more than {_DOCUMENT}")
        try:
            found = json.loads(bytes(data).decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise self.base(f"what was sent is no document: {str(error)[:200]}") from None
        if not isinstance(found, dict):
            raise self.base(f"what was sent is a {type(found).__name__}, and no document")
        return found

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Let errors of the server arrive at who asked, by their names."""
        try:
            yield
        except flight.FlightError:
            raise
        except Exception as error:
            known = next((kind.__name__ for kind in type(error).__mro__ if kind in self._known().values()), None)
            text = str(error) if known else f"the server of {self.server} failed: {error!r}"
            told = {"error": known or self.base.__name__, "text": text[:_TEXT]}
            raise flight.FlightServerError("refused", extra_info=pack(told)) from error

    def raise_told(self, error: Any, url: str) -> NoReturn:
        """Raise an error of a server as what it was there."""
        if isinstance(error, flight.FlightUnauthenticatedError):
            raise self.base(f"{self.server} at {url} does not know this token; {self.token_hint}") from None
        extra = getattr(error, "extra_info", b"")
        if not extra:
            raise self.base(f"{self.server} at {url} failed: {str(error)[:_TEXT]}") from error
        told = self.unpack(extra)
        raise self._known().get(str(told.get("error")), self.base)(str(told.get("text"))) from None

    def _known(self) -> dict[str, type[ShoalError]]:
        return {kind.__name__: kind for kind in (self.base, *self.others)}


class Gate(flight.ServerMiddlewareFactory):  # type: ignore[misc, name-defined]
    """Lets nobody in who does not know the token."""

    def __init__(self, token: str, base: type[ShoalError]) -> None:
        if len(token) < _SHORT:
            raise base(f"the token has {len(token)} characters; it takes at least {_SHORT}")
        self._wanted = f"Bearer {token}".encode()

    def start_call(self, info: Any, headers: dict[str, list[Any]]) -> None:
        """Look at the token of a call."""
        given = str((headers.get("authorization") or [""])[0])
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self._wanted):
            raise flight.FlightUnauthenticatedError("the token is missing, or not the one of this server")


def pack(document: dict[str, Any]) -> bytes:
    """Write a document.

    >>> pack({"a": 1})
    b'{"a":1}'
    """
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def schema() -> Any:
    """Give the schema of messages: bytes, and nothing else."""
    import pyarrow as pa

    return pa.schema([("bytes", pa.uint8())])


def batch_of(data: Any) -> Any:
    """Make a message of bytes, without a copy."""
    import pyarrow as pa

    return pa.record_batch([pa.Array.from_buffers(pa.uint8(), len(data), [None, pa.py_buffer(data)])], schema=schema())


def bytes_of(chunk: Any) -> memoryview:
    """Give the bytes of a message."""
    data = chunk.data.column(0).buffers()[1] if chunk.data.num_rows else None
    return memoryview(b"" if data is None else data).cast("B")[: chunk.data.num_rows]


def connected(url: str, tls_root: str | None, name: str, base: type[ShoalError]) -> Any:
    """Make a connection of its own: those with an equal ``name`` would be one."""
    check_fork(base)
    keep_freed_memory()  # what messages are received in is asked for again with the next one
    if not _FIRST:
        _FIRST.append(os.getpid())
    options: dict[str, Any] = {"generic_options": [("shoal.connection", name), *_CHANNEL]}
    if tls_root is not None:
        options["tls_root_certs"] = tls_root
    try:
        return flight.connect(url, **options)
    except Exception as error:
        raise base(f"{url} is no address of a server: {error}") from error


#: Large frames: with those of 16 KB that are usual, receiving takes almost twice the CPU.
_CHANNEL = [("grpc.http2.max_frame_size", 2**24 - 1)]


def check_fork(base: type[ShoalError]) -> None:
    """Refuse to go on in a process that was forked from one with connections: they would hang in both."""
    if _FIRST and _FIRST[0] != os.getpid():
        text = "this process was forked from one that had talked to a server of another host, and cannot do so"
        raise base(f"{text}; start it anew (multiprocessing: spawn or forkserver)")


def call_options(token: str | None, seconds: float | None) -> Any:
    """Say with each call who one is, and how long it may take."""
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    return flight.FlightCallOptions(timeout=seconds, headers=headers)


def url_of(host: str, port: int, tls: Tls | None) -> str:
    """Write the URL of a server.

    >>> url_of("::1", 80, None)
    'grpc://[::1]:80'
    """
    inside = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"grpc{'+tls' if tls else ''}://{inside}:{port}"


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def secret_text(given: str | os.PathLike[str] | None) -> str | None:
    """Take a text, or read it from a file."""
    return given if given is None or isinstance(given, str) else Path(given).read_text().strip()


def certificate_text(given: str | os.PathLike[str] | None) -> str | None:
    """Take a certificate: its text, or the path of its file."""
    return given if isinstance(given, str) and given.startswith("-----BEGIN") else secret_text(given and Path(given))
