"""A course as a trainer receives it: over the network, or in memory that is shared with a feeder of the same host."""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal._segments import User
from shoal.errors import FeederLostError, FeedError
from shoal.feed._assembly import Assembly, Received, placed, rooms
from shoal.feed._columns import ARRAYS, Column, Head, decoded, type_of
from shoal.feed._line import Line
from shoal.feed._messages import asked
from shoal.feed._pieces import SMALL, Outline
from shoal.feed._shared_memory import Words, machine, secret_of
from shoal.feed._ticket import DIALECT
from shoal.feed._told import revived

__all__ = ["Course", "opened"]

_RETURNED = 512  # names of memory that go back in one document
_PATIENCE = 20.0


class Course(ABC):
    """What one feeder sends of one epoch, piece by piece."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.moved: Callable[[], None] = lambda: None
        """Called whenever something came."""

    @abstractmethod
    def next(self, assembly: Assembly, places: NDArray[np.int64]) -> Received | None:
        """Wait for the next piece, whose rows belong to these places of a batch; None at the end.

        FeederLostError if the feeder is gone; anything else is an error of the plan, or of what was sent.
        """

    @abstractmethod
    def attend(self) -> None:
        """Listen for a moment, while there is no room for the next piece."""

    @abstractmethod
    def cancel(self) -> None:
        """Hang up, in the middle of whatever is going on."""

    def close(self) -> None:
        """Let go of it, when nobody waits for a piece any more."""
        self.cancel()

    def _told(self, words: dict[str, Any]) -> Outline | None:
        if "error" in words:
            raise revived(words["error"], self.url)
        return None if words.get("end") else Outline.told(words)

    def _places(self, outline: Outline, places: NDArray[np.int64]) -> NDArray[np.int64]:
        if outline.slots != len(places):
            raise FeedError(f"the feeder at {self.url} sent {outline.slots} slots of a batch, and not {len(places)}")
        return places if outline.places is None else places[np.array(outline.places, np.int64)]

    def _lost(self, why: object) -> FeederLostError:
        return FeederLostError(f"the feeder at {self.url} has gone: {why}")


class FlightCourse(Course):
    """Messages of Arrow Flight; large arrays are received where the batch has them."""

    def __init__(self, line: Line, words: dict[str, Any]) -> None:
        super().__init__(line.url)
        self._messages = asked(line, words)

    def next(self, assembly: Assembly, places: NDArray[np.int64]) -> Received | None:
        metadata, size = self._message()
        outline = self._told(DIALECT.unpack(metadata))
        if outline is None:
            return None
        places = self._places(outline, places)
        together = sum(each for each in outline.sizes[1:] if each < SMALL)
        self._check(size, outline.marks + together)
        marks, small = bytes(self._messages.read(outline.marks)), self._messages.read(together)
        columns: dict[str, Column] = {}
        for name, head, sizes in outline.columns:
            if head[0] in ARRAYS and sizes[0] >= SMALL:
                columns[name] = self._array(name, head, sizes[0], assembly, places)
                continue
            buffers = []
            for size in sizes:
                buffers.append(small[:size] if size < SMALL else self._bytes(size))
                small = small[size:] if size < SMALL else small
            columns[name] = placed(name, decoded(head, buffers), assembly, places)
        return Received(places, columns, marks, outline)

    def attend(self) -> None:
        self._messages.attend()

    def cancel(self) -> None:
        self._messages.hang_up()

    def close(self) -> None:
        self._messages.close()

    def _array(self, name: str, head: Head, size: int, assembly: Assembly, places: NDArray[np.int64]) -> Column:
        """Receive rows of an array at their places."""
        kind, dtype, (count, *shape) = head[0], type_of(head[1]), head[2]
        if count != len(places) or size != count * dtype.itemsize * int(np.prod(shape, dtype=np.int64)):
            raise FeedError(f"the feeder at {self.url} sent {size} bytes for {count} rows of {shape} {dtype}")
        target = assembly.target(name, (kind, dtype, tuple(shape)))
        runs = [] if target is None else rooms(target, places)
        if target is None or size < SMALL * len(runs):  # many small pieces are received together
            return placed(name, decoded(head, [self._bytes(size)]), assembly, places)
        self._receive(runs)
        return Column(kind, target, places.tolist())

    def _bytes(self, size: int) -> memoryview:
        room = memoryview(np.empty(size, np.uint8))  # type: ignore[arg-type]
        self._receive([room])
        return room

    def _receive(self, runs: Sequence[memoryview]) -> None:
        """Fill memory from as many messages as it takes."""
        wanted, left = sum(map(len, runs)), 0
        for room in runs:
            while room:
                if not left:
                    left = min(self._message()[1], wanted)
                    self._check(left, 1)
                part = room[:left]
                self._messages.fill(part)
                room, left, wanted = room[len(part) :], left - len(part), wanted - len(part)

    def _message(self) -> tuple[bytes, int]:
        found = self._messages.next()
        self.moved()
        return found

    def _check(self, size: int, wanted: int) -> None:
        if size < wanted:
            raise FeedError(f"the feeder at {self.url} sent {size} bytes where {wanted} were left")


class SharedCourse(Course):
    """Pieces in the memory of a feeder of this host, which are looked at where they lie."""

    def __init__(self, line: Line, door: str, words: dict[str, Any]) -> None:
        super().__init__(line.url)
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            end.settimeout(_PATIENCE)
            end.connect(f"\0{door}")
            end.settimeout(None)
            end.sendall(secret_of(line.token or ""))
            self._words = Words(end)
            self._words.send(words)
        except OSError as error:
            end.close()
            raise self._lost(error) from error
        self._user = User()

    def next(self, assembly: Assembly, places: NDArray[np.int64]) -> Received | None:
        with suppress(OSError):  # he may have said why he went
            self._words.send({"back": self._user.unused(_RETURNED)})
        try:
            words, tail, descriptors = self._words.receive()
        except OSError as error:
            raise self._lost(error) from error
        self.moved()
        new = dict(zip(words.get("new", ()), descriptors, strict=True))
        try:
            outline = self._told(words)
            if outline is None:
                return None
            return self._received(outline, words, memoryview(tail), new, self._places(outline, places), assembly)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def attend(self) -> None:
        pass  # a feeder of this host waits until it is asked

    def cancel(self) -> None:
        self._words.close()

    def _received(
        self,
        outline: Outline,
        words: dict[str, Any],
        tail: memoryview,
        new: dict[int, int],
        places: NDArray[np.int64],
        assembly: Assembly,
    ) -> Received:
        for name in words.get("gone", ()):
            self._user.forget(name)
        lent: dict[int, memoryview] = {}
        buffers = []
        for size, place in zip(outline.sizes, words["places_of"], strict=True):
            if place is None:
                buffers.append(tail[:size])
                tail = tail[size:]
            else:
                name, at = place
                view = lent[name] if name in lent else lent.setdefault(name, self._user.lend(name, new.get(name)))
                buffers.append(view[at : at + size])
        marks, *rest = buffers
        columns = {}
        for name, head, sizes in outline.columns:
            column = decoded(head, rest[: len(sizes)])
            columns[name] = placed(name, column, assembly, places) if sum(sizes) < SMALL else column
            rest = rest[len(sizes) :]
        return Received(places, columns, bytes(marks), outline)


def opened(line: Line, hello: dict[str, Any], words: dict[str, Any], *, shared: bool) -> Course:
    """Begin a course, in shared memory where the feeder is on this host and can be reached there."""
    if shared and hello.get("machine") == machine() and words["compression"] is None:
        with suppress(FeederLostError):  # a host may have several networks, in which doors are not seen
            return SharedCourse(line, str(hello["door"]), words)
    return FlightCourse(line, words)
