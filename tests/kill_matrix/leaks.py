"""What a cell leaves behind: processes, shared memory, files, descriptors."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kill_matrix.ground import MARK
from shoal.store import connect
from shoal.testing import faults

__all__ = ["nothing_left_of"]


@contextmanager
def nothing_left_of(folder: Path, shelf: str, *, strict: bool) -> Iterator[None]:
    """Make sure that a cell leaves nothing; ``strict`` also for this process, in which no cluster has a part."""
    looks: list[Callable[[], set[str]]] = [
        lambda: _processes(folder.name),
        lambda: _stored(shelf),
        lambda: _files(folder, strict),
    ]
    before = [look() for look in looks]
    held = faults.held()
    yield
    late = time.monotonic() + 20
    while True:
        left = [sorted(look() - known) for look, known in zip(looks, before, strict=True)]
        now = faults.held()
        own = now.is_within(held) if strict else now.shared <= held.shared and {*now.threads} <= {*held.threads}
        if own and not any(left):
            return
        if time.monotonic() > late:
            raise AssertionError(f"left behind: {left}; held before: {held}; held now: {now}")
        time.sleep(0.05)
        gc.collect()


def _processes(mark: str) -> set[str]:
    """List processes of Shoal's that descend from this run, whoever their parent is now."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            home = Path("/proc", pid)
            command = (home / "cmdline").read_bytes()
            if b"shoal" in command and f"{MARK}={mark}\0".encode() in (home / "environ").read_bytes():
                found.add(f"{pid} {command[:200]!r}")
    return found


def _stored(shelf: str) -> set[str]:
    """List the objects in the store, those of the dead taken away."""
    store = connect(shelf)
    store.collect()
    return {str(each) for each in store.ids()}


def _files(folder: Path, strict: bool) -> set[str]:
    files = (str(path) for path in (folder / "tmp").rglob("*"))
    return {name for name in files if strict or "shoal" in name}
