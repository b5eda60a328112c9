"""A field whose bytes are in a file: they are copied in pieces when the sample is written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from shoal.errors import EncodeError

__all__ = ["FileField"]

_PIECE = 4 * 2**20


@dataclass(frozen=True, slots=True)
class FileField:
    """The bytes of a local file, which may be larger than memory; a `TarWriter` takes it where it takes bytes.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.bin")
    >>> _ = path.write_bytes(b"hello")
    >>> len(FileField.of(path)), b"".join(FileField.of(path).pieces())
    (5, b'hello')
    """

    path: str
    size: int

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> FileField:
        """Take a file as large as it is now."""
        return cls(os.fspath(path), os.stat(path).st_size)

    def __len__(self) -> int:
        return self.size

    def pieces(self) -> Iterator[bytes]:
        """Read the file; it must still be as large as it was, because a tar says the size first."""
        left = self.size
        with open(self.path, "rb") as file:
            while left and (piece := file.read(min(left, _PIECE))):
                left -= len(piece)
                yield piece
            if left or file.read(1):
                raise EncodeError(f"{self.path} had {self.size} bytes and changed its size while it was read")
