"""A sample that lies in a tar, under another key."""

from __future__ import annotations

import io

from shoal.shards._read import StreamedTar
from shoal.shards._span_reader import SpanReader
from shoal.shards._spans import Span
from shoal.shards._windows import StreamWindow
from shoal.shards._write import TarWriter

__all__ = ["renamed"]

#: Zeros that end a tar.
_END = bytes(1024)


def renamed(span: Span, key: str) -> Span:
    """Copy a sample, in memory, to one with another key.

    >>> import tempfile
    >>> from shoal.shards import TarWriter, read_spans
    >>> path = f"{tempfile.mkdtemp()}/a.tar"
    >>> with TarWriter(path) as writer:
    ...     _ = writer.write({"__key__": "a", "txt": "hello"})
    >>> [renamed(span, "b").key for span in read_spans(path)]
    ['b']
    """
    data = io.BytesIO(b"".join([*span.pieces(), _END]))
    (entry,) = StreamedTar(io.BufferedReader(data), span.key).entries()
    made = io.BytesIO()
    with TarWriter(made) as writer:
        writer.write_fields(key, {name: payload.data or b"" for name, payload in entry.fields.items()})
    window = StreamWindow(io.BytesIO(made.getvalue()), key, len(made.getvalue()))
    return next(SpanReader(window).spans()).held()
