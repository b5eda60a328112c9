"""Room for objects: how much of the memory that a store may use is used, and how more is made.

What is used is counted anew each time from the files that are there, so that no death can leave a wrong number. To
count seldom, a process sets more aside than it needs, and notes that in its lease, where others see it.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import NamedTuple

from shoal.errors import StoreFullError
from shoal.store._collect import collect
from shoal.store._folder import Folder, names_in
from shoal.store._lease import Lease, aside
from shoal.store._recycling import FREE, reclaim
from shoal.store._spilling import spill

__all__ = ["Room", "Usage", "usage"]

_PAGE = 4096
_CHUNK = 64 * 2**20


class Usage(NamedTuple):
    """Bytes of memory, by what they are used for."""

    persisted: int
    transient: int
    zombies: int
    """Objects that were deleted while somebody looked at them."""
    aside: int
    """Set aside by processes that are going to put more."""

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self)


def usage(folder: Folder, *, without: str | None = None) -> Usage:
    """Count what is used, except for what one lease has set aside."""
    seen: set[int] = set()
    leases = [f"{folder.path}/t/{name}" for name in names_in(f"{folder.path}/t")]
    kept = sum(_size(f"{folder.path}/x/{name}", seen) for name in names_in(f"{folder.path}/x"))
    return Usage(
        _size(f"{folder.path}/p", seen) + kept,
        sum(_size(lease, seen) for lease in leases),
        _size(f"{folder.path}/z", seen),
        sum(aside(lease)[0] for lease in leases if lease != without)
        + sum(_size(lease, seen, FREE) for lease in leases),
    )


def _free_files(folder: Folder) -> list[str]:
    """List files whose memory is kept for the next object."""
    found = []
    for lease in names_in(f"{folder.path}/t"):
        with suppress(FileNotFoundError):
            home = f"{folder.path}/t/{lease}"
            found += [f"{home}/{name}" for name in os.listdir(home) if name.startswith(FREE)]
    return found


def _size(folder: str, seen: set[int], prefix: str | None = None) -> int:
    """Count the bytes of objects in a folder, or of files whose names have a prefix."""
    total = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(prefix or ".") != (prefix is not None):
                continue
            with suppress(FileNotFoundError):
                found = entry.stat(follow_symlinks=False)
                if found.st_nlink > 1:
                    if found.st_ino in seen:
                        continue
                    seen.add(found.st_ino)
                total += _pages(found.st_size)
    return total


class Room:
    """Sets memory aside for the objects of this process."""

    def __init__(self, folder: Folder, lease: Lease) -> None:
        self._folder, self._lease, self._lock = folder, lease, threading.Lock()

    def take(self, size: int) -> None:
        """Promise room for an object that is going to be written."""
        size = _pages(size)
        with self._lock:
            if self._lease.aside - self._lease.promised < size:
                self._ask(size)
            self._lease.promised += size

    def taken(self, size: int) -> None:
        """Hear that the object is there, and is counted as such, or will never be."""
        size = _pages(size)
        with self._lock:
            self._lease.promised -= size
            self._lease.aside -= size

    def _ask(self, size: int) -> None:
        """Set more aside; if there is too little, remove what nobody needs, and move what is cold to the disk."""
        limit = self._folder.config.memory
        chunk = max(min(_CHUNK, limit // 64), _PAGE)
        with self._folder.lock("room"):
            busy = self._lease.promised
            free = limit - usage(self._folder, without=self._lease.path).total - busy
            if free < size:
                self._lease.recycler.clear()
                collect(self._folder)
                reclaim(_free_files(self._folder))
                free = limit - usage(self._folder, without=self._lease.path).total - busy
            if free < size:
                free += spill(self._folder, size - free)
            if free < size:
                raise StoreFullError(self._complaint(size, limit))
            self._lease.aside = busy + max(size, min(chunk, free))

    def _complaint(self, size: int, limit: int) -> str:
        used = usage(self._folder, without=self._lease.path)
        parts = {
            "persisted": used.persisted,
            "of running programs": used.transient,
            "deleted, but still looked at": used.zombies,
            "set aside by other processes": used.aside,
        }
        held = ", ".join(f"{_words(count)} {what}" for what, count in parts.items() if count)
        text = f"{_words(size)} do not fit into the store at {self._folder.path}, which may use {_words(limit)}"
        disk = "nothing of that can be moved to the disk" if self._folder.config.spill else "it has no folder on a disk"
        return f"{text} and holds {held or 'nothing'}; {disk}. `shoal store ls` shows what there is"


def _pages(size: int) -> int:
    return size + (-size % _PAGE)


def _words(size: int) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000  # type: ignore[assignment]
    return f"{size:.3g} {unit}"
