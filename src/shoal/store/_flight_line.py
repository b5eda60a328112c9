"""A line to the server of another store: small questions, and bytes in several streams at once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from shoal import settings
from shoal._flight import batch_of, bytes_of, call_options, check_fork, connected, flight, pack, schema
from shoal.errors import StoreError, StoreUnreachableError
from shoal.store._flight_wire import DIALECT

__all__ = ["Line"]

T = TypeVar("T")
Write = Callable[[int, Any], None]

#: Bytes from which on a part is fetched in several streams.
_LARGE = 16 * 2**20
_AT_ONCE = 32 * 2**20
_SLOWEST = 2**20  # bytes a second; what is slower is asked for again, from where it stopped
_LONGEST_PAUSE = 30.0
_HASTY = 10.0
_BROKEN = (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError)


class Line:
    """A line to one server; any number of threads may use it."""

    def __init__(self, url: str, token: str | None, tls_root: str | None, *, hasty: bool = False) -> None:
        """Have a line; a ``hasty`` one soon gives up to ask, because others are asked as well."""
        self.url, self._token, self._tls_root = url, token, tls_root
        now = settings.current()
        self._retries, self._backoff, self._wait = now.retries, now.backoff, now.timeout
        self._hasty = hasty
        self._clients: dict[int, Any] = {}
        self._made = 0
        self._lock = threading.Lock()

    def call(self, verb: str, body: dict[str, Any], *, again: bool = True) -> dict[str, Any]:
        """Ask something; ``again`` if a line that breaks allows to ask once more."""
        return self.call_with_bytes(verb, body, again=again)[0]

    def call_with_bytes(
        self, verb: str, body: dict[str, Any], *, again: bool = True
    ) -> tuple[dict[str, Any], memoryview | None]:
        """Ask something, and give what comes along with the answer, if anything does."""

        def ask() -> tuple[dict[str, Any], memoryview | None]:
            action = flight.Action(verb, pack(body))
            first, *more = self._client(0).do_action(action, self._options(wait))
            return DIALECT.unpack(first.body.to_pybytes()), memoryview(more[0].body) if more else None

        wait = min(_HASTY, self._wait) if self._hasty else self._wait
        retries = min(1, self._retries) if self._hasty else self._retries
        return self._trying(ask, retries if again else 0)

    def fetch(self, ticket: dict[str, Any], begin: int, end: int, write: Write) -> None:
        """Bring a part of the bytes of an object; ``write(position, bytes)`` is called by several threads."""
        streams = min(4, max(2, settings.processors() // 2)) if end - begin >= _LARGE else 1
        cuts = [begin + (end - begin) * number // streams for number in range(streams + 1)]
        if streams == 1:
            self._stream(0, ticket, begin, end, write)
            return
        with ThreadPoolExecutor(streams, thread_name_prefix="shoal-fetch") as pool:
            jobs = [
                pool.submit(self._stream, number, ticket, cuts[number], cuts[number + 1], write)
                for number in range(streams)
            ]
        for job in jobs:
            job.result()

    def send(self, head: dict[str, Any], pieces: Iterable[Any], size: int) -> dict[str, Any]:
        """Send an object; the answer comes when it is complete."""

        def put() -> dict[str, Any]:
            descriptor = flight.FlightDescriptor.for_command(pack(head))
            writer, answers = self._client(0).do_put(descriptor, schema(), self._options(self._wait + size / _SLOWEST))
            try:
                for piece in pieces:
                    writer.write_batch(batch_of(piece))
                writer.done_writing()
                answer = answers.read()
            finally:
                writer.close()
            if answer is None:
                raise StoreError(f"the store at {self.url} took an object, and did not name it")
            return DIALECT.unpack(answer.to_pybytes())

        return self._trying(put, 0)

    def hold(self, ticket: dict[str, Any]) -> Any:
        """Open a stream that is held for as long as something there is needed; ``cancel`` ends it."""

        def opened() -> Any:
            reader = self._client(0).do_get(flight.Ticket(pack(ticket)), self._options(None))
            reader.read_chunk()
            return reader

        return self._trying(opened, self._retries)

    def _stream(self, number: int, ticket: dict[str, Any], begin: int, end: int, write: Write) -> None:
        """Bring bytes in one stream; one that breaks goes on where it stopped, and progress resets the count."""
        at, failed = begin, 0
        while at < end:
            before = at
            try:
                until = min(end, at + _AT_ONCE)
                for data in self._messages(number, {**ticket, "from": at, "to": until}, until - at):
                    if at + len(data) > until:
                        raise StoreError(f"the store at {self.url} sent more bytes than it was asked for")
                    write(at, data)
                    at += len(data)
                if at < until:
                    raise StoreError(f"the store at {self.url} sent {at - before} of {until - before} bytes")
            except _BROKEN as error:
                failed = 1 if at > before else failed + 1
                self._drop(number)
                self._pause(failed, self._retries, error)
            except flight.FlightError as error:
                DIALECT.raise_told(error, self.url)

    def _messages(self, number: int, ticket: dict[str, Any], size: int) -> Iterable[Any]:
        options = self._options(self._wait + size / _SLOWEST)
        reader = self._client(number).do_get(flight.Ticket(pack(ticket)), options)
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            yield bytes_of(chunk)

    def _trying(self, ask: Callable[[], T], retries: int) -> T:
        failed = 0
        while True:
            try:
                return ask()
            except _BROKEN as error:
                failed += 1
                self._drop(0)
                is_silent = isinstance(error, flight.FlightTimedOutError)
                self._pause(failed, 0 if self._hasty and is_silent else retries, error)
            except flight.FlightError as error:
                DIALECT.raise_told(error, self.url)

    def _pause(self, failed: int, retries: int, error: Exception) -> None:
        if failed > retries:
            is_silent = isinstance(error, flight.FlightTimedOutError)
            why = "it does not answer in time" if is_silent else "there is no server, or the line broke"
            text = f"the store at {self.url} cannot be reached: {why}"
            raise StoreUnreachableError(f"{text}; start it with `shoal store serve`, or check the address") from error
        pause = min(self._backoff * 2 ** (failed - 1), _LONGEST_PAUSE)
        time.sleep(pause * (0.5 + random.random() / 2))  # noqa: S311 - so that those who failed together come apart

    def _options(self, wait: float | None) -> Any:
        return call_options(self._token, wait)

    def _client(self, number: int) -> Any:
        """Give one of several connections; streams of one would wait for each other."""
        check_fork(StoreError)
        with self._lock:
            if number not in self._clients:
                self._clients[number] = self._connected()
            return self._clients[number]

    def _drop(self, number: int) -> None:
        with self._lock:
            self._clients.pop(number, None)

    def _connected(self) -> Any:
        self._made += 1  # one that broke would not be tried again for a while
        return connected(self.url, self._tls_root, f"{id(self)}-{self._made}", StoreError)
