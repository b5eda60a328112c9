"""What there is in a store, and what holds its memory."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shoal.store._folder import Folder, names_in
from shoal.store._lease import aside, dead
from shoal.store._room import usage

__all__ = ["Holder", "Status", "status"]


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has something in a store.

    >>> Holder(pid=4711, objects=3, aside=0, alive=True).objects
    3
    """

    pid: int
    objects: int
    """Those that go when it goes."""
    aside: int
    """Bytes that are set aside for it."""
    alive: bool


@dataclass(frozen=True, slots=True)
class Status:
    """What there is in a store.

    >>> import tempfile
    >>> from shoal.store import connect
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> _ = store.put(b"abc")
    >>> status = store.status()
    >>> status.objects, status.names, status.memory_limit
    (1, 0, 10000000)
    """

    path: str
    instance_id: int
    memory_limit: int
    memory_usage: int
    """Bytes of memory that objects take, with those that were deleted and are still looked at."""
    aside: int
    """Bytes that processes have set aside for what they are going to put."""
    objects: int
    persisted: int
    zombies: int
    """Objects that were deleted and are still looked at."""
    spilled: int
    spilled_bytes: int
    names: int
    holders: tuple[Holder, ...]
    viewers: dict[int, int]
    """How many large objects each process looks at."""


def status(folder: Folder) -> Status:
    """Count what there is."""
    used = usage(folder)
    leases = [f"{folder.path}/t/{name}" for name in names_in(f"{folder.path}/t")]
    objects = {object_id for object_id, _ in folder.ids()}
    kept = set(names_in(f"{folder.path}/p"))
    disk = _on_disk(folder)
    return Status(
        path=folder.path,
        instance_id=folder.instance_id,
        memory_limit=folder.config.memory,
        memory_usage=used.total - used.aside,
        aside=used.aside,
        objects=len(objects),
        persisted=len(kept | {name for name in disk if disk[name][0] == "p"}),
        zombies=len(names_in(f"{folder.path}/z")),
        spilled=len(disk),
        spilled_bytes=sum(size for _, size in disk.values()),
        names=len(names_in(f"{folder.path}/n")),
        holders=tuple(_holder(lease) for lease in leases),
        viewers=_viewers(folder),
    )


def _holder(lease: str) -> Holder:
    reserved, pid = aside(lease)
    return Holder(pid, len(names_in(lease)), reserved, not dead(lease))


def _on_disk(folder: Folder) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    if folder.config.spill is None:
        return found
    disk = folder.config.spill
    for room in ["p", *(f"t/{lease}" for lease in names_in(f"{disk}/t"))]:
        for name in names_in(f"{disk}/{room}"):
            with suppress(FileNotFoundError):
                found[name] = room[0], os.stat(f"{disk}/{room}/{name}").st_size
    return found


def _viewers(folder: Folder) -> dict[int, int]:
    """Ask the system who holds shared locks on files of the store."""
    inodes = set()
    rooms = ["p", "z", *(f"{room}/{name}" for room in "tx" for name in names_in(f"{folder.path}/{room}"))]
    for room in rooms:
        with suppress(FileNotFoundError), os.scandir(f"{folder.path}/{room}") as entries:
            inodes |= {entry.inode() for entry in entries if not entry.name.startswith(".")}
    found: dict[int, int] = {}
    device = os.stat(folder.path).st_dev
    own = f"{os.major(device):02x}:{os.minor(device):02x}"
    with suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if len(words) >= 6 and words[1] == "FLOCK" and words[3] == "READ":
                where, _, inode = words[5].rpartition(":")
                if where == own and int(inode) in inodes:
                    found[int(words[4])] = found.get(int(words[4]), 0) + 1
    return found
