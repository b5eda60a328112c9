"""Locks on files: whoever holds one is alive, and the system lets go of it when they die.

A lock belongs to an open file, not to a name. So after taking one, `names` tells whether the name still leads to the
file that was locked; if not, somebody removed or replaced it in between, and the caller starts over.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator

__all__ = ["lock", "locked", "names", "remove_unused", "sync_folder"]

#: Filesystems without locks answer with one of these.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


def lock(file: int, *, shared: bool = False, wait: bool = True) -> bool:
    """Lock an open file; tell whether it worked.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as one, open(one.name, "rb") as other:
    ...     lock(one.fileno()), lock(other.fileno(), wait=False)
    (True, False)
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


@contextlib.contextmanager
def locked(path: str, *, wait: bool = True) -> Iterator[int | None]:
    """Hold a lock file, made where missing, for the length of a block; None means that somebody else holds it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not lock(file, wait=wait):
            if wait:
                raise OSError(errno.ENOLCK, "the filesystem has no file locks", path)
            yield None
            return
        try:
            yield file
        finally:
            # A forked child may hold the same open file; closing alone would leave the others waiting for it.
            fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)


def names(path: str, file: int) -> bool:
    """Tell whether a path leads to this open file."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(file))
    except FileNotFoundError:
        return False


def remove_unused(path: str) -> bool:
    """Remove a file unless somebody holds a lock on it; tell whether it is gone because of this call."""
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        # Gone already, or not ours to touch.
        return False
    try:
        if not lock(file, wait=False) or not names(path, file):
            return False
        os.unlink(path)
        return True
    finally:
        os.close(file)


def sync_folder(folder: str) -> None:
    """Make a rename last through a power cut, where the filesystem can."""
    with contextlib.suppress(OSError):
        file = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
