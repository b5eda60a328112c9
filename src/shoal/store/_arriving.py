"""Objects whose bytes come from elsewhere: written in any order where they will lie, and seen when complete."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.errors import CorruptObjectError, StoreFullError
from shoal.store._format import lay_out
from shoal.store._ids import ObjectID
from shoal.store._lease import Lease, lease_of
from shoal.store._meta import Blob, Link, Member, ObjectMeta
from shoal.store._removal import forget_members

if TYPE_CHECKING:
    from shoal.store._store import Store

__all__ = ["arrive", "copy_of"]

Fill = Callable[[Callable[[int, Any], None]], None]
_ALIGN = 64


class _Coming(NamedTuple):
    """Bytes that are not there yet."""

    nbytes: int


class _Awaited(Blob):
    """A blob that is laid out before its bytes have come."""

    __slots__ = ()

    def __init__(self, size: int) -> None:
        self.view: Any = _Coming(size)
        self.id = None


def arrive(store: Store, meta: ObjectMeta, fill: Fill, *, persist: bool) -> ObjectID:
    """Write an object whose bytes come; ``fill`` gets a function ``write(position, bytes)`` that threads may share."""
    lease = lease_of(store.folder)
    object_id = lease.new_id(blob=meta.typename == "vineyard::Blob")
    laid = lay_out(copy_of(meta, blob=_awaited), lambda: lease.new_id(blob=True), _nowhere)
    path = store.folder.persisted(object_id) if persist else store.folder.transient(object_id)
    try:
        store.adopt(object_id, laid.links, persist=persist, missing_ok=meta.isglobal)
        with store.room_for(laid.size):
            _write(lease, laid.parts[:2], laid.size, fill, path)
    except BaseException:
        forget_members(store.folder, object_id, laid.links)
        raise
    return object_id


def _write(lease: Lease, head: Sequence[bytes | memoryview], size: int, fill: Fill, path: str) -> None:
    private = f"{lease.path}/.new-{os.path.basename(path)}"  # which goes with the lease, if this process dies
    fd = os.open(private, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
        os.pwritev(fd, head, 0)
        written = sum(map(len, head))
        first = written + (-written % _ALIGN)

        def write(at: int, data: Any) -> None:
            done = 0
            if first + at + len(data) > size:
                raise CorruptObjectError(f"bytes came for {path} that are behind its end")
            while done < len(data):
                done += os.pwrite(fd, data[done:] if done else data, first + at + done)

        fill(write)
        os.rename(private, path)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise StoreFullError(f"the file system of the store is full, where {size} bytes were to arrive") from error
    finally:
        os.close(fd)
        with suppress(FileNotFoundError):
            os.unlink(private)


def copy_of(
    meta: ObjectMeta,
    *,
    blob: Callable[[Blob], Blob] = lambda blob: blob,
    link: Callable[[Link], Link] = lambda link: link,
) -> ObjectMeta:
    """Describe an object anew, with other blobs or other members that have a life of their own."""
    made = ObjectMeta(meta.typename, meta.keys_)
    made.set_global(meta.global_)
    for name, member in meta.members.items():
        new: Member
        if isinstance(member, ObjectMeta):
            new = copy_of(member, blob=blob, link=link)
        else:
            new = link(member) if isinstance(member, Link) else blob(member)
        made.add_member(name, new)
    return made


def _awaited(blob: Blob) -> Blob:
    return _Awaited(blob.nbytes)


def _nowhere(blob: Blob) -> None:
    """Find no blob: none of them is here."""
