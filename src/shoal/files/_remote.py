"""Reading an object from elsewhere as one stream, however often the connection breaks."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from shoal.errors import UrlChangedError, UrlError
from shoal.files._retry import Attempts, Broken
from shoal.files._urls import display

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["Part", "Remote", "ResumingReader", "UrlInfo", "remote_info"]

_SKIP = 1 << 16


@dataclass(frozen=True, slots=True)
class UrlInfo:
    """The size of an object and an identity that changes when it does; None where nobody can tell.

    >>> UrlInfo(size=10).version is None
    True
    """

    size: int | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One connection: the object's bytes from ``start`` on."""

    start: int
    info: UrlInfo
    readinto: Callable[[memoryview], int]
    close: Callable[[], None]


class Remote(Protocol):
    """Somebody who holds an object. Each method raises `Broken` where another attempt may help, else `UrlError`."""

    url: str

    def connect(self, offset: int, stop: int | None = None) -> Part:
        """Ask for the bytes from ``offset`` on, or for those before ``stop``; a part may start earlier or end later."""

    def info(self) -> UrlInfo:
        """Ask for size and version."""

    def close(self) -> None:
        """Let go of connections."""


def remote_info(remote: Remote) -> UrlInfo:
    """Ask for size and version, again where the way is bumpy."""
    attempts = Attempts(remote.url, "ask for the size of")
    while True:
        try:
            return remote.info()
        except Broken as broken:
            attempts.failed(broken)


class ResumingReader(io.RawIOBase):
    """A stream that goes on at the byte where it broke, to the end of the object or to byte ``stop``.

    The size and version seen first hold for the whole stream: another object under the same name is an error, because
    the head of one and the tail of another make a file that never existed.
    """

    def __init__(
        self, remote: Remote, offset: int = 0, expect: UrlInfo | None = None, *, stop: int | None = None
    ) -> None:
        super().__init__()
        self._remote = remote
        self._position = offset
        self._stop = stop
        self._info = expect or UrlInfo()
        self._part: Part | None = None
        self._attempts = Attempts(remote.url, "read")

    def connect(self) -> None:
        """Connect now, so that a missing object is an error of opening and not of the first read."""
        while self._part is None:
            try:
                self._part = self._connected()
            except Broken as broken:
                self._attempts.failed(broken, self._position)

    def readable(self) -> bool:
        """Tell that this stream can be read."""
        return True

    def tell(self) -> int:
        """Give the position in the object, not in the stream."""
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read some bytes; 0 means the true end of what was asked for."""
        view = memoryview(buffer).cast("B")
        if self._stop is not None:
            view = view[: max(self._stop - self._position, 0)]
        while len(view):
            self.connect()
            try:
                return self._read(view)
            except Broken as broken:
                self._disconnect()
                self._attempts.failed(broken, self._position)
        return 0

    def close(self) -> None:
        """Let go of the connection."""
        if not self.closed:
            self._disconnect()
            self._remote.close()
        super().close()

    def _read(self, view: memoryview) -> int:
        assert self._part is not None
        count = self._part.readinto(view)
        if count:
            self._position += count
            self._attempts.progress()
        elif self._info.size is not None and self._position < self._info.size:
            raise Broken(f"the body ended at byte {self._position} of {self._info.size}")
        return count

    def _connected(self) -> Part:
        part = self._remote.connect(self._position, self._stop)
        try:
            self._check(part.info)
            self._check_range(part)
            _skip(part, self._position - part.start)
        except BaseException:
            part.close()
            raise
        return part

    def _check(self, info: UrlInfo) -> None:
        for name in ("size", "version"):
            before, now = getattr(self._info, name), getattr(info, name)
            if before is not None and now is not None and before != now:
                raise UrlChangedError(
                    f"{display(self._remote.url)} changed while it was being read (at byte {self._position}): its "
                    f"{name} was {before} and is now {now}; start again, or keep the object as it is",
                    url=display(self._remote.url),
                )
        self._info = UrlInfo(self._info.size if info.size is None else info.size, self._info.version or info.version)

    def _check_range(self, part: Part) -> None:
        """Refuse to read an object from its beginning for each of its ranges."""
        if self._stop is not None and part.start < self._position:
            raise UrlError(
                f"{display(self._remote.url)} was asked for the bytes from {self._position} to {self._stop} and sends "
                "all from the first; random access needs ranges, so keep a copy of the file on a local disk",
                url=display(self._remote.url),
            )

    def _disconnect(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            # The connection is given up anyway; how it says goodbye must not hide why.
            with contextlib.suppress(Exception):
                part.close()


def _skip(part: Part, count: int) -> None:
    """Read over bytes that a holder sent although they were not asked for."""
    scratch = memoryview(bytearray(min(_SKIP, max(count, 0))))
    while count > 0:
        got = part.readinto(scratch[:count])
        if not got:
            return
        count -= got
