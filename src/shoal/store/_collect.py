"""What nobody needs any more is removed by whoever comes next."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from glob import escape, iglob

from shoal.store._folder import COPY, Folder, files_in, locked, names_in, unlocked
from shoal.store._ids import ObjectID
from shoal.store._lease import dead, sweep
from shoal.store._removal import forget_links, remove

__all__ = ["collect"]

#: Seconds after which a thing that is being made is taken for one that never will be.
_LONG = 60.0


def collect(folder: Folder) -> int:
    """Remove what dead processes left, and what nobody looks at any more; give the bytes that came free."""
    freed = 0
    for name in {name for root in folder.roots for name in names_in(f"{root}/t")}:
        if dead(f"{folder.path}/t/{name}"):
            freed += sweep(folder, f"{folder.path}/t/{name}")
    freed += _unneeded(folder)
    for object_id, path in files_in(f"{folder.path}/x"):
        if _never(folder, object_id, path):
            freed += forget_links(folder, object_id)
    for member in names_in(f"{folder.path}/r"):
        _forget_parents(folder, f"{folder.path}/r/{member}")
    _half_made(folder)
    return freed


def _unneeded(folder: Folder) -> int:
    """Remove objects that were deleted, and that nobody looks at any more."""
    freed = 0
    for name in names_in(f"{folder.path}/z"):
        path = f"{folder.path}/z/{name}"
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if locked(fd, exclusive=True):
                    freed += os.fstat(fd).st_size
                    remove(fd, path)
            finally:
                unlocked(fd)
    return freed


def _forget_parents(folder: Folder, home: str) -> None:
    for parent, note in files_in(home):
        if _never(folder, parent, note):
            with suppress(OSError):
                os.unlink(note)
    with suppress(OSError):
        os.rmdir(home)


def _half_made(folder: Folder) -> None:
    """Remove what was begun by processes that died, under private names."""
    for home in (f"{root}/{room}" for root in folder.roots for room in ("", "p", "t", "n", "peers")):
        with suppress(FileNotFoundError):
            for name in os.listdir(home):
                path = f"{home}/{name}"
                if name.startswith(".new-") and not _is_new(path):
                    with suppress(OSError):
                        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    if folder.config.spill is not None:
        for path in iglob(f"{escape(folder.config.spill)}/**/{COPY}*", recursive=True, include_hidden=True):
            _unless_held(path)


def _unless_held(path: str) -> None:
    with suppress(FileNotFoundError):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if locked(fd, exclusive=True):
                os.unlink(path)
        finally:
            unlocked(fd)


def _never(folder: Folder, object_id: ObjectID, note: str) -> bool:
    """Tell whether an object of which something is noted is not there, and never will be."""
    gone = dead(folder.lease(object_id.lease)) or not _is_new(note)
    return gone and not any(map(os.path.exists, folder.places(object_id)))


def _is_new(path: str) -> bool:
    try:
        return time.time() - os.stat(path).st_mtime < _LONG
    except FileNotFoundError:
        return True
