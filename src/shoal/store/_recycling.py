"""Memory of objects that are gone, for those that come.

Fresh memory costs more than what is written to it: the system finds every page, and clears it. A process that deletes a
large object of its own keeps its file, mapped, under a private name in its lease; the next object of about that size is
written there. Whoever needs the memory takes it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fcntl import LOCK_UN, flock
from functools import cache
from typing import NamedTuple

import numpy as np

from shoal import settings
from shoal.store._folder import Folder, locked, unlocked

__all__ = ["FREE", "LEAST", "Recycler", "punch", "reclaim"]

#: How the names of free files begin.
FREE = ".free-"
#: Bytes from which on it pays.
LEAST = 2**20
_KEEP = 2**30
_SHARED = 16 * 2**20  # bytes from which on several threads copy
_MAPS = 64  # files of living objects that stay mapped, at most
_PUNCH = 0x3  # FALLOC_FL_PUNCH_HOLE, and the size stays what it is


class _Sheet(NamedTuple):
    """A file, and the memory that it is."""

    fd: int
    memory: mmap.mmap
    capacity: int


class Recycler:
    """The free files of one process."""

    def __init__(self, folder: Folder, home: str) -> None:
        self._folder, self._home = folder, home
        self._lock = threading.Lock()
        self._used: dict[int, _Sheet] = {}
        """Files of objects that were written through a map, by their inodes."""
        self._free: dict[int, _Sheet | None] = {}
        """Free files; None for those that are not mapped yet."""

    def write(self, parts: Sequence[bytes | memoryview], size: int, path: str) -> bool:
        """Write an object into a free file, and give it its name; False if there is none that fits."""
        if size < LEAST or not self._free:
            return False
        with self._lock:
            found = self._take(size)
        if found is None:
            return False
        inode, sheet = found
        os.ftruncate(sheet.fd, size)
        _copy(parts, sheet.memory)
        os.rename(f"{self._home}/{FREE}{inode:x}", path)
        flock(sheet.fd, LOCK_UN)
        with self._lock:
            self._used[inode] = sheet
            while len(self._used) > _MAPS:
                _drop(self._used.pop(next(iter(self._used))))
        return True

    def keep(self, fd: int, path: str) -> bool:
        """Keep the file of an object that is deleted, of which the caller has the lock; False if that is too much."""
        what = os.fstat(fd)
        if what.st_size < LEAST or what.st_nlink != 1 or not path.startswith(self._folder.path):
            return False
        with self._lock:
            sheet = self._used.pop(what.st_ino, None)
            room = min(_KEEP, self._folder.config.memory // 8) - sum(self._size(inode) for inode in self._free)
            if what.st_size > room:
                _drop(sheet)
                return False
            os.rename(path, f"{self._home}/{FREE}{what.st_ino:x}")
            # It has no more memory than the object that was there, and there may be none to be had.
            self._free[what.st_ino] = sheet and sheet._replace(capacity=what.st_size)
        return True

    def clear(self) -> None:
        """Give all free files back."""
        with self._lock:
            for inode, sheet in self._free.items():
                with suppress(FileNotFoundError):
                    os.unlink(f"{self._home}/{FREE}{inode:x}")
                _drop(sheet)
            self._free.clear()

    def forget(self) -> None:
        """Have nothing any more, in a process that was forked from the one that has it."""
        for sheet in [*self._used.values(), *self._free.values()]:
            _drop(sheet)
        self._lock, self._used, self._free = threading.Lock(), {}, {}

    def _size(self, inode: int) -> int:
        sheet = self._free[inode]
        if sheet is not None:
            return sheet.capacity
        with suppress(FileNotFoundError):
            return os.stat(f"{self._home}/{FREE}{inode:x}").st_size
        return 0

    def _take(self, size: int) -> tuple[int, _Sheet] | None:
        """Take the free file that fits best, if nobody else takes it at this moment."""
        fitting = sorted((have, inode) for inode in self._free if size <= (have := self._size(inode)) <= size * 5 // 4)
        for have, inode in fitting:
            sheet = self._free.pop(inode) or self._opened(inode, have)
            if sheet is None:
                continue
            if locked(sheet.fd, exclusive=True) and os.fstat(sheet.fd).st_nlink:
                return inode, sheet
            _drop(sheet)
        return None

    def _opened(self, inode: int, size: int) -> _Sheet | None:
        try:
            fd = os.open(f"{self._home}/{FREE}{inode:x}", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        return _Sheet(fd, mmap.mmap(fd, size, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)), size)


def punch(fd: int, size: int) -> None:
    """Give the pages of a file back that nobody can read any more, though some process may have it mapped."""
    _libc().fallocate(fd, _PUNCH, ctypes.c_int64(0), ctypes.c_int64(size))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _copy(parts: Sequence[bytes | memoryview], memory: mmap.mmap) -> None:
    """Copy all parts, one behind the other; a large one by several threads."""
    at, others = 0, []
    for part in parts:
        step = len(part) if len(part) < _SHARED else -(-len(part) // _threads())
        for begin in range(0, len(part), step or 1):
            piece = (memory, at + begin, memoryview(part)[begin : begin + step])
            if begin:
                others.append(threading.Thread(target=_copy_piece, args=piece, name="shoal-copy"))
                others[-1].start()
            else:
                first = piece
        if len(part):
            _copy_piece(*first)
        at += len(part)
    for thread in others:
        thread.join()


def _copy_piece(memory: mmap.mmap, at: int, piece: memoryview) -> None:
    # Not by a slice of the map, which would keep other threads waiting.
    np.copyto(np.frombuffer(memory, np.uint8, len(piece), at), np.frombuffer(piece, np.uint8))


@cache
def _threads() -> int:
    return min(settings.processors(), 4)


def reclaim(paths: Iterable[str]) -> int:
    """Take the memory of free files, also of other processes, which have it mapped; give the bytes."""
    freed = 0
    for path in paths:
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if locked(fd, exclusive=True):
                    size = os.fstat(fd).st_size
                    os.unlink(path)
                    punch(fd, size)
                    freed += size
            finally:
                unlocked(fd)
    return freed


def _drop(sheet: _Sheet | None) -> None:
    if sheet is not None:
        os.close(sheet.fd)
