"""What a format is written by, and how samples are dealt to several files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TypeAlias

from shoal.abc import Sample
from shoal.errors import PlanError

__all__ = ["Limits", "Make", "Rolling", "Writer", "is_pattern"]


class Writer(Protocol):
    """Writes samples to one place, which is complete when this is closed, and never was when it is aborted."""

    def write(self, sample: Sample) -> int:
        """Append a sample; give back how many bytes its fields have."""

    def close(self) -> None:
        """Finish."""

    def abort(self) -> None:
        """Throw away what is not finished."""


#: Begins a file.
Make: TypeAlias = "Callable[[str], Writer]"


@dataclass(frozen=True, slots=True)
class Limits:
    """So many samples, or bytes of them, are enough for one file; None for any number."""

    maxcount: int | None = None
    maxsize: int | None = None

    def __post_init__(self) -> None:
        if min(self.maxcount or 1, self.maxsize or 1) < 1 or 0 in (self.maxcount, self.maxsize):
            raise PlanError(f"maxcount={self.maxcount} and maxsize={self.maxsize} must be at least 1")

    def is_reached(self, count: int, size: int) -> bool:
        """Tell whether so much is enough.

        >>> Limits(maxcount=2).is_reached(2, 10), Limits(maxsize=11).is_reached(2, 10)
        (True, False)
        """
        return (self.maxcount is not None and count >= self.maxcount) or (
            self.maxsize is not None and size >= self.maxsize
        )


class Rolling:
    """Writes samples to one file, or to a row of files that are numbered; as a context it is all or nothing."""

    def __init__(self, url: str, make: Make, limits: Limits) -> None:
        self._numbered = is_pattern(url)
        if not self._numbered and limits != Limits():
            raise PlanError(f"{url} does not number its files; write it like train-%06d.tar")
        self._url, self._make, self._limits = url, make, limits
        self._writer: Writer | None = None
        self._count = self._size = 0
        self.urls: list[str] = []
        """Files that were begun."""
        self.samples = 0

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._finish()
        elif self._writer is not None:
            self._writer.abort()

    def write(self, sample: Sample) -> None:
        """Append a sample, to a new file if the current one is full."""
        if self._count and self._limits.is_reached(self._count, self._size):
            self._finish()
            self._begin()
        assert self._writer is not None
        self._size += self._writer.write(sample)
        self._count += 1
        self.samples += 1

    def _begin(self) -> None:
        url = self._url % len(self.urls) if self._numbered else self._url
        self._writer, self._count, self._size = self._make(url), 0, 0
        self.urls.append(url)

    def _finish(self) -> None:
        assert self._writer is not None
        try:
            self._writer.close()
        except BaseException:
            self._writer.abort()
            raise


def is_pattern(url: str) -> bool:
    """Tell whether a name has a place for a number.

    >>> is_pattern("a-%06d.tar"), is_pattern("a.tar"), is_pattern("100%.tar")
    (True, False, False)
    """
    try:
        return url % 0 != url % 1
    except (TypeError, ValueError):
        return False
