"""The stretch of a tar that is in memory: all of it over a map, what is still needed along a stream.

Places are those in the tar. A window is a tape, too, so headers that are not plain are read by the exact parser.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Iterator
from io import BufferedIOBase
from typing import BinaryIO, ClassVar

from shoal.errors import ShardError, TruncatedShardError, UnsupportedMemberError
from shoal.shards._header import BLOCK, next_member, padded
from shoal.shards._walk import Run, plain_run, whole

__all__ = ["MapWindow", "StreamWindow", "Window"]

_MOST = 128 * 2**20  # what is held of a stream, headers of any length included
_FIRST = 4 * 2**20
_LEAST = 2**18  # bytes that a read should have room for
_CHEAP = 2**16  # bytes that are rather moved than kept where they are
_RUN = 1024
_LET_GO = 64 * 2**20


class Window(ABC):
    """Some of the bytes of a tar, and a place in it: that of the next header."""

    lasting: ClassVar[bool] = False
    """Whether views hold for ever."""

    def __init__(self, shard: str) -> None:
        self.shard = shard
        self.offset = 0
        self.marked = False
        self.everywhere: dict[str, str] = {}
        self.ended = False

    @property
    @abstractmethod
    def stop(self) -> int:
        """Where the bytes end that are there."""

    @abstractmethod
    def hold(self, begin: int, end: int) -> bool:
        """Have the bytes from ``begin`` to ``end`` there, and let go of those before; False if these are too many.

        Where the tar ends before, so does `stop`.
        """

    @abstractmethod
    def view(self, begin: int, end: int) -> memoryview:
        """Look at bytes that are there; the view holds until the next `hold`, `pieces` or `run`."""

    @abstractmethod
    def pieces(self, begin: int, end: int) -> Iterator[memoryview]:
        """Go through bytes, however many, letting go of each piece for the next."""

    @abstractmethod
    def read(self, size: int) -> bytes:
        """Read up to ``size`` bytes; fewer only at the end."""

    @abstractmethod
    def skip(self, size: int) -> None:
        """Move over ``size`` bytes; short only at the end."""

    @abstractmethod
    def _plain_run(self) -> tuple[Run, int, ShardError | None]:
        """Read ordinary members from the next header on."""

    def run(self) -> tuple[Run, ShardError | None]:
        """Find the next members; the bytes of the last may not be there yet, those of the others are.

        An error is returned, so that what stands before it gets out. Without members it was the end.
        """
        run, end, error = self._plain_run()
        if run.names:
            self.offset, self.marked = end, False
        if run.names or error is not None:
            return run, error
        try:
            member = next_member(self)
        except ShardError as cut:
            return run, cut
        if member is None:
            self.ended = True
        else:
            run.append(member)
            self.offset = member.offset + padded(member.size)
        return run, None


class MapWindow(Window):
    """A plain local file, mapped."""

    lasting = True

    def __init__(self, file: BinaryIO, shard: str) -> None:
        super().__init__(shard)
        try:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise TruncatedShardError("the file is empty", shard=shard, offset=0) from error
        self._map.madvise(mmap.MADV_SEQUENTIAL)
        self._view = memoryview(self._map)
        self._let_go = 0

    @property
    def stop(self) -> int:
        return len(self._map)

    def hold(self, begin: int, end: int) -> bool:
        if begin - self._let_go >= _LET_GO:
            # Else all that was ever looked at would count as memory of this process.
            place = begin - begin % mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, self._let_go, place - self._let_go)
            self._let_go = place
        return True

    def view(self, begin: int, end: int) -> memoryview:
        return self._view[begin:end]

    def pieces(self, begin: int, end: int) -> Iterator[memoryview]:
        yield self._view[begin:end]

    def read(self, size: int) -> bytes:
        data = self._map[self.offset : self.offset + size]
        self.offset += len(data)
        return data

    def skip(self, size: int) -> None:
        self.offset = min(self.offset + size, len(self._map))

    def _plain_run(self) -> tuple[Run, int, ShardError | None]:
        return plain_run(self._map, self.offset, _RUN, self.shard, stop=len(self._map))


class StreamWindow(Window):
    """A tar that can only be read forward; what is not needed any more makes room for what comes."""

    def __init__(self, stream: BufferedIOBase, shard: str, most: int) -> None:
        super().__init__(shard)
        self._stream, self._most = stream, most
        self._buffer = bytearray(_FIRST)
        self._view = memoryview(self._buffer)
        self._base = 0
        """Where in the tar the buffer begins."""
        self._filled = 0
        self._kept = 0
        """From which place on bytes are needed."""

    @property
    def stop(self) -> int:
        return self._base + self._filled

    def hold(self, begin: int, end: int) -> bool:
        self._kept = begin
        if end - begin > self._most:
            return False
        self._reach(end)
        return True

    def view(self, begin: int, end: int) -> memoryview:
        return self._view[begin - self._base : min(end, self.stop) - self._base]

    def pieces(self, begin: int, end: int) -> Iterator[memoryview]:
        while begin < end:
            self._kept = begin
            self._reach(begin + 1)
            if (there := min(end, self.stop)) <= begin:
                return
            yield self.view(begin, there)
            begin = there
        self._kept = end

    def read(self, size: int) -> bytes:
        self._reach(self.offset + size)
        data = bytes(self.view(self.offset, self.offset + size))
        self.offset += len(data)
        return data

    def skip(self, size: int) -> None:
        self._reach(self.offset + size)
        self.offset = min(self.offset + size, self.stop)

    def _plain_run(self) -> tuple[Run, int, ShardError | None]:
        self._reach(self.offset + BLOCK)
        return plain_run(self._buffer, self.offset - self._base, _RUN, self.shard, stop=self._filled, base=self._base)

    def _reach(self, end: int) -> None:
        """Read until the bytes before ``end`` are there, or the stream has no more."""
        while self.stop < end:
            self._make_room(end)
            with whole(self.shard, self.stop):
                count = self._stream.readinto1(self._view[self._filled :])
            if not count:
                return
            self._filled += count

    def _make_room(self, end: int) -> None:
        kept = self.stop - self._kept
        if kept > _CHEAP and len(self._buffer) - self._filled >= _LEAST and end - self._base <= len(self._buffer):
            return
        needed = max(end - self._kept, kept + _LEAST)
        if needed > _MOST:
            text = f"{needed:,} bytes would have to be held for the headers of a member"
            raise UnsupportedMemberError(text, shard=self.shard, offset=self.offset)
        still = self._view[self._kept - self._base : self._filled]
        if needed > len(self._buffer):
            self._buffer = bytearray(max(needed, min(2 * len(self._buffer), _MOST)))
            self._view = memoryview(self._buffer)
        self._view[:kept] = still
        self._base, self._filled = self._kept, kept
