"""Messages that are kept for later: in memory while there is room, else in a file that nobody else can see.

The file has no name, so it is gone with this process, however that ends. What is not needed any more gives its room
back, in memory and on the disk.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from typing import IO

from shoal._segments import c_library
from shoal.engines._message import Buffer
from shoal.errors import StateError

__all__ = ["Kept", "Shelf"]

_PAGE = mmap.ALLOCATIONGRANULARITY
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
#: Less than this is read sooner than mapped.
_MAPPED = 2**20


class Kept:
    """A message on a shelf; when nobody refers to it any more, its room is free again."""

    __slots__ = ("__weakref__", "_data", "_file", "_offset", "nbytes")

    def __init__(self, nbytes: int, data: Buffer | None = None, file: IO[bytes] | None = None, offset: int = 0) -> None:
        self.nbytes, self._data, self._file, self._offset = nbytes, data, file, offset

    def view(self, begin: int = 0, size: int | None = None) -> memoryview:
        """Give its bytes, or some of them."""
        size = self.nbytes - begin if size is None else size
        if self._data is not None:
            return memoryview(self._data)[begin : begin + size]
        assert self._file is not None
        if self._file.closed:
            raise StateError("the engine was shut down, and what it had put into a file is gone with it")
        file, place = self._file.fileno(), self._offset + begin
        if size < _MAPPED:
            return memoryview(os.pread(file, size, place))
        page = place - place % _PAGE
        mapped = _Mapped(file, place - page + size, access=mmap.ACCESS_READ, offset=page)
        mapped.kept = self
        return memoryview(mapped)[place - page :]


class _Mapped(mmap.mmap):
    """Some bytes of the file; whoever looks at them keeps the message where it is."""

    kept: Kept


class Shelf:
    """Room for messages: so many bytes of memory, and a disk.

    >>> shelf = Shelf(memory=10)
    >>> bytes(shelf.keep(b"in memory").view()), bytes(shelf.keep(b"on the disk").view())
    (b'in memory', b'on the disk')
    >>> shelf.close()
    """

    def __init__(self, memory: int) -> None:
        self._memory, self._used = memory, 0
        self._file: IO[bytes] | None = None
        self._end = 0
        # A finalizer may run in the middle of anything, also of what holds the lock.
        self._lock = threading.RLock()

    @property
    def spilled(self) -> int:
        """Bytes that the file has come to."""
        return self._end

    def keep(self, message: Buffer) -> Kept:
        """Keep a message, and nothing of the memory it lies in if that is somebody else's."""
        size = memoryview(message).nbytes
        with self._lock:
            fits = self._used + size <= self._memory or not size
            if fits:
                self._used += size
            else:
                file, offset = self._reserved(size)
        if fits:
            kept = Kept(size, _own(message))
            weakref.finalize(kept, self._give_back, size)
        else:
            _write(file, message, offset)
            kept = Kept(size, file=file, offset=offset)
            weakref.finalize(kept, self._punch, offset, size)
        return kept

    def close(self) -> None:
        """Give up the file; what was mapped of it stays readable."""
        with self._lock:
            if self._file is not None:
                self._file.close()

    def _reserved(self, size: int) -> tuple[IO[bytes], int]:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="shoal-")  # noqa: SIM115  (closed with the shelf)
        offset = self._end
        self._end += -(-size // _PAGE) * _PAGE
        return self._file, offset

    def _give_back(self, size: int) -> None:
        with self._lock:
            self._used -= size

    def _punch(self, offset: int, size: int) -> None:
        """Let the file system have the room again; where it cannot, the file is gone at the end anyway."""
        with self._lock:
            if self._file is not None and not self._file.closed:
                room = -(-size // _PAGE) * _PAGE
                c_library().fallocate(self._file.fileno(), _KEEP_SIZE | _PUNCH_HOLE, offset, room)


def _write(file: IO[bytes], message: Buffer, offset: int) -> None:
    view, done = memoryview(message).cast("B"), 0
    while done < view.nbytes:
        done += os.pwrite(file.fileno(), view[done:], offset + done)


def _own(message: Buffer) -> Buffer:
    """Give memory that has nothing else in it."""
    if isinstance(message, memoryview) and isinstance(message.obj, bytearray) and len(message.obj) == message.nbytes:
        return message.obj
    return bytes(message) if isinstance(message, memoryview) else message
