"""Reading an object from elsewhere here and there, each piece by a request for just its bytes."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from shoal.errors import UrlError
from shoal.files._remote import Remote, ResumingReader, UrlInfo
from shoal.files._urls import display

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["RangeReader"]

#: Small reads come in flocks (a footer, headers beside each other), and a request costs more than this many bytes.
_AHEAD = 1 << 16
_CHUNK = 1 << 20


class RangeReader(io.BufferedIOBase):
    """An object in which one can seek.

    A small read fetches some more bytes and keeps them; a large one is one request for exactly its range.
    """

    def __init__(self, remote: Remote, info: UrlInfo) -> None:
        super().__init__()
        self._remote = remote
        if info.size is None:
            raise UrlError(
                f"{display(remote.url)} does not tell its size, so it can be read only from its beginning; keep a copy "
                "of the file on a local disk",
                url=display(remote.url),
            )
        self.info = info
        self._size = info.size
        self._position = 0
        self._kept = b""
        self._kept_at = 0

    def readable(self) -> bool:
        """Tell that this file can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that one can go anywhere in it."""
        return True

    def tell(self) -> int:
        """Give the position in the object."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a byte; nothing is fetched yet."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"there is no byte {base + offset} to seek to")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read so many bytes, or all to the end; fewer come only at the end."""
        begin = min(self._position, self._size)
        end = self._size if size is None or size < 0 else min(begin + size, self._size)
        data = self._bytes(begin, end)
        self._position += len(data)
        return data

    def read1(self, size: int = -1, /) -> bytes:
        """Read as `read` does: a range comes whole."""
        return self.read(size)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read into a buffer."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Let go of the connection."""
        if not self.closed:
            self._remote.close()
        super().close()

    def _bytes(self, begin: int, end: int) -> bytes:
        if end - begin >= _AHEAD:
            return self._fetched(begin, end)
        if not self._kept_at <= begin <= end <= self._kept_at + len(self._kept):
            # Footers are read from their ends, so the last bytes of an object are fetched together.
            self._kept_at = max(0, min(begin, self._size - _AHEAD))
            self._kept = self._fetched(self._kept_at, min(self._kept_at + _AHEAD, self._size))
        return self._kept[begin - self._kept_at : end - self._kept_at]

    def _fetched(self, begin: int, end: int) -> bytes:
        with io.BufferedReader(_Range(self._remote, begin, self.info, stop=end)) as part:
            return part.read(end - begin)


class _Range(ResumingReader):
    """One piece, read to its end; the holder of the object is asked for others afterwards."""

    def readinto(self, buffer: WriteableBuffer) -> int:
        # Whoever reads a connection first makes room for all that it was asked for.
        return super().readinto(memoryview(buffer)[:_CHUNK])

    def close(self) -> None:
        if not self.closed:
            self._disconnect()
        io.RawIOBase.close(self)
