"""Messages of Arrow Flight, as a trainer receives them: into memory of its own choice.

Bytes are received where they are wanted. Compressed ones have to be made anew, so these come through Arrow's client,
which has them in memory of its own first; and so does the reason, where a call is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

from shoal._flight import bytes_of, flight, pack
from shoal._segments import copy
from shoal.errors import FeederLostError, FeedError
from shoal.feed._http2 import Call, CallEndedError, varint
from shoal.feed._line import Line
from shoal.feed._ticket import DIALECT

__all__ = ["Messages", "asked"]

_PATH = "/arrow.flight.protocol.FlightService/DoGet"
_METADATA, _BODY = 3, 1000  # fields of FlightData
#: Bytes of a message that are looked at for what is told of it.
_GLANCE = 512
#: Bytes of what is told of a message, at most.
_MOST = 64 * 2**20


class Messages(ABC):
    """The answer of a feeder, message by message."""

    @abstractmethod
    def next(self) -> tuple[bytes, int]:
        """Wait for a message: what is told of it, and how many bytes it has, which may be some more than were sent.

        FeederLostError if there will be none; anything else is what the feeder refused it for.
        """

    @abstractmethod
    def fill(self, room: memoryview) -> None:
        """Take the next bytes of the message."""

    def read(self, size: int) -> memoryview:
        """Take so many bytes of the message."""
        data = memoryview(bytearray(size))
        self.fill(data)
        return data

    @abstractmethod
    def attend(self) -> None:
        """Hear what has come already, if nobody else does."""

    @abstractmethod
    def hang_up(self) -> None:
        """Let nothing come any more, whoever waits for it."""

    def close(self) -> None:
        """Let go of it, when nobody waits for a message any more."""
        self.hang_up()


def asked(line: Line, words: dict[str, Any]) -> Messages:
    """Ask a feeder for a course."""
    return DirectMessages(line, words) if words["compression"] is None else ArrowMessages(line, words)


class ArrowMessages(Messages):
    """What Arrow's client receives."""

    def __init__(self, line: Line, words: dict[str, Any]) -> None:
        self._line, self._reader = line, line.open(words)
        self._left = memoryview(b"")

    def next(self) -> tuple[bytes, int]:
        try:
            chunk = self._reader.read_chunk()
        except StopIteration:
            raise _lost(self._line, "its messages ended in the middle of an epoch") from None
        except flight.FlightError as error:
            if getattr(error, "extra_info", b"") or isinstance(error, flight.FlightUnauthenticatedError):
                DIALECT.raise_told(error, self._line.url)
            self._line.drop()
            raise _lost(self._line, str(error).partition(". gRPC")[0][:200]) from error
        self._left = bytes_of(chunk)
        return b"" if chunk.app_metadata is None else chunk.app_metadata.to_pybytes(), len(self._left)

    def fill(self, room: memoryview) -> None:
        copy(room, self._left[: len(room)])
        self._left = self._left[len(room) :]

    def attend(self) -> None:
        pass  # Arrow's client listens at any time

    def hang_up(self) -> None:
        with suppress(Exception):  # whatever state it is in, it is to end
            self._reader.cancel()


class DirectMessages(Messages):
    """What comes over a connection of our own."""

    def __init__(self, line: Line, words: dict[str, Any]) -> None:
        self._line, self._words = line, words
        ticket = pack(words)
        token = {} if line.token is None else {"authorization": f"Bearer {line.token}"}
        try:
            self._call = Call(line.url, line.tls_root, _PATH, token, b"\x0a" + varint(len(ticket)) + ticket)
        except (OSError, CallEndedError) as error:
            raise _lost(line, error) from error
        self._seen = memoryview(b"")
        self._size = 0
        self._has_begun = False

    def next(self) -> tuple[bytes, int]:
        try:
            if not self._has_begun:
                self._message()  # the schema, which is always the same
                self._has_begun = True
            self._call.read(self._size - len(self._seen))  # what fills a message up
            return self._message()
        except CallEndedError:
            if self._has_begun:
                raise _lost(self._line, "its messages ended in the middle of an epoch") from None
            ArrowMessages(self._line, self._words).next()  # says why
            raise _lost(self._line, "it refused what it does not refuse any more") from None
        except OSError as error:
            raise _lost(self._line, error) from error

    def fill(self, room: memoryview) -> None:
        known = min(len(self._seen), len(room))
        room[:known], self._seen = self._seen[:known], self._seen[known:]
        try:
            self._call.fill(room[known:])
        except (OSError, CallEndedError) as error:
            raise _lost(self._line, error) from error
        self._size -= len(room)

    def attend(self) -> None:
        try:
            self._call.attend()
        except OSError as error:
            raise _lost(self._line, error) from error

    def hang_up(self) -> None:
        self._call.hang_up()

    def close(self) -> None:
        self._call.close()

    def _message(self) -> tuple[bytes, int]:
        """Read the beginning of a message: a length, fields of small sizes, and the bytes as the last of them."""
        packed, *size = self._call.read(5)
        begin = _Beginning(self._call, int.from_bytes(size, "big"), self._line.url)
        begin.check(not packed)
        metadata = b""
        self._size, self._seen = 0, memoryview(b"")
        while begin.left:
            field, length = begin.number() >> 3, begin.number()
            if field == _BODY:
                begin.check(length == begin.left)
                self._size, self._seen = length, begin.rest()
                break
            found = begin.bytes(length)
            metadata = found if field == _METADATA else metadata
        return metadata, self._size


class _Beginning:
    """The first bytes of a message, more of which are received as they are looked at."""

    def __init__(self, call: Call, size: int, url: str) -> None:
        self._call, self._url, self._at, self.left = call, url, 0, size
        self._data = call.read(min(size, _GLANCE))

    def check(self, is_sound: bool) -> None:
        if not is_sound:
            raise FeedError(f"what the feeder at {self._url} sends is no message of Arrow Flight")

    def number(self) -> int:
        value = shift = 0
        while True:
            self.check(shift < 64)
            (byte,) = self.bytes(1)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def bytes(self, count: int) -> bytes:
        self.check(count <= min(self.left, _MOST))
        begin, self._at = self._at, self._at + count
        missing, unread = self._at - len(self._data), self.left - (len(self._data) - begin)
        if missing > 0:
            self._data += self._call.read(min(max(missing, _GLANCE), unread))
        self.left -= count
        return bytes(self._data[begin : self._at])

    def rest(self) -> memoryview:
        return memoryview(self._data)[self._at :]


def _lost(line: Line, why: object) -> FeederLostError:
    return FeederLostError(f"the feeder at {line.url} has gone: {why}")
