"""Files that are not finished: private names, locked by their writer, worthless once it is dead."""

from __future__ import annotations

import contextlib
import itertools
import os

from shoal.files._locks import lock, names, remove_unused

__all__ = ["PartFile"]

#: Leaves room for the number and the ending in the 255 bytes of a file name.
_LONGEST_NAME = 200


class PartFile:
    """An unfinished file beside the place where it is going to be.

    Creating one removes those that dead writers left under the same name.

    >>> import tempfile
    >>> part = PartFile(tempfile.mkdtemp(), "a.tar")
    >>> part.write(b"abc")
    >>> part.discard()
    """

    def __init__(self, folder: str, name: str, mode: int = 0o666) -> None:
        self._folder = folder or "."
        self._name = os.fsdecode(os.fsencode(name)[:_LONGEST_NAME])
        # A forked child inherits this object, but not the right to remove the file.
        self._owner = os.getpid()
        self.path, self._file = self._create(mode)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append all of the data."""
        view = memoryview(data).cast("B")
        while len(view):
            view = view[os.write(self._file, view) :]

    def rename(self, path: str) -> None:
        """Give the finished file its name, replacing what is there, and let go of it."""
        os.replace(self.path, path)
        self._close()

    def discard(self) -> None:
        """Remove the file; harmless when it is gone."""
        if self._file < 0:
            return
        if os.getpid() == self._owner:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, -1
        os.close(file)

    def _create(self, mode: int) -> tuple[str, int]:
        """Take the first number that no living writer holds; numbers make the dead ones' files easy to find."""
        for number in itertools.count():
            path = self._numbered(number)
            remove_unused(path)
            with contextlib.suppress(FileExistsError):
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
                lock(file)
                # Between its birth and its lock the file looked like one of a dead writer.
                if names(path, file):
                    self._remove_stale(number + 1)
                    return path, file
                os.close(file)
        raise AssertionError("numbers do not end")

    def _remove_stale(self, number: int) -> None:
        while remove_unused(self._numbered(number)):
            number += 1

    def _numbered(self, number: int) -> str:
        return os.path.join(self._folder, f".{self._name}.{number}.part")
