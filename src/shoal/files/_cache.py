"""Copies of remote shards on the local disk, shared by all processes that name the same folder.

An entry is one file, complete from the moment it has its name. One process at a time fills it, under a lock for which
the others wait; whoever gets it because the downloader died takes over. In use, an entry carries a shared lock, and
nothing so locked is ever removed. Locks die with their holders, so there is nothing to repair after a crash.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

from shoal.errors import CacheError, ShoalError, UrlChangedError
from shoal.files._locks import lock, names, sync_folder
from shoal.files._open import open_read, stat
from shoal.files._remote import UrlInfo
from shoal.files._room import CacheFolder
from shoal.files._urls import display, is_pipe, local_path

__all__ = ["CacheStatistics", "CachedFile", "ShardCache"]

_CHUNK = 1 << 20
#: How often an object may change between asking and reading before that is an error.
_CHANGES = 3


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """What a cache holds at the moment.

    >>> CacheStatistics(entries=2, bytes=300, max_bytes=1000, in_use=1).in_use
    1
    """

    entries: int
    bytes: int
    max_bytes: int
    in_use: int


class CachedFile:
    """A shard on the local disk, at ``path``, that stays there until it is closed.

    >>> import tempfile, pathlib, fsspec
    >>> fsspec.filesystem("memory").pipe_file("/doc/b.tar", b"abc")
    >>> cache = ShardCache(tempfile.mkdtemp(), max_bytes=1000)
    >>> shard = cache.open("memory://doc/b.tar")
    >>> cache.statistics().in_use
    1
    >>> shard.close()
    >>> cache.statistics().in_use
    0
    """

    def __init__(self, path: str, file: int) -> None:
        self.path = path
        self._file = file

    def close(self) -> None:
        """Allow the shard to be removed when room is needed."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def __enter__(self) -> CachedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class ShardCache:
    """A folder of downloaded shards, at most ``max_bytes`` of them; the least recently used go first.

    >>> import tempfile, pathlib, fsspec
    >>> fsspec.filesystem("memory").pipe_file("/doc/a.tar", b"abc")
    >>> cache = ShardCache(tempfile.mkdtemp(), max_bytes=1000)
    >>> with cache.open("memory://doc/a.tar") as shard:
    ...     pathlib.Path(shard.path).read_bytes()
    b'abc'
    >>> cache.statistics()
    CacheStatistics(entries=1, bytes=3, max_bytes=1000, in_use=0)
    """

    def __init__(self, folder: str | os.PathLike[str], max_bytes: int) -> None:
        self.folder = os.path.abspath(os.fspath(folder))
        self.max_bytes = max_bytes
        self._room = CacheFolder(self.folder)
        self._swept = False

    def open(self, url: str | os.PathLike[str], *, trust: bool = False) -> CachedFile:
        """Give the shard behind a URL as a local file, downloading it if no process has done so yet.

        A shard whose size or version changed is another shard. Local files are used where they lie. Raises
        `CacheError` where the shard cannot be kept; reading it directly may still work.
        """
        url = os.fspath(url)
        path = local_path(url)
        if path is not None:
            with open_read(url) as file:
                return CachedFile(path, os.dup(file.fileno()))
        if url == "-":
            raise CacheError("standard input cannot be cached; read it directly", url=url)
        changes = 0
        while True:
            info = stat(url)
            try:
                return self._open(url, info, trust)
            except UrlChangedError:
                changes += 1
                if changes == _CHANGES:
                    raise

    def statistics(self) -> CacheStatistics:
        """Count the shards, their bytes, and how many of them somebody is using."""
        entries = self._room.entries()
        in_use = sum(_in_use(entry.path) for entry in entries)
        return CacheStatistics(len(entries), sum(entry.size for entry in entries), self.max_bytes, in_use)

    def _open(self, url: str, info: UrlInfo, trust: bool) -> CachedFile:
        name = _entry_name(url, info)
        with self._explained(url, info):
            self._prepare(url, info)
            while True:
                held = _held(self._room.entry_path(name))
                if held is None:
                    with self._room.claim(name) as mine:
                        held = self._filled(url, info, name, trust) if mine else None
                if held is not None:
                    return held

    def _prepare(self, url: str, info: UrlInfo) -> None:
        if info.size is not None and info.size > self.max_bytes:
            raise self._too_large(url, info.size)
        if not self._swept:
            self._room.create()
            self._room.sweep()
            self._swept = True

    def _filled(self, url: str, info: UrlInfo, name: str, trust: bool) -> CachedFile | None:
        """Download a shard under a claim; None if somebody had just done it."""
        path, part = self._room.entry_path(name), self._room.part_path(name)
        if os.path.exists(path):
            return None
        file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # In use before it has its name: there is no moment in which it could be evicted.
            lock(file, shared=True)
            self._download(url, info, file, trust)
            os.replace(part, path)
            sync_folder(self.folder)
            return CachedFile(path, os.dup(file))
        finally:
            os.close(file)

    def _download(self, url: str, info: UrlInfo, file: int, trust: bool) -> None:
        if info.size is not None:
            self._room.reserve(info.size, self.max_bytes, file)
        count = self._copy(url, info, file, trust)
        if info.size is None:
            self._room.shrink(self.max_bytes)
        elif count != info.size:
            raise CacheError(
                f"{display(url)} gave {count} bytes instead of the {info.size} it announced", url=display(url)
            )
        os.fsync(file)
        _touch(file)

    def _copy(self, url: str, info: UrlInfo, file: int, trust: bool) -> int:
        buffer = memoryview(bytearray(_CHUNK))
        count = 0
        with open_read(url, trust=trust, expect=info) as source:
            while got := source.readinto(buffer):
                count += got
                if count > self.max_bytes:
                    raise self._too_large(url, count)
                data = buffer[:got]
                while len(data):
                    data = data[os.write(file, data) :]
        return count

    def _too_large(self, url: str, size: int) -> CacheError:
        return CacheError(
            f"{display(url)} has {size} bytes or more, which is over the whole size of the cache {self.folder} "
            f"({self.max_bytes}); enlarge the cache, or read the shard directly",
            url=display(url),
        )

    @contextlib.contextmanager
    def _explained(self, url: str, info: UrlInfo) -> Iterator[None]:
        """Turn what the local disk complains about into one error that says what was needed and what there is."""
        try:
            yield
        except ShoalError:
            raise
        except OSError as error:
            needed = "an unknown number of" if info.size is None else info.size
            raise CacheError(
                f"{display(url)} could not be kept in the cache {self.folder}: {error.strerror or error}; it needs "
                f"{needed} bytes, and {self._free()} are free there",
                url=display(url),
            ) from error

    def _free(self) -> str:
        try:
            return str(self._room.free_bytes())
        except OSError:
            return "unknown many"


def _entry_name(url: str, info: UrlInfo) -> str:
    """Name an entry after URL and version; the readable end keeps the extension and cannot leave the folder."""
    identity = hashlib.sha256("\0".join((url, str(info.version), str(info.size))).encode()).hexdigest()[:32]
    # A command may quote secrets, and its last word is not the name of a file.
    last = "pipe" if is_pipe(url) else re.split(r"[?#]", url)[0].rstrip("/").rpartition("/")[2]
    return f"{identity}-{re.sub(r'[^A-Za-z0-9._-]', '_', last)[-80:]}"


def _held(path: str) -> CachedFile | None:
    """Open an entry for use, if it is there and stays there."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        lock(file, shared=True)
        if not names(path, file):
            return None
        _touch(file)
        return CachedFile(path, os.dup(file))
    finally:
        os.close(file)


def _touch(file: int) -> None:
    """Note the use in the access time; disks are often mounted so that reading does not."""
    os.utime(file, ns=(time.time_ns(), os.fstat(file).st_mtime_ns))


def _in_use(path: str) -> bool:
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not lock(file, wait=False)
    finally:
        os.close(file)
