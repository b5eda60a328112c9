"""Neighbours of one key, told apart: a reader takes members that share a key and follow one another for one sample."""

from __future__ import annotations

import io
from collections.abc import Callable

from shoal.abc import Sample
from shoal.cli._samples import put
from shoal.shards import Span, StreamedTar, TarWriter

__all__ = ["Apart"]

#: Zeros that end a tar.
_END = bytes(1024)


class Apart:
    """Writes samples, and gives one that has the key of the one before it a number, so that both can be read back.

    >>> with TarWriter(io.BytesIO()) as writer:
    ...     apart = Apart(writer)
    ...     [apart.put({"__key__": key, "txt": b""}) for key in ["a", "a", "b", "a"]]
    ['a', 'a-1', 'b', 'a']
    >>> apart.words()
    "1 sample had the key of the one before it and got another: 'a' is now 'a-1'"
    """

    def __init__(self, writer: TarWriter) -> None:
        self._writer = writer
        self._key: str | None = None
        """The key that the last sample came with."""
        self._given: str | None = None
        """The key under which it was written."""
        self._repeats = 0
        self._count = 0
        self._first = ("", "")

    def put(self, sample: Sample) -> str:
        """Append an undecoded sample; give back its key."""
        return self._put(sample["__key__"], lambda key: put(self._writer, {**sample, "__key__": key}))

    def put_span(self, span: Span) -> str:
        """Append a sample as it lies in another tar; give back its key."""

        def write(key: str) -> None:
            if key == span.key:
                self._writer.write_span(span)
            else:
                self._writer.write_fields(key, _fields(span))

        return self._put(span.key, write)

    def words(self) -> str | None:
        """Say what was done, if anything was."""
        if not self._count:
            return None
        had = "1 sample had the key of the one before it"
        if self._count > 1:
            had = f"{self._count} samples had the key of the one before them"
        return f"{had} and got another: {self._first[0]!r} is now {self._first[1]!r}"

    def _put(self, key: str, write: Callable[[str], None]) -> str:
        repeats = 0
        if key in (self._key, self._given):
            repeats = self._repeats + 1 if key == self._key else 1
        given = f"{key}-{repeats}" if repeats else key
        write(given)
        if repeats and not self._count:
            self._first = key, given
        self._count += repeats > 0
        self._key, self._given, self._repeats = key, given, repeats
        return given


def _fields(span: Span) -> dict[str, bytes]:
    """Read the fields of a sample that lies in a tar, to write them under another key."""
    data = b"".join([*span.pieces(), _END])
    (entry,) = StreamedTar(io.BufferedReader(io.BytesIO(data)), span.key).entries()
    return {name: payload.data or b"" for name, payload in entry.fields.items()}
