"""Cold objects, moved to a disk; whoever wants one maps it there."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from shoal.store._folder import COPY, Folder, locked, names_in, unlocked
from shoal.store._removal import remove

__all__ = ["spill"]


class _Cold(NamedTuple):
    used: int
    """When it was last asked for, in nanoseconds."""
    size: int
    inside: str


def spill(folder: Folder, wanted: int) -> int:
    """Move objects until so many bytes of memory are free, those first that nobody asked for the longest."""
    if folder.config.spill is None:
        return 0
    freed = 0
    for cold in sorted(_candidates(folder)):
        if freed >= wanted:
            break
        if _moved(folder, folder.config.spill, cold.inside):
            freed += cold.size
    return freed


def _candidates(folder: Folder) -> list[_Cold]:
    found = []
    rooms = ["p", *(f"t/{lease}" for lease in names_in(f"{folder.path}/t"))]
    for room in rooms:
        with suppress(FileNotFoundError), os.scandir(f"{folder.path}/{room}") as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    what = entry.stat(follow_symlinks=False)
                    if not entry.name.startswith(".") and what.st_nlink == 1:
                        found.append(_Cold(what.st_mtime_ns, what.st_size, f"{room}/{entry.name}"))
    return found


def _moved(folder: Folder, disk: str, inside: str) -> bool:
    """Move one object, unless somebody looks at it."""
    here, there = f"{folder.path}/{inside}", f"{disk}/{inside}"
    try:
        fd = os.open(here, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        if not locked(fd, exclusive=True) or not _is(here, fd):  # which may be another object's by now
            return False
        with suppress(OSError):  # the disk is full; what cannot be moved stays
            _copy(fd, there)
        if not os.path.exists(there):
            return False
        if not _is(here, fd):  # it was deleted or persisted in the meantime, and must not come back
            with suppress(FileNotFoundError):
                os.unlink(there)
            return False
        with suppress(FileNotFoundError):
            remove(fd, here)
        return True
    finally:
        unlocked(fd)


def _copy(fd: int, there: str) -> None:
    os.makedirs(os.path.dirname(there), mode=0o700, exist_ok=True)
    temporary = f"{os.path.dirname(there)}/{COPY}{os.path.basename(there)}"
    out = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        locked(out, exclusive=True)  # a copy that nobody holds is one that nobody makes any more
        size, done = os.fstat(fd).st_size, 0
        while done < size:
            done += os.sendfile(out, fd, done, size - done)
        os.rename(temporary, there)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    finally:
        unlocked(out)


def _is(path: str, fd: int) -> bool:
    try:
        return os.stat(path).st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False
