"""Files on a disk that is slow, through fsspec."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

from shoal.settings import parse_bytes

__all__ = ["SlowFileSystem", "slow_disk"]

_SCHEME = "shoal-slow"


class SlowFileSystem(LocalFileSystem):  # type: ignore[misc]
    """Local files at so many bytes a second, each opened after some seconds; both are in the URL."""

    protocol: ClassVar[str] = _SCHEME

    def __init__(self, rate: float = 1e9, delay: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self.rate, self.delay = rate, delay

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text = os.fspath(path)
        if text.startswith(f"{_SCHEME}://"):
            text = "/" + text.removeprefix(f"{_SCHEME}://").partition("/")[2]
        return LocalFileSystem._strip_protocol(text)

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, float]:
        if not path.startswith(f"{_SCHEME}://"):
            return {}
        rate, _, delay = path.removeprefix(f"{_SCHEME}://").partition("/")[0].partition(",")
        return {"rate": float(rate), "delay": float(delay)}

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any) -> Any:
        time.sleep(self.delay)
        file = super()._open(path, mode=mode, block_size=block_size, **options)
        return _SlowFile(file, self.rate)


class _SlowFile:
    """A file of which reads and writes take their time."""

    def __init__(self, file: Any, rate: float) -> None:
        self._file, self._rate = file, rate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _SlowFile:
        self._file.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.__exit__(*error)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._file)

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(size)
        time.sleep(len(data) / self._rate)
        return data

    def readinto(self, buffer: Any) -> int:
        count: int = self._file.readinto(buffer)
        time.sleep(count / self._rate)
        return count

    def write(self, data: Any) -> int:
        time.sleep(memoryview(data).nbytes / self._rate)
        count: int = self._file.write(data)
        return count


@contextlib.contextmanager
def slow_disk(folder: str | os.PathLike[str], rate: int | str = "10MB", *, delay: float = 0.0) -> Iterator[str]:
    """Give a URL for a folder whose files are read and written at so many bytes a second, for the length of a block.

    Each file is opened after ``delay`` seconds. The URL is good for this process, and for whoever uses fsspec in it.

    >>> import pathlib, tempfile, fsspec
    >>> folder = tempfile.mkdtemp()
    >>> _ = pathlib.Path(folder, "a.txt").write_text("hello")
    >>> with slow_disk(folder, "1MB", delay=0.01) as url:
    ...     fsspec.open(f"{url}/a.txt").open().read()
    b'hello'
    """
    fsspec.register_implementation(_SCHEME, SlowFileSystem, clobber=True)
    try:
        yield f"{_SCHEME}://{parse_bytes(rate)},{delay:g}{os.path.abspath(folder)}"
    finally:
        SlowFileSystem.clear_instance_cache()
