"""Writing to a URL: all of it appears at once, or nothing does."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat as modes
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Any, cast

from shoal.errors import UrlError
from shoal.files._open import local_error
from shoal.files._parts import PartFile
from shoal.files._pipe import check_status, check_trust, end, start
from shoal.files._urls import display, is_pipe, local_path, scheme

__all__ = ["Target", "Unclosed", "open_write"]

_BUFFER = 1 << 20

#: Stores in which an object appears when its upload is complete, and not before.
_APPEAR_WHOLE = {"abfs", "abfss", "adl", "az", "gcs", "gs", "hf", "http", "https", "memory", "oss", "r2", "s3", "s3a"}


class Target(ABC):
    """Something being written. `commit` makes it visible, `abort` makes it never have been.

    As a context manager it commits at the end of the block and aborts when the block raises. A target that is dropped
    or whose process dies is never committed.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.bin")
    >>> target = open_write(path)
    >>> target.write(b"abc"), target.tell(), path.exists()
    (3, 3, False)
    >>> target.commit()
    >>> path.read_bytes()
    b'abc'
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._state = "open"
        self._pending = bytearray()
        self._position = 0
        # A forked child inherits this object, but must neither finish nor undo what its parent writes.
        self._owner = os.getpid()

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Take some bytes; tell how many (always all)."""
        self._check_open()
        view = memoryview(data).cast("B")
        if len(self._pending) + len(view) > _BUFFER:
            with _named(self._url):
                self._drain()
                if len(view) > _BUFFER:
                    self._put(view)
        if len(view) <= _BUFFER:
            self._pending += view
        self._position += len(view)
        return len(view)

    def flush(self) -> None:
        """Pass on what was written; it is still not visible."""
        self._check_open()
        with _named(self._url):
            self._drain()

    def tell(self) -> int:
        """Count the bytes written so far."""
        return self._position

    def commit(self) -> None:
        """Make everything written visible under its name. If that fails, nothing is."""
        if self._state == "committed":
            return
        self._check_open()
        try:
            with _named(self._url):
                self._drain()
                self._finish()
        except BaseException:
            self.abort()
            raise
        self._state = "committed"

    def abort(self) -> None:
        """Drop everything written; harmless after `commit`."""
        if self._state == "open" and os.getpid() == self._owner:
            self._state = "aborted"
            self._pending = bytearray()
            self._undo()

    @abstractmethod
    def _put(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of the data."""

    @abstractmethod
    def _finish(self) -> None:
        """Make it visible."""

    @abstractmethod
    def _undo(self) -> None:
        """Make it go away."""

    def _drain(self) -> None:
        if self._pending:
            self._put(self._pending)
            self._pending = bytearray()

    def _check_open(self) -> None:
        if self._state != "open":
            raise ValueError(f"{display(self._url)} is already {self._state}; open it again to write again")

    def __enter__(self) -> Target:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
        elif self._state == "open":
            self.commit()

    def __del__(self) -> None:
        # A constructor that raised leaves an object without a state.
        if getattr(self, "_state", "") == "open":
            self.abort()


def open_write(url: str | os.PathLike[str], *, trust: bool = False) -> Target:
    """Open a URL for writing, all or nothing.

    Local files get their name when they are complete; stores get an upload of the complete object. The system is not
    made to force the bytes to the disk at once: a crash of the process loses nothing, a power cut may.
    ``trust`` allows ``pipe:`` URLs, which run commands.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.bin")
    >>> with open_write(path) as target:
    ...     count = target.write(b"abc")
    ...     path.exists()
    False
    >>> path.read_bytes()
    b'abc'
    """
    url = os.fspath(url)
    path = local_path(url)
    if path is not None:
        with _named(url):
            return _local(url, os.path.realpath(path))
    if url == "-":
        return _StreamTarget(url, sys.stdout.buffer)
    if is_pipe(url):
        check_trust(url, trust)
        return _PipeTarget(url)
    return _RemoteTarget(url)


def _local(url: str, path: str) -> Target:
    if os.path.exists(path) and not modes.S_ISREG(os.stat(path).st_mode):
        # A device or a named pipe is written to; replacing it would destroy it.
        return _StreamTarget(url, open(path, "wb", buffering=0), close=True)
    return _LocalTarget(url, path)


class _LocalTarget(Target):
    def __init__(self, url: str, path: str) -> None:
        super().__init__(url)
        self._path = path
        folder, name = os.path.split(path)
        os.makedirs(folder, exist_ok=True)
        self._part = PartFile(folder, name)

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        self._part.write(data)

    def _finish(self) -> None:
        self._part.rename(self._path)

    def _undo(self) -> None:
        if hasattr(self, "_part"):
            self._part.discard()


class _RemoteTarget(Target):
    """Collects the object in a local file: only a complete one can be sent again when the way breaks."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        from shoal.files._fsspec import filesystem

        self._fs, self._path = filesystem(url)
        with _named(url):
            self._part = PartFile(tempfile.gettempdir(), f"shoal-upload-{os.getuid()}", mode=0o600)

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        self._part.write(data)

    def _finish(self) -> None:
        from shoal.files._fsspec import attempted

        attempted(self._url, "write", self._upload)
        self._part.discard()

    def _upload(self) -> None:
        if scheme(self._url) in _APPEAR_WHOLE:
            self._fs.put_file(self._part.path, self._path)
            return
        self._fs.makedirs(self._path.rpartition("/")[0], exist_ok=True)
        temporary = f"{self._path}.{secrets.token_hex(8)}.part"
        try:
            self._fs.put_file(self._part.path, temporary)
            self._fs.mv(temporary, self._path)
        except BaseException:
            with contextlib.suppress(Exception):
                self._fs.rm_file(temporary)
            raise

    def _undo(self) -> None:
        if hasattr(self, "_part"):
            self._part.discard()


class _StreamTarget(Target):
    """A stream that takes bytes as they come; nothing can be taken back."""

    def __init__(self, url: str, stream: Any, *, close: bool = False) -> None:
        super().__init__(url)
        self._stream = stream
        self._closes = close

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        while len(view):
            view = view[self._stream.write(view) :]

    def _finish(self) -> None:
        self._stream.flush()
        self._undo()

    def _undo(self) -> None:
        if self._closes:
            self._stream.close()


class _PipeTarget(Target):
    """A command that reads; whether it succeeded is known when it has ended."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._process = start(url, stdin=subprocess.PIPE)
        self._input = cast("IO[bytes]", self._process.stdin)

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        try:
            while len(view):
                view = view[self._input.write(view) :]
        except BrokenPipeError as error:
            check_status(self._process, self._url)
            raise UrlError(
                f"the command of {display(self._url)!r} ended before it had read everything", url=display(self._url)
            ) from error

    def _finish(self) -> None:
        self._input.close()
        check_status(self._process, self._url)

    def _undo(self) -> None:
        # Ended first: closing its input would tell the command that this was all.
        end(self._process)
        self._input.close()


class Unclosed:
    """A target for libraries that close what they have written to: closing it is left to the one who commits.

    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.npy")
    >>> with open_write(path) as target:
    ...     np.save(Unclosed(target), np.arange(3))
    >>> np.load(path).tolist()
    [0, 1, 2]
    """

    closed = False

    def __init__(self, target: Target) -> None:
        self.write, self.flush, self.tell = target.write, target.flush, target.tell

    def close(self) -> None:
        """Do nothing."""


@contextlib.contextmanager
def _named(url: str) -> Iterator[None]:
    """Name the URL in what the operating system complains about."""
    try:
        yield
    except UrlError:
        raise
    except OSError as error:
        raise local_error(error, url, "write") from error
