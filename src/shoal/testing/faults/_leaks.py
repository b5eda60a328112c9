"""What a program holds, and whether it has given back what it took."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shoal.testing.faults._processes import children

__all__ = ["Held", "held", "nothing_left"]


@dataclass(frozen=True, slots=True)
class Held:
    """What a run must give back.

    >>> Held((), (), descriptors=5, shared=0).is_within(Held((), (), descriptors=6, shared=0))
    True
    """

    threads: tuple[str, ...]
    """Those that are Shoal's."""
    children: tuple[int, ...]
    descriptors: int
    shared: int
    """Segments of shared memory that are mapped."""
    files: tuple[str, ...] = ()
    """Files in the folders that were asked for."""

    def is_within(self, before: Held) -> bool:
        """Tell whether it is no more than before; what was there may have gone meanwhile.

        >>> before = held()
        >>> held().is_within(before)
        True
        """
        counts = self.descriptors <= before.descriptors and self.shared <= before.shared
        named = {*self.threads} <= {*before.threads} and {*self.files} <= {*before.files}
        return counts and named and {*self.children} <= {*before.children}


def held(*folders: str | os.PathLike[str]) -> Held:
    """Count threads of Shoal's, children, descriptors and shared memory of this process, and files in folders.

    >>> held().descriptors > 0
    True
    """
    names = sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("shoal"))
    maps = Path("/proc/self/maps").read_text().count("memfd:")
    files = sorted(str(path) for folder in folders for path in Path(folder).rglob("*"))
    return Held(tuple(names), tuple(_own_children()), len(os.listdir("/proc/self/fd")), maps, tuple(files))


@contextlib.contextmanager
def nothing_left(
    *folders: str | os.PathLike[str], seconds: float = 20.0, also: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Make sure that a block leaves nothing: no process, thread, descriptor, shared memory, and no file in folders.

    What is ended takes a moment to go, so it is waited for, so long at most; ``also`` is one more thing to wait for.

    >>> import subprocess
    >>> with nothing_left():
    ...     _ = subprocess.run(["true"])
    """
    before = held(*folders)
    yield
    late = time.monotonic() + seconds
    while not ((now := held(*folders)).is_within(before) and also()):
        gc.collect()
        if time.monotonic() > late:
            raise AssertionError(f"more is held than before:\nbefore: {before}\nnow:    {now}")
        time.sleep(0.02)


def _own_children() -> list[int]:
    return [pid for pid in children() if _is_own(pid)]


def _is_own(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid())
    return False
