"""Stored bytes for libraries that know no read-only memory: what they write is theirs, and the store keeps its own.

A file is mapped once more, so that pages are copied when, and only when, somebody writes to them.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from fcntl import LOCK_SH, flock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.store._mapping import Region, address, region_at

__all__ = ["writable"]


def writable(data: Any) -> NDArray[np.uint8]:
    """Give bytes that may be written to: large ones of the store in the same memory, all others as a copy.

    >>> writable(b"abc").tobytes()
    b'abc'
    """
    view = memoryview(data)
    if view.nbytes:
        begin = address(view)
        region = region_at(begin, begin + view.nbytes)
        mapped = None if region is None else _mapped(region, begin - region.begin, view.nbytes)
        if mapped is not None:
            return mapped
    return np.array(np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8))


def _mapped(region: Region, offset: int, size: int) -> NDArray[np.uint8] | None:
    """Map a part of the file that lies in a region; None if it has been moved or removed since."""
    start = offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    with suppress(OSError):
        fd = os.open(region.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            flock(fd, LOCK_SH)  # it stays where it is as long as the map lives, which has the file open as well
            if os.fstat(fd).st_ino != region.inode or os.stat(region.path).st_ino != region.inode:
                return None
            prot = mmap.PROT_READ | mmap.PROT_WRITE
            found = mmap.mmap(fd, size + offset - start, mmap.MAP_PRIVATE, prot, offset=start)
        finally:
            os.close(fd)
        return np.frombuffer(found, np.uint8, size, offset - start)
    return None
