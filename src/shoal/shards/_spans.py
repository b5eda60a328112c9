"""A sample as it lies in a tar: the bytes of its members, headers and all.

Whoever moves samples from tar to tar needs no more.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, ClassVar, NamedTuple, TypeAlias

from shoal.shards._grouping import Entry
from shoal.shards._header import BLOCK, padded
from shoal.shards._index import Extent
from shoal.shards._windows import Window

__all__ = ["FlowingSpan", "HeldSpan", "LyingSpan", "Part", "Piece", "Span"]

Piece: TypeAlias = "bytes | memoryview"

_PIECE = 2**20


class Span(ABC):
    """A sample as it lies in a tar.

    Its bytes can be had once, and until the next span is asked for; `held` gives a span without this limit.

    >>> import tempfile
    >>> from shoal.shards import TarWriter, read_spans
    >>> path = f"{tempfile.mkdtemp()}/a.tar"
    >>> with TarWriter(path) as writer:
    ...     _ = writer.write({"__key__": "a", "txt": "hello"})
    >>> [(span.key, span.size, len(b"".join(span.pieces()))) for span in read_spans(path)]
    [('a', 1024, 1024)]
    """

    __slots__ = ("key",)

    flows: ClassVar[bool] = False
    """Whether it is too large to be held: fields and size are those known so far, until all pieces have passed."""

    def __init__(self, key: str) -> None:
        self.key = key

    @property
    @abstractmethod
    def fields(self) -> Mapping[str, Extent]:
        """Of each field the bytes of its headers, and those of its data."""

    @property
    def size(self) -> int:
        """Count the bytes of tar."""
        return sum([header + padded(size) for header, size in self.fields.values()])

    @abstractmethod
    def pieces(self) -> Iterable[Piece]:
        """Give the bytes of the sample, headers and padding included."""

    def entry(self, begin: int) -> Entry[Extent]:
        """Tell where the fields lie when the sample begins at a place."""
        entry: Entry[Extent] = Entry(self.key, begin)
        for name, (header, size) in self.fields.items():
            entry.fields[name] = begin + header, size
            begin += header + padded(size)
        return entry

    @abstractmethod
    def held(self) -> Span:
        """Copy the sample, to memory or, if it is too large for that, to a temporary file without a name."""


class Part(NamedTuple):
    """A member of a sample, and where it lies."""

    name: str
    begin: int
    """Where its first header starts."""
    offset: int
    """Where its bytes start."""
    size: int
    everywhere: Mapping[str, str]
    """What a global PAX header says of it."""

    @property
    def end(self) -> int:
        """Where the next header starts."""
        return self.offset + padded(self.size)


class LyingSpan(Span):
    """A sample that is all in a window, and that is copied as it is."""

    __slots__ = ("_parts", "_ranges", "_window")

    def __init__(self, key: str, parts: dict[str, Part], window: Window) -> None:
        self.key, self._parts, self._window = key, parts, window
        self._ranges = _ranges(parts.values())

    @property
    def fields(self) -> Mapping[str, Extent]:
        return {name: (offset - begin, size) for name, (_, begin, offset, size, _) in self._parts.items()}

    @property
    def size(self) -> int:
        return sum([end - begin for begin, end in self._ranges])

    def pieces(self) -> Iterable[Piece]:
        view = self._window.view
        return [view(begin, end) for begin, end in self._ranges]

    def entry(self, begin: int) -> Entry[Extent]:
        if len(self._ranges) > 1:
            return super().entry(begin)
        by = begin - self._ranges[0][0]  # all of it moves alike
        return Entry(self.key, begin, {name: (part[2] + by, part[3]) for name, part in self._parts.items()})

    def held(self) -> Span:
        return self if self._window.lasting else HeldSpan(self.key, self.fields, [b"".join(self.pieces())])


class HeldSpan(Span):
    """A sample whose bytes are somewhere else than in a window."""

    __slots__ = ("_fields", "_pieces")

    def __init__(self, key: str, fields: Mapping[str, Extent], pieces: Iterable[Piece]) -> None:
        super().__init__(key)
        self._fields, self._pieces = fields, pieces

    @property
    def fields(self) -> Mapping[str, Extent]:
        return self._fields

    def pieces(self) -> Iterable[Piece]:
        return self._pieces

    def held(self) -> Span:
        return self


class FlowingSpan(Span):
    """A sample that passes a window without ever being all in it."""

    __slots__ = ("_fields", "flow")

    flows = True

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._fields: dict[str, Extent] = {}
        self.flow: Iterator[Piece] = iter(())

    @property
    def fields(self) -> Mapping[str, Extent]:
        return self._fields

    def extend(self, field: str, extent: Extent) -> None:
        """Take note of a field that comes."""
        self._fields[field] = extent

    def pieces(self) -> Iterable[Piece]:
        return self.flow

    def held(self) -> Span:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the span
        for piece in self.flow:
            file.write(piece)
        return HeldSpan(self.key, self._fields, _read_again(file))


def _ranges(parts: Iterable[Part]) -> list[tuple[int, int]]:
    """Tell where the bytes of members lie, neighbours in one."""
    ranges: list[tuple[int, int]] = []
    for _, begin, offset, size, _ in parts:
        end = offset + (size + BLOCK - 1 & -BLOCK)  # not by a call: this is done for every member
        if ranges and ranges[-1][1] == begin:
            ranges[-1] = ranges[-1][0], end
        else:
            ranges.append((begin, end))
    return ranges


def _read_again(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    with file:
        while piece := file.read(_PIECE):
            yield piece
