"""Read a tar as spans: samples are found without touching their data.

Folders, links and members that belong to no sample are left out, and so are global PAX headers: what they say is put
before each member for which it holds.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from io import BufferedIOBase
from itertools import repeat
from operator import itemgetter
from typing import cast

from shoal.errors import DuplicateFieldError
from shoal.files import local_path, open_read
from shoal.shards._compression import decompressed, detect_compression
from shoal.shards._grouping import Entry, duplicate, group, split_name
from shoal.shards._header import BLOCK, Member, extended_records, next_member
from shoal.shards._index import Extent
from shoal.shards._spans import FlowingSpan, HeldSpan, LyingSpan, Part, Piece, Span
from shoal.shards._tar_format import Attributes, HeaderMaker, pax_record
from shoal.shards._walk import Run, check_length
from shoal.shards._windows import MapWindow, StreamWindow, Window

__all__ = ["SpanReader", "read_spans"]

# Many are made and looked at, and these do it without a line of Python for each.
_PART = partial(tuple.__new__, Part)
_NAME, _BEGIN = itemgetter(0), itemgetter(1)


def read_spans(url: str, *, hold: int = 32 * 2**20, trust: bool = False) -> Iterator[Span]:
    """Read the samples of a tar as spans: over a map where it is a plain local file, along a stream otherwise.

    A sample of a stream that has more than ``hold`` bytes is passed on in pieces.

    >>> import pathlib, tempfile
    >>> from shoal.shards import TarWriter
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.tar")
    >>> with TarWriter(path) as writer:
    ...     _ = writer.write({"__key__": "a", "txt": "hello", "cls": 3})
    >>> [(span.key, span.size, span.fields) for span in read_spans(str(path))]
    [('a', 2048, {'cls': (512, 1), 'txt': (512, 5)})]
    """
    with closing(open_read(url, trust=trust)) as file:
        compression, stream = detect_compression(file)
        if compression is None and _is_file(url):
            yield from SpanReader(MapWindow(file, url)).spans()
        else:
            plain = cast(BufferedIOBase, decompressed(stream, compression))
            yield from SpanReader(StreamWindow(plain, url, hold)).spans()


class SpanReader:
    """Makes samples of the members in a window."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._pending: list[Part] = []
        """Members of the sample that may go on."""
        self._last: Part | None = None
        """The member found last, whose bytes may not be there yet."""
        self._has_globals = False

    def spans(self) -> Iterator[Span]:
        """Yield all samples; what is wrong with the tar is raised after those before it."""
        window = self._window
        while not window.ended:
            if self._last is not None and not self._hold(self._last):
                yield from self._overflow(self._last)
                continue
            run, damage = window.run()
            entries, doubled = self._complete(run)
            yield from map(self._span, entries)
            if (error := doubled or damage) is not None:
                raise error
        if self._pending:
            yield self._span(next(self._grouped(self._pending)))

    def _complete(self, run: Run) -> tuple[list[Entry[Part]], DuplicateFieldError | None]:
        """Give the samples that are complete, and keep the last, which may go on."""
        everywhere = self._window.everywhere
        self._has_globals |= bool(everywhere)
        parts = [*self._pending, *map(_PART, zip(*run, repeat(everywhere)))]
        entries: list[Entry[Part]] = []
        try:
            entries += self._grouped(parts)
        except DuplicateFieldError as error:
            return entries, error
        self._pending = list(entries.pop().fields.values()) if entries else []
        self._last = parts[-1] if run.names else None
        return entries, None

    def _grouped(self, parts: list[Part]) -> Iterator[Entry[Part]]:
        return group(zip(map(_NAME, parts), map(_BEGIN, parts), parts, strict=True), self._window.shard)

    def _span(self, entry: Entry[Part]) -> Span:
        if not self._has_globals:
            return LyingSpan(entry.key, entry.fields, self._window)
        fields: dict[str, Extent] = {}
        pieces: list[Piece] = []
        for name, part in entry.fields.items():
            head, begin = self._head(part)
            fields[name] = len(head) + part.offset - begin, part.size
            pieces += head, bytes(self._window.view(begin, part.end))
        return HeldSpan(entry.key, fields, pieces)

    def _head(self, part: Part) -> tuple[bytes, int]:
        """Give the headers of a member that are made anew, and where the bytes begin that stay as they are."""
        if not part.everywhere:
            return b"", part.begin
        own = bytes(self._window.view(part.begin, part.offset - BLOCK))
        records = {**part.everywhere, **extended_records(own, self._window.shard, part.begin)}
        text = b"".join(pax_record(_raw(name), _raw(value)) for name, value in records.items())
        return HeaderMaker(Attributes()).extension(_raw(part.name), text), part.offset - BLOCK

    def _hold(self, last: Part) -> bool:
        """Have the pending sample and the member found last in memory; False if they are too large for that."""
        if not self._window.hold(self._pending[0].begin if self._pending else last.begin, last.end):
            return False
        self._settle(last)
        return True

    def _settle(self, part: Part) -> None:
        """Go to the header behind a member that has been reached."""
        window = self._window
        check_length(window.stop - part.offset, Member(*part[:4]), window.shard)
        window.offset = min(part.end, window.stop)

    def _overflow(self, last: Part) -> Iterator[Span]:
        """Pass on the pending sample, which cannot be held; or pass over a member that belongs to none."""
        self._last = None
        if not self._pending:
            self._pass_over(last)
            return
        entry = next(self._grouped(self._pending))
        span = FlowingSpan(entry.key)
        heads = [self._head(part) for part in self._pending]
        for (name, part), (head, begin) in zip(entry.fields.items(), heads, strict=True):
            span.extend(name, (len(head) + part.offset - begin, part.size))
        span.flow = self._flow(span, heads, last)
        yield span
        for _ in span.flow:
            pass  # what the consumer did not want

    def _flow(self, span: FlowingSpan, heads: list[tuple[bytes, int]], last: Part) -> Iterator[Piece]:
        for part, (head, begin) in zip(self._pending, heads, strict=True):
            yield from self._passing(part, head, begin)
        if last is not self._pending[-1]:
            self._pass_over(last)
        self._pending = []
        while (member := next_member(self._window)) is not None:
            part = Part(*member, self._window.everywhere)
            key, field = split_name(part.name) or ("", "")
            if key and key != span.key:
                self._pending, self._last = [part], part
                return
            if not key:
                self._pass_over(part)
                continue
            if field in span.fields or field == "__key__":
                raise duplicate(key, field, self._window.shard)
            head, begin = self._head(part)
            span.extend(field, (len(head) + part.offset - begin, part.size))
            yield from self._passing(part, head, begin)
        self._window.ended = True

    def _passing(self, part: Part, head: bytes, begin: int) -> Iterator[Piece]:
        if head:
            yield head
        yield from self._window.pieces(begin, part.end)
        self._settle(part)

    def _pass_over(self, part: Part) -> None:
        for _ in self._window.pieces(part.offset, part.end):
            pass
        self._settle(part)


def _is_file(url: str) -> bool:
    path = local_path(url)
    return path is not None and stat.S_ISREG(os.stat(path).st_mode)


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
