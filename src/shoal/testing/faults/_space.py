"""Disks and shared memory that are full."""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import signal
import threading
from collections.abc import Iterator, Sequence

from shoal.errors import PlanError
from shoal.settings import parse_bytes

__all__ = ["full_disk", "full_shared_memory", "on_small_disk"]

_SHARED = "/dev/shm"  # noqa: S108 - the very place


@contextlib.contextmanager
def full_disk(limit: int | str = 0) -> Iterator[None]:
    """Let no file of this process grow beyond a limit, for the length of a block: on a disk or in shared memory.

    The system ends a write there as it does on a full disk, with ``EFBIG`` in the place of ``ENOSPC``. It needs no
    rights; processes that are started meanwhile have the limit, too, and those that are not Python's end with the
    signal ``SIGXFSZ``. Where the very ``ENOSPC`` is wanted, see `on_small_disk`; a file that is always full is
    ``/dev/full``.

    >>> import tempfile
    >>> with tempfile.TemporaryFile(buffering=0) as file, full_disk("1kB"):
    ...     print(file.write(bytes(2000)))
    ...     try:
    ...         file.write(b"more")
    ...     except OSError as error:
    ...         print(error.strerror)
    1000
    File too large
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = parse_bytes(limit)
    before = None
    if threading.current_thread() is threading.main_thread():  # an error, and not the end of the process
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        if before is not None:
            signal.signal(signal.SIGXFSZ, before)


def on_small_disk(command: Sequence[str], folder: str | os.PathLike[str], size: int | str = "1MB") -> list[str]:
    """Give the command that runs another one with a real, small file system in a folder, which only it can see.

    The folder is a tmpfs in a mount namespace of its own; what lay there is hidden from the command. Who is not root
    needs a system that lets users make namespaces, as most do.

    >>> import subprocess, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> command = ["dd", "if=/dev/zero", f"of={folder}/file", "bs=64k", "count=100"]
    >>> done = subprocess.run(on_small_disk(command, folder, "1MB"), capture_output=True, text=True)
    >>> "No space left on device" in done.stderr
    True
    """
    if not os.path.isdir(folder):
        raise PlanError(f"{os.fspath(folder)} is no folder: a file system is put where one is")
    alone = ["--mount"] if os.getuid() == 0 else ["--user", "--map-root-user", "--mount"]
    place = shlex.quote(os.path.abspath(folder))
    inner = f'mount -t tmpfs -o size={parse_bytes(size)} tmpfs {place} && exec "$0" "$@"'
    return ["unshare", *alone, "sh", "-c", inner, *command]


def full_shared_memory(command: Sequence[str], size: int | str = "1MB") -> list[str]:
    """Give the command that runs another one with so little shared memory, as containers have it.

    >>> import subprocess
    >>> command = ["dd", "if=/dev/zero", "of=/dev/shm/file", "bs=64k", "count=100"]
    >>> done = subprocess.run(full_shared_memory(command), capture_output=True, text=True)
    >>> "No space left on device" in done.stderr
    True
    """
    return on_small_disk(command, _SHARED, size)
