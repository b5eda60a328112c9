"""Batches for a trainer on the same host: it maps the memory in which the feeder has made them.

Words go through a socket without a name in the file system, so that nothing is left behind; whoever connects says the
token first. The trainer asks for one piece after the other, and says which memory it does not look at any more.
"""

from __future__ import annotations

import hashlib
import math
import os
import socket
import struct
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import _sockets
from shoal._flight import pack
from shoal._segments import Owned, Owner, copy
from shoal._slabs import Slabs, aligned_empty
from shoal.feed._pieces import SMALL, Piece
from shoal.feed._ticket import DIALECT
from shoal.feed._told import told

__all__ = ["SharedDoor", "SharedSlabs", "Words", "machine", "secret_of", "send_course"]

_HEAD = struct.Struct("<II")
_DESCRIPTORS = 64  # of one frame


def machine() -> str:
    """Name the machine that this process is on, since it was started."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def secret_of(token: str) -> bytes:
    """Make of a token what is said at the door."""
    return hashlib.sha256(token.encode()).digest()


class SharedSlabs(Slabs):
    """Lends arrays in memory that another process can map, and lends it again when nobody here or there has it."""

    def __init__(self) -> None:
        super().__init__()
        self._owner, self._lock = Owner(), threading.Lock()
        self._segments: dict[int, Owned] = {}
        self._idle: deque[int] = deque()
        self._parted: set[int] = set()
        """Names that nothing here refers to, while the other side still does."""
        self._abroad: set[int] = set()

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Give an array of any contents."""
        size = math.prod(shape) * dtype.itemsize
        if size < SMALL or dtype.hasobject:
            return aligned_empty(shape, dtype)
        with self._lock:
            self._collect()
            segment = self._owner.take(size)
            self._segments[segment.name] = segment
            # Over the exporter itself, by which it is known that rows which were filled are the whole of it.
            exporter: Any = segment.mapping.lend(segment.name, self._idle).obj
            return np.ndarray(shape, dtype, exporter)

    def lent(self, buffer: Any) -> tuple[Owned, int] | None:
        """Find the memory that bytes are in, and where in it, if it is ours."""
        address = np.frombuffer(buffer, np.uint8).ctypes.data
        with self._lock:
            for segment in self._segments.values():
                at = address - segment.mapping.address
                if 0 <= at <= segment.size - len(buffer):
                    self._abroad.add(segment.name)
                    return segment, at
        return None

    def back(self, names: Sequence[int]) -> None:
        """Hear that the other side does not look at memory any more."""
        with self._lock:
            for name in names:
                self._abroad.discard(abs(name))
                if abs(name) in self._parted:
                    self._parted.discard(abs(name))
                    self._owner.back(name)

    def gone(self) -> list[int]:
        """Name memory that will not be used again."""
        with self._lock:
            names = list(self._owner.dropped)
            self._owner.dropped.clear()
            for name in names:
                self._segments.pop(name, None)
            return names

    def close(self) -> None:
        """Let go of everything; what comes back afterwards is nobody's."""
        with self._lock:
            self._owner.close()
            self._segments.clear()
            self._parted.clear()

    def _collect(self) -> None:
        while self._idle:
            name = self._idle.popleft()
            if abs(name) in self._abroad:
                self._parted.add(abs(name))
            else:
                self._owner.back(name)


class Words:
    """One end of a socket: documents, with some bytes behind them and descriptors beside them."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, words: dict[str, Any], tail: bytes = b"", descriptors: Sequence[int] = ()) -> None:
        """Send a document; OSError if the other end is gone."""
        data = pack(words)
        head = _HEAD.pack(len(data), len(tail))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
        self._end.sendmsg([head], rights)
        self._end.sendall(data + tail)

    def receive(self) -> tuple[dict[str, Any], bytearray, list[int]]:
        """Wait for a document; OSError if the other end goes."""
        head, ancillary, _, _ = self._end.recvmsg(
            _HEAD.size, socket.CMSG_SPACE(4 * _DESCRIPTORS), socket.MSG_CMSG_CLOEXEC | socket.MSG_WAITALL
        )
        if len(head) < _HEAD.size:
            raise ConnectionResetError("the other end is closed")
        descriptors = [each for *_, data in ancillary for each in array("i", data[: len(data) // 4 * 4])]
        size, tail = _HEAD.unpack(head)
        words = DIALECT.unpack(_sockets.exactly(self._end, size))
        return words, _sockets.exactly(self._end, tail), descriptors

    def close(self) -> None:
        """Hang up; who waits for a document finds the other end gone."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()


class SharedDoor(_sockets.Entrance):
    """Where trainers of the same host come in."""

    def __init__(self, token: str, attend: Callable[[Words], None]) -> None:
        self.name = f"shoal-feed-{os.urandom(12).hex()}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"\0{self.name}")
        listener.listen(64)
        self._serve = attend
        super().__init__(listener, secret_of(token), self._heard)

    def _heard(self, end: socket.socket) -> None:
        words = Words(end)
        try:
            self._serve(words)
        finally:
            words.close()


def send_course(words: Words, begin: Callable[[SharedSlabs], Iterator[Piece]]) -> None:
    """Send one piece whenever the trainer asks for it, until there are no more, something fails, or he goes."""
    slabs, asked, gone = SharedSlabs(), threading.Semaphore(0), threading.Event()

    def listen() -> None:
        try:
            with suppress(OSError):
                while True:
                    slabs.back(words.receive()[0]["back"])
                    asked.release()
        finally:  # whatever ended it, nobody waits for a question that will not be heard
            gone.set()
            asked.release()

    threading.Thread(target=listen, name="shoal-feed-listen", daemon=True).start()
    pieces: Any = None
    owed = False
    try:
        pieces = begin(slabs)
        for piece in pieces:
            owed = asked.acquire()
            if gone.is_set():
                return
            with suppress(OSError):  # that he has gone is heard by who listens
                _send_piece(words, piece, slabs)
            owed = False
            del piece
        last: dict[str, Any] = {"end": True}
    except Exception as error:
        last = {"error": told(error)}
    finally:
        if pieces is not None:
            pieces.close()
        slabs.close()
    if not owed:
        asked.acquire()
    with suppress(OSError):
        words.send(last)


def _send_piece(words: Words, piece: Piece, slabs: SharedSlabs) -> None:
    outline, buffers = piece.packed()
    places: list[tuple[int, int] | None] = []
    tail, descriptors, new = bytearray(), list[int](), list[Owned]()
    for buffer in buffers:
        if len(buffer) < SMALL:
            places.append(None)
            tail += buffer
            continue
        segment, at = slabs.lent(buffer) or _copied(buffer, slabs)
        if segment.descriptor is not None and segment not in new:
            new.append(segment)
            descriptors.append(segment.descriptor)
        places.append((segment.name, at))
    outline |= {"places_of": places, "new": [segment.name for segment in new], "gone": slabs.gone()}
    words.send(outline, bytes(tail), descriptors)
    for segment in new:
        segment.sent()


def _copied(buffer: Any, slabs: SharedSlabs) -> tuple[Owned, int]:
    room = slabs.empty((len(buffer),), np.dtype(np.uint8))
    copy(memoryview(room), buffer)  # type: ignore[arg-type]
    found = slabs.lent(memoryview(room))  # type: ignore[arg-type]
    assert found is not None
    return found
