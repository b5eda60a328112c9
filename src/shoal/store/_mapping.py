"""Objects as they are read: small ones as a copy, large ones where they lie, for as long as somebody looks at them.

Who looks at a large object holds a shared lock on its file. The lock belongs to the file as the map has it open, so it
goes with the last view, and with the process.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from bisect import bisect_right, insort
from fcntl import LOCK_SH, flock
from typing import Any, NamedTuple

import numpy as np

from shoal.store._ids import ObjectID

__all__ = ["SMALL", "Opened", "Place", "address", "open_file", "region_at"]

#: Bytes up to which an object is copied.
SMALL = 2**16
_HEAD = 4096


class Place(NamedTuple):
    """Where in a store a blob lies."""

    owner: ObjectID
    """The object in whose file it is."""
    blob_id: ObjectID
    offset: int
    size: int


class Region(NamedTuple):
    """Memory of this process in which an object lies."""

    begin: int
    end: int
    folder: str
    owner: ObjectID
    path: str
    """The file in which it was found."""
    inode: int
    blobs: dict[tuple[int, int], ObjectID]
    """The names of blobs, by where they begin and their size."""

    def blob_at(self, begin: int, size: int) -> ObjectID | None:
        """Name the blob that is just there."""
        return self.blobs.get((begin - self.begin, size))


class Opened(NamedTuple):
    """The bytes of an object."""

    data: memoryview
    head: bytes
    """The first of them, read: looking at what is mapped for the first time costs more."""
    path: str
    region: Region | None
    """None for a copy."""


def open_file(path: str, folder: str, owner: ObjectID) -> Opened | None:
    """Read or map a file; None if it is not there, or not any more."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(fd).st_size
        head = os.pread(fd, size if size <= SMALL else _HEAD, 0)
        if size <= SMALL:
            return Opened(memoryview(head), head, path, None)
        flock(fd, LOCK_SH)  # nobody who moves or removes it holds it for long
        found = os.fstat(fd)
        if not _is(path, found.st_ino):  # it was removed before there was a lock on it, and may hold something else
            return None
        os.utime(fd)
        mapped = mmap.mmap(fd, found.st_size, prot=mmap.PROT_READ)
    finally:
        os.close(fd)
    view = memoryview(mapped)
    begin = address(view)
    region = Region(begin, begin + found.st_size, folder, owner, path, found.st_ino, {})
    _remember(region, mapped)
    return Opened(view, head, path, region)


def _is(path: str, inode: int) -> bool:
    try:
        return os.stat(path).st_ino == inode
    except FileNotFoundError:
        return False


def address(data: Any) -> int:
    """Tell where in memory some bytes begin."""
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0])


_REGIONS: list[Region] = []
_LOCK = threading.RLock()  # a map may go, and call back, while this very thread holds it
_KEPT: dict[int, weakref.ref[Any]] = {}


def region_at(begin: int, end: int) -> Region | None:
    """Find the object that lies at an address."""
    with _LOCK:
        at = bisect_right(_REGIONS, begin, key=_begin) - 1
        if at < 0 or end > _REGIONS[at].end:
            return None
        return _REGIONS[at]


def _begin(region: Region) -> int:
    return region.begin


def _remember(region: Region, mapped: mmap.mmap) -> None:
    def forget(_: Any) -> None:
        with _LOCK:
            at = bisect_right(_REGIONS, region.begin, key=_begin) - 1
            if at >= 0 and _REGIONS[at] is region:
                del _REGIONS[at]
            _KEPT.pop(id(region), None)

    with _LOCK:
        insort(_REGIONS, region, key=_begin)
        _KEPT[id(region)] = weakref.ref(mapped, forget)


def _after_fork() -> None:
    global _LOCK
    _LOCK = threading.RLock()  # the old one may be held by a thread that is not here


os.register_at_fork(after_in_child=_after_fork)
