"""Where the objects of one host lie: a private folder in shared memory, which is all that processes share.

====  ======================================================================================
p     persisted objects
t     a folder for each process that has put something, with objects that go when it goes
z     objects that were deleted while somebody looked at them, until nobody does
x     for objects that share blobs of others, a folder with links to those
r     for objects that are members of others, a folder with the names of those
n     names
====  ======================================================================================

What does not fit into memory lies in a folder on a disk, which has ``p`` and ``t`` as well.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import socket
import stat
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock
from functools import cached_property
from pathlib import Path

from shoal import settings
from shoal.errors import StoreError
from shoal.store._ids import ObjectID

__all__ = [
    "COPY",
    "Config",
    "Folder",
    "StoreWarning",
    "default_folder",
    "files_in",
    "is_persisted",
    "locked",
    "names_in",
    "unlocked",
    "write_private",
]

#: How the names of copies begin that are being made on the disk.
COPY = ".copy-"
_SHARED = "/dev/shm"  # noqa: S108 - what is made there is private
_ENOUGH = 256 * 2**20
_ROOMS = ("p", "t", "z", "x", "r", "n", "peers")


class StoreWarning(UserWarning):
    """A store works, but not as well as it could.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", StoreWarning)
    ...     warnings.warn("shared memory is too small; the store is on a disk", StoreWarning, stacklevel=1)
    >>> [str(each.message) for each in caught]
    ['shared memory is too small; the store is on a disk']
    """


@dataclass(frozen=True, slots=True)
class Config:
    """What all processes of a store agree on."""

    instance_id: int
    hostname: str
    memory: int
    """Bytes of shared memory that may be used."""
    spill: str | None
    """The folder on a disk for what does not fit; None for nowhere."""


class Folder:
    """The folder of a store."""

    def __init__(
        self, path: str | os.PathLike[str], memory: int | None = None, spill: str | bool | None = None
    ) -> None:
        self.path = os.path.abspath(os.fspath(path))
        _make_private(self.path)
        for room in _ROOMS:
            _make_private(f"{self.path}/{room}")
        self._seen: tuple[int, int] = (0, 0)
        self._set_up(memory, spill)

    def __repr__(self) -> str:
        return f"<folder {self.path}>"

    @property
    def config(self) -> Config:
        """What was agreed on; whoever connects may change it."""
        now = os.stat(f"{self.path}/config.json")
        if self._seen != (now.st_ino, now.st_mtime_ns):
            self._config = _config(Path(self.path, "config.json"))
            self._seen = now.st_ino, now.st_mtime_ns
        return self._config

    @cached_property
    def instance_id(self) -> int:
        """The number of this store among those that are joined."""
        return self.config.instance_id

    @property
    def roots(self) -> list[str]:
        """The folder in memory, and the one on a disk if there is one."""
        return [self.path] if self.config.spill is None else [self.path, self.config.spill]

    def persisted(self, object_id: ObjectID) -> str:
        """Name the file of a persisted object."""
        return f"{self.path}/p/{object_id.digits}"

    def transient(self, object_id: ObjectID) -> str:
        """Name the file of an object that goes with its process."""
        return f"{self.lease(object_id.lease)}/{object_id.digits}"

    def lease(self, number: int) -> str:
        """Name the folder of a process that has put something."""
        return f"{self.path}/t/{number:010x}"

    def shares(self, object_id: ObjectID) -> str:
        """Name the folder with links to the files whose blobs an object shares."""
        return f"{self.path}/x/{object_id.digits}"

    def parents(self, object_id: ObjectID) -> str:
        """Name the folder with the names of those that an object is a member of."""
        return f"{self.path}/r/{object_id.digits}"

    def places(self, object_id: ObjectID) -> list[str]:
        """Name all files that an object could be in: in memory first."""
        inside = [f"p/{object_id.digits}", f"t/{object_id.lease:010x}/{object_id.digits}"]
        return [f"{root}/{name}" for root in self.roots for name in inside]

    def ids(self) -> Iterator[tuple[ObjectID, str]]:
        """List all objects, each with its file; the same one may come twice while it moves."""
        for root in self.roots:
            yield from files_in(f"{root}/p")
            for lease in names_in(f"{root}/t"):
                yield from files_in(f"{root}/t/{lease}")

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Be the only one, of all processes, who does something; a lock of a dead process is none."""
        fd = os.open(f"{self.path}/{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            flock(fd, LOCK_EX)
            yield
        finally:
            unlocked(fd)

    def _set_up(self, memory: int | None, spill: str | bool | None) -> None:
        with self.lock("config"):
            path = Path(self.path, "config.json")
            old = self.config if path.exists() else None
            if old is None:
                limit = memory or settings.current().store_memory or _default_memory(self.path)
                new = Config(secrets.randbits(63), socket.gethostname(), limit, self._spill(spill))
            else:
                kept = old.spill if spill is None else self._spill(spill)
                new = Config(old.instance_id, old.hostname, memory or old.memory, kept)
            if new.spill is not None:
                for room in ("", "/p", "/t"):
                    _make_private(f"{new.spill}{room}")
            if new != old:
                write_private(str(path), json.dumps(asdict(new)).encode())

    def _spill(self, spill: str | bool | None) -> str | None:
        if spill is False:
            return None
        if isinstance(spill, str):
            return os.path.abspath(spill)
        return str(settings.current().cache / "spilled" / secrets.token_hex(8))


def _config(path: Path) -> Config:
    try:
        return Config(**json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise StoreError(f"{path} does not say how to use the store: {error}; remove its folder") from None


def default_folder() -> str:
    """Name this user's folder in shared memory; on a disk, with a word said, where there is hardly any."""
    own = f"shoal-store-{os.getuid()}"
    with suppress(OSError):
        have = os.statvfs(_SHARED)
        if have.f_blocks * have.f_frsize >= _ENOUGH and os.access(_SHARED, os.W_OK):
            return f"{_SHARED}/{own}"
    path = f"{tempfile.gettempdir()}/{own}"
    text = f"{_SHARED} has less than {_ENOUGH >> 20} MiB; objects are kept in {path}, on a disk perhaps"
    warnings.warn(f"{text}: give a container more of it (docker run --shm-size=8g)", StoreWarning, stacklevel=3)
    return path


def is_persisted(path: str) -> bool:
    """Tell by its path whether a file is that of a persisted object.

    >>> is_persisted("/dev/shm/store/p/000000000000000a"), is_persisted("/p/t/0000000001/000000000000000a")
    (True, False)
    """
    return os.path.basename(os.path.dirname(path)) == "p"


def names_in(folder: str) -> list[str]:
    """List a folder that may be gone, without what is being made."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    return []


def write_private(path: str, data: bytes) -> None:
    """Write a small file, all or nothing."""
    fd, temporary = tempfile.mkstemp(prefix=".new-", dir=os.path.dirname(path))
    try:
        with open(fd, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def locked(fd: int, exclusive: bool = False) -> bool:
    """Take a lock on an open file if that needs no waiting."""
    try:
        flock(fd, (LOCK_EX if exclusive else LOCK_SH) | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlocked(fd: int) -> None:
    """Close a file that may be locked; a process that was forked meanwhile has it open, too, and must not keep it."""
    flock(fd, LOCK_UN)
    os.close(fd)


def _make_private(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            text = f"{path} is not a folder that only this user can read"
            raise StoreError(f"{text}; remove it, or connect to another folder") from None
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        raise StoreError(f"{path} cannot be made: {error.strerror}") from error


def files_in(folder: str) -> Iterator[tuple[ObjectID, str]]:
    """List the objects in a folder that may be gone, each with its file."""
    for name in names_in(folder):
        with suppress(ValueError):
            yield ObjectID(int(name, 16)), f"{folder}/{name}"


def _default_memory(path: str) -> int:
    have = os.statvfs(path)
    return have.f_blocks * have.f_frsize // 2
