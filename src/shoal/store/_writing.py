"""Objects as they are written: nobody sees one that is not complete, and none is left of a writer that dies."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from itertools import islice

from shoal.errors import StoreError, StoreFullError
from shoal.store._folder import Folder

__all__ = ["seal"]

_AT_ONCE = 512  # parts of one call; the system takes 1024


def seal(parts: Sequence[bytes | memoryview], path: str, folder: Folder) -> None:
    """Write a file without a name, and give it its name when it is complete."""
    try:
        fd = os.open(folder.path, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
            raise
        _seal_named(parts, path)
        return
    try:
        _write(fd, parts, folder)
        # Through /proc, because a file without a name can be linked to by whoever has it open.
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)
    except FileExistsError as error:
        raise StoreError(f"{path} is there already: another process has drawn the same number") from error
    finally:
        os.close(fd)


def _seal_named(parts: Sequence[bytes | memoryview], path: str) -> None:
    """Do the same where files without a name cannot be had."""
    private = f"{os.path.dirname(path)}/.new-{os.path.basename(path)}"
    fd = os.open(private, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _write(fd, parts, None)
        os.rename(private, path)
    except BaseException:
        os.unlink(private)
        raise
    finally:
        os.close(fd)


def _write(fd: int, parts: Sequence[bytes | memoryview], folder: Folder | None) -> None:
    waiting = iter(parts)
    try:
        while some := list(islice(waiting, _AT_ONCE)):
            _write_all(fd, some)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        where = "" if folder is None else f" {folder.path}"
        text = f"the file system of the store{where} is full, though the store may use more of it"
        raise StoreFullError(f"{text}: others use it, too") from error


def _write_all(fd: int, parts: list[bytes | memoryview]) -> None:
    while parts:
        done = os.writev(fd, parts)
        while parts and done >= len(parts[0]):
            done -= len(parts.pop(0))
        if parts and done:
            parts[0] = memoryview(parts[0])[done:]
