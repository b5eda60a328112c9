"""The folder of a shard cache: which files lie in it, whose turn it is to fill one, and what goes when room is needed.

Three kinds of names, and nothing else is ever touched: ``<id>-<name>`` is a complete shard, ``.<id>-<name>.part`` one
being downloaded, ``.<id>-<name>.lock`` is held by whoever downloads it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from shoal.errors import CacheError
from shoal.files._locks import locked, names, remove_unused

__all__ = ["CacheFolder", "Entry"]

_ENTRY = re.compile(r"[0-9a-f]{32}-.*")
_UNFINISHED = re.compile(r"\.([0-9a-f]{32}-.*)\.(?:part|lock)")


@dataclass(frozen=True, slots=True)
class Entry:
    """A complete shard in the folder."""

    path: str
    size: int
    used_ns: int


class CacheFolder:
    """A folder of complete and unfinished shards."""

    def __init__(self, path: str) -> None:
        self.path = path

    def create(self) -> None:
        """Make the folder, for this user alone."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)

    def entry_path(self, name: str) -> str:
        """Say where a complete shard lies."""
        return os.path.join(self.path, name)

    def part_path(self, name: str) -> str:
        """Say where a shard lies while it is being downloaded."""
        return os.path.join(self.path, f".{name}.part")

    def entries(self) -> list[Entry]:
        """List the complete shards, the least recently used first."""
        found = []
        for name in self._listed():
            if _ENTRY.fullmatch(name):
                # Another process may remove it between the listing and the question.
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(self.entry_path(name))
                    found.append(Entry(self.entry_path(name), status.st_size, status.st_atime_ns))
        return sorted(found, key=lambda entry: entry.used_ns)

    def free_bytes(self) -> int:
        """Ask the filesystem how much can still be written."""
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    @contextlib.contextmanager
    def claim(self, name: str, *, wait: bool = True) -> Iterator[bool]:
        """Take the right to fill an entry, for the length of a block; False means that it must be looked at again.

        The lock file goes with the claim, and with it whatever is left of the part.
        """
        path = os.path.join(self.path, f".{name}.lock")
        with locked(path, wait=wait) as file:
            if file is None or not names(path, file):
                yield False
                return
            try:
                yield True
            finally:
                _unlink(self.part_path(name))
                _unlink(path)

    def sweep(self) -> None:
        """Remove what dead downloaders left."""
        for name in {match[1] for match in map(_UNFINISHED.fullmatch, self._listed()) if match}:
            # Claiming is enough: a claim cleans up behind itself.
            with self.claim(name, wait=False):
                pass

    def reserve(self, needed: int, max_bytes: int, part: int) -> None:
        """Make room for a part and let it take its full size, so that others count it from now on."""
        with self._alone():
            self._evict(needed, max_bytes)
            os.ftruncate(part, needed)

    def shrink(self, max_bytes: int) -> None:
        """Make room for a part that has already grown."""
        with self._alone():
            self._evict(0, max_bytes)

    def _evict(self, needed: int, max_bytes: int) -> None:
        self.sweep()
        entries = self.entries()
        held = sum(entry.size for entry in entries) + self._unfinished_bytes()
        excess = max(held + needed - max_bytes, needed - self.free_bytes())
        for entry in entries:
            if excess > 0 and remove_unused(entry.path):
                excess -= entry.size
        if excess > 0:
            raise CacheError(
                f"the cache {self.path} has no room: {needed} more bytes are needed, it holds {held} of at most "
                f"{max_bytes} that are in use, and {self.free_bytes()} are free on the disk"
            )

    def _unfinished_bytes(self) -> int:
        total = 0
        for name in self._listed():
            if _UNFINISHED.fullmatch(name):
                with contextlib.suppress(FileNotFoundError):
                    total += os.stat(os.path.join(self.path, name)).st_size
        return total

    def _listed(self) -> list[str]:
        try:
            return os.listdir(self.path)
        except FileNotFoundError:
            return []

    def _alone(self) -> contextlib.AbstractContextManager[int | None]:
        """Count and evict one process at a time; otherwise two could fill the same room."""
        return locked(os.path.join(self.path, ".lock"))


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
