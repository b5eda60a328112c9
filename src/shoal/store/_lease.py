"""What a process has in a store: objects that go when it goes, and memory that is set aside for it.

A lease is a folder with a file that its process holds a lock on. The system gives locks back when a process ends,
however it ends; so whoever can take the lock knows that nobody needs what is there any more.
"""

from __future__ import annotations

import mmap
import os
import shutil
import threading
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING

from shoal._ending import ends_with_program
from shoal.errors import StoreError
from shoal.store._folder import Folder, files_in, locked, unlocked
from shoal.store._ids import BLOB, COUNT_BITS, ObjectID, new_lease
from shoal.store._recycling import Recycler

if TYPE_CHECKING:
    from shoal.store._room import Room

__all__ = ["Lease", "aside", "dead", "lease_of", "own_lease"]

#: Bytes that are set aside, and the process that they are for.
_NOTE = Struct("<QQ")
FILE = ".lease"


class Lease:
    """The lease of this process on a store."""

    def __init__(self, folder: Folder) -> None:
        self._folder, self.lock = folder, threading.Lock()
        self._held = True
        self._count = 0
        self.promised = 0
        """Bytes of those set aside that are being written."""
        self.room: Room | None = None
        """What sets memory aside, for all who use the lease."""
        self._begin()
        self.recycler = Recycler(folder, self.path)
        ends_with_program(self)

    def new_id(self, blob: bool = False) -> ObjectID:
        """Name a new object."""
        with self.lock:
            if self._count >> COUNT_BITS:
                raise StoreError(f"this process has put {self._count} objects, which is as many as it can")
            number = self.number << COUNT_BITS | self._count
            self._count += 1
        return ObjectID(number | BLOB if blob else number)

    @property
    def aside(self) -> int:
        """Bytes that are set aside for this process."""
        return int(_NOTE.unpack_from(self._note)[0])

    @aside.setter
    def aside(self, size: int) -> None:
        _NOTE.pack_into(self._note, 0, size, os.getpid())

    def close(self) -> None:
        """Give everything back; objects that somebody looks at stay for him."""
        if not self._held:
            return
        self._held = False
        _LEASES.pop(self._folder.path, None)
        self.recycler.forget()
        with suppress(OSError):
            sweep(self._folder, self.path)
        os.close(self._fd)
        self._note.close()

    def forget(self) -> None:
        """Be no part of it any more, in a process that was forked from the one that it is of."""
        self._held = False
        os.close(self._fd)  # not unlocked: the lock is the parent's as well
        self._note.close()  # which has the file open, too
        self.recycler.forget()

    def _begin(self) -> None:
        self.number = new_lease()
        self.path = self._folder.lease(self.number)
        private = f"{self._folder.path}/t/.new-{self.number:010x}"
        os.mkdir(private, 0o700)
        self._fd = os.open(f"{private}/{FILE}", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._fd, _NOTE.size)
        locked(self._fd, exclusive=True)
        self._note = mmap.mmap(self._fd, _NOTE.size)
        self.aside = 0
        os.rename(private, self.path)  # it is found only now, when its lock is held


def sweep(folder: Folder, path: str) -> int:
    """Remove the folder of a lease with all that is in it; give the bytes that came free."""
    from shoal.store._removal import discard

    freed = 0
    inside = os.path.basename(path)
    for root in folder.roots:
        for object_id, file in files_in(f"{root}/t/{inside}"):
            gone = discard(folder, object_id, file)
            freed += 0 if gone is None else gone.freed
        shutil.rmtree(f"{root}/t/{inside}", ignore_errors=True)
    return freed


def dead(path: str) -> bool:
    """Tell whether nobody holds a lease any more."""
    try:
        fd = os.open(f"{path}/{FILE}", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True  # it appeared with its file, so somebody was removing it
    try:
        return locked(fd, exclusive=True)
    finally:
        unlocked(fd)


def aside(path: str) -> tuple[int, int]:
    """Read how many bytes are set aside in a lease, and for which process."""
    with suppress(FileNotFoundError), open(f"{path}/{FILE}", "rb") as file:
        data = file.read(_NOTE.size)
        if len(data) == _NOTE.size:
            size, pid = _NOTE.unpack(data)
            return size, pid
    return 0, 0


_LEASES: dict[str, Lease] = {}
_MAKING = threading.Lock()


def lease_of(folder: Folder) -> Lease:
    """Give the lease of this process on a store; it is made with the first object."""
    found = _LEASES.get(folder.path)
    if found is None:
        with _MAKING:
            found = _LEASES.get(folder.path)
            if found is None:
                found = _LEASES[folder.path] = Lease(folder)
    return found


def own_lease(folder: Folder) -> Lease | None:
    """Give the lease of this process on a store, if it has one."""
    return _LEASES.get(folder.path)


def _forget_all() -> None:
    global _MAKING
    _MAKING = threading.Lock()
    for lease in _LEASES.values():
        lease.forget()
    _LEASES.clear()


os.register_at_fork(after_in_child=_forget_all)
