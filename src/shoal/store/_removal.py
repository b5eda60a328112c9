"""Objects on their way out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from shoal.store._folder import Folder, locked, names_in, unlocked
from shoal.store._format import linked_ids
from shoal.store._ids import ObjectID
from shoal.store._mapping import SMALL
from shoal.store._recycling import LEAST, Recycler, punch

__all__ = ["Discarded", "discard", "forget_links", "forget_members", "put_away", "remove"]

_HEAD = 4096  # bytes that are read at once


class Discarded(NamedTuple):
    """What became of an object that was removed."""

    freed: int
    members: list[ObjectID]


def discard(folder: Folder, object_id: ObjectID, path: str, recycler: Recycler | None = None) -> Discarded | None:
    """Remove the file of an object, and what was noted of it; None if it is not there."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        members, shares = linked_ids(os.pread(fd, _HEAD, 0), fd)
        freed = put_away(folder, fd, path, object_id.digits, recycler)
    finally:
        unlocked(fd)
    if freed is None:
        return None
    if (members or shares) and not any(map(os.path.exists, folder.places(object_id))):  # else it was a second file
        forget_members(folder, object_id, members)
        freed += forget_links(folder, object_id)
    return Discarded(freed, members)


def forget_members(folder: Folder, parent: ObjectID, members: Iterable[ObjectID]) -> None:
    """Forget that some objects are members of another."""
    for member in members:
        with suppress(OSError):
            os.unlink(f"{folder.parents(member)}/{parent.digits}")
            os.rmdir(folder.parents(member))


def put_away(folder: Folder, fd: int, path: str, name: str, recycler: Recycler | None = None) -> int | None:
    """Remove a file that is open; one that somebody looks at is kept out of sight until nobody does.

    It gives the bytes that came free; None if somebody else has removed or moved it.
    """
    what = os.fstat(fd)
    with suppress(FileNotFoundError):
        here = path.startswith(f"{folder.path}/")
        if what.st_size > SMALL and not locked(fd, exclusive=True):
            if here:
                os.rename(path, f"{folder.path}/z/{name}-{what.st_ino:x}")
            else:
                os.unlink(path)  # a disk has room for it until nobody looks at it any more
            return 0
        if recycler is not None and here and recycler.keep(fd, path):
            return what.st_size
        remove(fd, path)
        return what.st_size
    return None


def remove(fd: int, path: str) -> None:
    """Remove a file of which the caller has the lock, and its memory, even if its writer has it mapped."""
    what = os.fstat(fd)
    os.unlink(path)
    if what.st_nlink == 1 and what.st_size >= LEAST:
        punch(fd, what.st_size)


def forget_links(folder: Folder, object_id: ObjectID) -> int:
    """Remove the links of an object to files of others, of which some may be the last."""
    home, freed = folder.shares(object_id), 0
    for name in names_in(home):
        with suppress(FileNotFoundError):
            fd = os.open(f"{home}/{name}", os.O_RDWR | os.O_CLOEXEC)
            try:
                if os.fstat(fd).st_nlink == 1:
                    freed += put_away(folder, fd, f"{home}/{name}", name) or 0
                else:
                    os.unlink(f"{home}/{name}")
            finally:
                unlocked(fd)
    with suppress(OSError):
        os.rmdir(home)
    return freed
