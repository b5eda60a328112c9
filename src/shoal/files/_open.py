"""Opening a URL for reading, forward or anywhere in it, and asking how large it is."""

from __future__ import annotations

import io
import os
import stat as modes
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

from shoal.errors import UrlError, UrlNotFoundError
from shoal.files._pipe import PipeReader, check_trust, start
from shoal.files._ranges import RangeReader
from shoal.files._remote import Remote, ResumingReader, UrlInfo, remote_info
from shoal.files._urls import display, is_http, is_pipe, local_path

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["local_error", "open_read", "open_seekable", "stat", "stat_open"]

_BUFFER = 1 << 18


def open_read(
    url: str | os.PathLike[str], *, offset: int = 0, trust: bool = False, expect: UrlInfo | None = None
) -> io.BufferedReader:
    """Open a URL for reading from byte ``offset`` to its end.

    A transfer that breaks goes on at the byte where it broke; see `shoal.settings.Settings` for how often. With
    ``expect`` it must be the object that `stat` told about. ``trust`` allows ``pipe:`` URLs, which run commands.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.bin")
    >>> path.write_bytes(b"0123456789")
    10
    >>> with open_read(path, offset=7) as file:
    ...     file.read()
    b'789'
    """
    url = os.fspath(url)
    if offset < 0:
        raise ValueError(f"offset is {offset}; it counts from the start of the object and cannot be negative")
    path = local_path(url)
    if path is not None:
        return _open_local(path, offset)
    if url == "-":
        return _skipped(io.BufferedReader(_Stdin(), _BUFFER), offset)
    if is_pipe(url):
        check_trust(url, trust)
        reader = PipeReader(url, start(url, stdout=subprocess.PIPE))
        return _skipped(io.BufferedReader(reader, _BUFFER), offset)
    return _open_remote(url, offset, expect)


def open_seekable(url: str | os.PathLike[str], *, expect: UrlInfo | None = None) -> io.BufferedIOBase:
    """Open a URL for reading here and there: what is read is fetched, and little else.

    Breaks are mended as `open_read` mends them. What nobody can seek in (``pipe:``, ``-``, a server that knows no
    ranges) is an error; with ``expect`` it must be the object that `stat` told about. Not for several threads at once.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe_file("/doc/a.bin", b"0123456789")
    >>> with open_seekable("memory://doc/a.bin") as file:
    ...     file.seek(-3, 2), file.read(), file.seek(2), file.read(2)
    (7, b'789', 2, b'23')
    """
    url = os.fspath(url)
    path = local_path(url)
    if path is not None and _local_info(path).size is not None:
        return _open_local(path, 0)
    if path is not None or url == "-" or is_pipe(url):
        text = f"{display(url)} is a stream, in which nobody can seek; write it to a file first"
        raise UrlError(text, url=display(url))
    remote = _remote(url)
    try:
        return RangeReader(remote, remote_info(remote) if expect is None else expect)
    except BaseException:
        remote.close()
        raise


def stat(url: str | os.PathLike[str]) -> UrlInfo:
    """Ask for the size of an object and for an identity that changes when it does.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.bin")
    >>> path.write_bytes(b"0123456789")
    10
    >>> stat(path).size, stat("-").size
    (10, None)
    """
    url = os.fspath(url)
    path = local_path(url)
    if path is not None:
        return _local_info(path)
    if url == "-" or is_pipe(url):
        return UrlInfo()
    remote = _remote(url)
    try:
        return remote_info(remote)
    finally:
        remote.close()


def stat_open(file: io.BufferedReader) -> UrlInfo:
    """Tell size and identity of an open local file, whatever its name has come to mean since.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     stat_open(file) == stat(file.name)
    True
    """
    return _info_of(os.fstat(file.fileno()))


def local_error(error: OSError, url: str, verb: str) -> UrlError:
    """Turn an error of the operating system into one that names the URL."""
    kind = UrlNotFoundError if isinstance(error, FileNotFoundError) else UrlError
    return kind(f"could not {verb} {display(url)}: {error.strerror or error}", url=display(url))


def _open_local(path: str, offset: int) -> io.BufferedReader:
    try:
        file = io.BufferedReader(io.FileIO(path), _BUFFER)
    except OSError as error:
        raise local_error(error, path, "read") from error
    return _skipped(file, offset)


def _skipped(file: io.BufferedReader[Any], offset: int) -> io.BufferedReader:
    """Go to an offset, by reading where there is no other way."""
    try:
        if file.seekable():
            file.seek(offset)
        while not file.seekable() and offset > 0:
            data = file.read1(min(offset, _BUFFER))
            if not data:
                break
            offset -= len(data)
    except BaseException:
        file.close()
        raise
    return file


def _local_info(path: str) -> UrlInfo:
    try:
        status = os.stat(path)
    except OSError as error:
        raise local_error(error, path, "read") from error
    if modes.S_ISDIR(status.st_mode):
        raise UrlError(f"{path} is a folder, not a file", url=path)
    return _info_of(status)


def _info_of(status: os.stat_result) -> UrlInfo:
    if not modes.S_ISREG(status.st_mode):
        return UrlInfo()
    return UrlInfo(status.st_size, f"{status.st_size}-{status.st_mtime_ns}")


def _open_remote(url: str, offset: int, expect: UrlInfo | None) -> io.BufferedReader:
    reader = ResumingReader(_remote(url), offset, expect)
    try:
        reader.connect()
    except BaseException:
        reader.close()
        raise
    return io.BufferedReader(reader, _BUFFER)


def _remote(url: str) -> Remote:
    # Imported here: neither library is small, and local work needs none of them.
    if is_http(url):
        from shoal.files._http import HttpRemote

        return HttpRemote(url)
    from shoal.files._fsspec import FsspecRemote

    return FsspecRemote(url)


class _Stdin(io.RawIOBase):
    """Standard input, which stays open when this reader is closed: it belongs to the process."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        return cast("io.BufferedReader", sys.stdin.buffer).readinto1(buffer)
