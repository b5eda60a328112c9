"""Objects in any filesystem that fsspec knows."""

from __future__ import annotations

import contextlib
import difflib
import io
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import fsspec
from fsspec.registry import known_implementations

from shoal._optional import require
from shoal.errors import MissingExtraError, ShoalError, UrlError, UrlNotFoundError
from shoal.files._remote import Part, UrlInfo
from shoal.files._retry import Attempts, Broken, safe_cause
from shoal.files._urls import display, redact, scheme
from shoal.settings import current

__all__ = ["FsspecRemote", "attempted", "filesystem", "info_of", "translated"]

T = TypeVar("T")

#: One request of a store that reads in blocks; large enough that its latency does not count.
_BLOCK = 8 << 20
#: What such a store may read beyond a range that was asked for.
_RANGE_BLOCK = 1 << 16

#: What filesystems call an identity, the strongest first.
_VERSIONS = (
    "etag", "ETag", "e_tag", "blob_id", "md5", "md5Hash", "content_md5", "generation", "VersionId", "version_id",
    "version", "LastModified", "last_modified", "lastModified", "mtime", "modified", "updated", "created",
)  # fmt: skip

#: What no second attempt will mend.
_HOPELESS = (ValueError, TypeError, NotImplementedError, ImportError, IsADirectoryError, NotADirectoryError)


def filesystem(url: str) -> tuple[Any, str]:
    """Give the filesystem of a URL and the path in it."""
    try:
        fs, path = fsspec.core.url_to_fs(url, **_patience(scheme(url)))
    except ImportError as error:
        raise _missing(url, error) from None
    except ValueError as error:
        raise _unknown(url, error) from safe_cause(error)
    except Exception as error:
        # Making a filesystem may already talk to a store, with the exceptions of whatever library does that.
        raise translated(error, url) from safe_cause(error)
    return fs, path


def _patience(protocol: str) -> dict[str, Any]:
    """Let the setting ``timeout`` hold where a filesystem can be told; what the user has told fsspec counts more."""
    if protocol not in ("s3", "s3a"):
        return {}
    own = fsspec.config.conf.get(protocol, {}).get("config_kwargs", {})
    return {"config_kwargs": dict.fromkeys(("connect_timeout", "read_timeout"), current().timeout or None) | own}


class FsspecRemote:
    """An object that is opened, sought and read through its filesystem."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._fs, self._path = filesystem(url)
        self._ranges: tuple[Any, UrlInfo] | None = None

    def connect(self, offset: int, stop: int | None = None) -> Part:
        """Open the object at ``offset``; for ranges it is opened once, because that is a request of its own."""
        try:
            file, info = self._opened(_BLOCK) if stop is None else self._ranges or self._opened(_RANGE_BLOCK)
            file.seek(offset)
        except Exception as error:
            raise translated(error, self.url) from safe_cause(error)
        if stop is not None:
            self._ranges = file, info
        return Part(offset, info, lambda view: self._readinto(file, view), file.close if stop is None else _keep)

    def info(self) -> UrlInfo:
        """Ask for size and version."""
        try:
            self._fs.invalidate_cache(self._path)
            return info_of(self._fs.info(self._path))
        except Exception as error:
            raise translated(error, self.url) from safe_cause(error)

    def close(self) -> None:
        """Close the file that ranges were read from; filesystems are kept and shared by fsspec."""
        ranges, self._ranges = self._ranges, None
        if ranges is not None:
            ranges[0].close()

    def _opened(self, block: int) -> tuple[Any, UrlInfo]:
        # Size and version must be those of now, not those of a listing that somebody made an hour ago.
        self._fs.invalidate_cache(self._path)
        file = self._fs.open(self._path, "rb", block_size=block)
        info = info_of(getattr(file, "details", None) or self._fs.info(self._path))
        # The file of a memory:// URL is the object itself, one for all its readers, with a single position.
        return (io.BytesIO(file.getvalue()) if isinstance(file, io.BytesIO) else file), info

    def _readinto(self, file: Any, view: memoryview) -> int:
        try:
            data = file.read(len(view))
        except Exception as error:
            self._ranges = None
            raise translated(error, self.url) from safe_cause(error)
        view[: len(data)] = data
        return len(data)


def _keep() -> None:
    """Leave a file open for the next range."""


def info_of(details: Mapping[str, Any]) -> UrlInfo:
    """Read size and version out of what a filesystem tells about a file.

    >>> info_of({"size": 3, "ETag": '"abc"', "LastModified": "today"})
    UrlInfo(size=3, version='"abc"')
    """
    size = details.get("size")
    for name in _VERSIONS:
        value = details.get(name)
        if value not in (None, "", "null"):
            return UrlInfo(size, str(value))
    return UrlInfo(size)


def translated(error: Exception, url: str) -> Exception:
    """Turn what a filesystem raised into `UrlError` if it is final, or `Broken` if it may pass."""
    if isinstance(error, ShoalError | Broken):
        return error
    shown = display(url)
    text = f"{type(error).__name__}: {redact(str(error))}"
    status = _status(error)
    if isinstance(error, FileNotFoundError) or status in (404, 410):
        return UrlNotFoundError(f"{shown} does not exist ({text})", url=shown)
    if isinstance(error, PermissionError) or status in (401, 403) or "Credentials" in type(error).__name__:
        return UrlError(f"{shown} may not be accessed; check the credentials ({text})", url=shown)
    if isinstance(error, _HOPELESS):
        return UrlError(f"{shown} cannot be used: {text}", url=shown)
    return Broken(text)


def attempted(url: str, verb: str, call: Callable[[], T]) -> T:
    """Ask a filesystem for something, again where the way is bumpy; its exceptions end here."""
    attempts = Attempts(url, verb)
    while True:
        try:
            return call()
        except Exception as error:
            final = translated(error, url)
            if not isinstance(final, Broken):
                raise final from safe_cause(error)
            final.__cause__ = error
            attempts.failed(final)


def _status(error: Exception) -> int | None:
    for name in ("status", "code", "status_code"):
        with contextlib.suppress(TypeError, ValueError):
            return int(getattr(error, name, None))  # type: ignore[arg-type]
    return None


def _missing(url: str, error: ImportError) -> Exception:
    cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    entry = known_implementations.get(scheme(url), {})
    module = (cause.name or entry.get("class", scheme(url))).partition(".")[0]
    try:
        require(module, f"reaching {scheme(url)}:// URLs")
    except MissingExtraError as missing:
        return missing
    return UrlError(f"{display(url)} cannot be used: {error}", url=display(url))


def _unknown(url: str, error: ValueError) -> UrlError:
    known = sorted({*fsspec.available_protocols(), "pipe"})
    name = scheme(url)
    if name in known:
        return UrlError(f"{display(url)} cannot be used: {redact(str(error))}", url=display(url))
    near = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
    return UrlError(f"{display(url)} has the unknown scheme {name!r}; {hint}", url=display(url))
