"""Neighbours of one key, told apart: a reader takes members that share a key and follow one another for one sample."""

from __future__ import annotations

from shoal.abc import Sample
from shoal.shards import Span, renamed

__all__ = ["Apart"]


class Apart:
    """Gives a sample that has the key of the one before it a number, so that both can be read back from one tar.

    >>> apart = Apart()
    >>> [apart.sample({"__key__": key, "txt": b""})["__key__"] for key in ["a", "a", "b", "a"]]
    ['a', 'a-1', 'b', 'a']
    >>> apart.words()
    "1 sample had the key of the one before it and got another: 'a' is now 'a-1'"
    """

    def __init__(self) -> None:
        self._key: str | None = None
        """The key that the last sample came with."""
        self._given: str | None = None
        """The key that it has now."""
        self._repeats = 0
        self._count = 0
        self._first = ("", "")
        self._before: tuple[str | None, str | None, int, int] = None, None, 0, 0

    def sample(self, sample: Sample) -> Sample:
        """Give a sample the key under which it can be written."""
        key = self._next(sample["__key__"])
        return sample if key == sample["__key__"] else {**sample, "__key__": key}

    def span(self, span: Span) -> Span:
        """Give a sample that lies in another tar the key under which it can be written."""
        key = self._next(span.key)
        return span if key == span.key else renamed(span, key)

    def forget(self) -> None:
        """Take the last one back: it could not be written."""
        self._key, self._given, self._repeats, self._count = self._before

    def words(self) -> str | None:
        """Say what was done, if anything was."""
        if not self._count:
            return None
        had = "1 sample had the key of the one before it"
        if self._count > 1:
            had = f"{self._count} samples had the key of the one before them"
        return f"{had} and got another: {self._first[0]!r} is now {self._first[1]!r}"

    def _next(self, key: str) -> str:
        self._before = self._key, self._given, self._repeats, self._count
        if key != self._key and key != self._given:
            self._key = self._given = key
            self._repeats = 0
            return key
        self._repeats = self._repeats + 1 if key == self._key else 1
        self._key, self._given = key, f"{key}-{self._repeats}"
        if not self._count:
            self._first = key, self._given
        self._count += 1
        return self._given
