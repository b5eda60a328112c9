"""A line to one feeder: who it is, and courses of batches from it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from shoal._flight import call_options, connected, flight, pack
from shoal.errors import FeederLostError, FeedError
from shoal.feed._ticket import DIALECT, VERSION

__all__ = ["Line", "full_url"]

T = TypeVar("T")

_BROKEN = (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError)


def full_url(address: str) -> str:
    """Write an address as a URL.

    >>> full_url("10.0.0.1:8817"), full_url("grpc+tls://a:1")
    ('grpc://10.0.0.1:8817', 'grpc+tls://a:1')
    """
    url = address if "://" in address else f"grpc://{address}"
    if not re.fullmatch(r"grpc(\+tls|\+tcp)?://[^/\s]+:\d+/?", url):
        raise FeedError(f"{address!r} is no address of a feeder; one looks like host:8817 or grpc+tls://host:8817")
    return url.rstrip("/")


class Line:
    """A line to a feeder; any number of threads may use it."""

    def __init__(self, url: str, token: str | None, tls_root: str | None) -> None:
        self.url, self.token, self.tls_root = url, token, tls_root
        self._client: Any = None
        self._made = 0
        self._lock = threading.Lock()

    def ask(self, verb: str, seconds: float, **body: Any) -> dict[str, Any]:
        """Ask something; FeederLostError if there is no answer in so many seconds."""

        def asked() -> dict[str, Any]:
            (answer,) = self._connected().do_action(flight.Action(verb, pack(body)), call_options(self.token, seconds))
            return DIALECT.unpack(answer.body.to_pybytes())

        return self._trying(asked)

    def hello(self, seconds: float, **body: Any) -> dict[str, Any]:
        """Ask who is there; one of another version is refused."""
        found = self.ask("hello", seconds, **body)
        if found.get("version") != VERSION:
            said = f"the feeder at {self.url} speaks version {found.get('version')!r:.20} of the feed"
            raise FeedError(f"{said}, this trainer version {VERSION}; install the same version of Shoal on both")
        return found

    def open(self, words: dict[str, Any]) -> Any:
        """Begin a course: a reader of messages."""
        ticket = flight.Ticket(pack(words))
        return self._trying(lambda: self._connected().do_get(ticket, call_options(self.token, None)))

    def drop(self) -> None:
        """Forget a connection that broke: it would not be tried again for a while."""
        with self._lock:
            self._client = None

    def _trying(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except _BROKEN as error:
            self.drop()
            silent = isinstance(error, flight.FlightTimedOutError)
            why = "it does not answer in time" if silent else "there is no feeder, or the line broke"
            raise FeederLostError(f"the feeder at {self.url} cannot be reached: {why}") from error
        except flight.FlightError as error:
            DIALECT.raise_told(error, self.url)

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                self._made += 1
                self._client = connected(self.url, self.tls_root, f"{id(self)}-{self._made}", FeedError)
            return self._client
