"""One Arrow IPC file or stream, open."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from threading import Lock

import pyarrow as pa

from shoal.errors import CorruptShardError, PlanError, TruncatedShardError
from shoal.files import display, local_path, open_read, open_seekable
from shoal.sources._arrow_footer import batch_extents
from shoal.sources._native import HEAD, explained, misfit, open_native, translated
from shoal.sources._rows import RowForm, Rows
from shoal.sources._sound import check_sound
from shoal.sources._tables import Place, TableFile, TableOptions

__all__ = ["ArrowStream", "ArrowTable", "open_arrow"]

_MAGIC = b"ARROW1"
#: Begins each message since Arrow 0.15, and with a length of zero it ends a stream.
_MESSAGE = b"\xff\xff\xff\xff"
_END = _MESSAGE + bytes(4)


def open_arrow(place: Place, options: TableOptions) -> TableFile:
    """Open a file as what its first bytes say it is; those of a pipe are not asked before it is read."""
    if place.is_passing:
        return ArrowStream(place, options)
    with open_read(place.path) if place.info.size is None else open_seekable(place.path, expect=place.info) as file:
        head = file.read(HEAD)
    if head.startswith(_MAGIC):
        return ArrowTable(place, options)
    return ArrowStream(place, options, head)


class ArrowTable:
    """An Arrow file: its footer tells where the record batches are."""

    is_passing = False

    def __init__(self, place: Place, options: TableOptions) -> None:
        self._url = place.url
        self._copy = place.copy
        with translated(place.url, partial(explained, place, _MAGIC, "an Arrow file")):
            source = open_native(place)
            self._reader = pa.ipc.open_file(source)
            schema = self._reader.schema
            self._form = RowForm.of(schema, place.url, place.stem, options.columns, options.key)
            if options.columns is not None:
                fields = [schema.get_field_index(name) for name in self._form.columns]
                self._reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields))
            extents = batch_extents(source, place.url)
        self.bounds = list(accumulate((rows for rows, _ in extents), initial=0))
        self._stored = [size for _, size in extents]
        self._lock = Lock()
        self._sound: set[int] = set()

    def pieces(self, group: int, size: int) -> Iterator[Rows]:
        """Give a record batch, which is one piece."""
        with translated(self._url):
            with self._lock:
                batch = self._reader.get_batch(group)
            if group not in self._sound:
                _validate(batch)
                self._sound.add(group)
        if batch.num_rows != self.bounds[group + 1] - self.bounds[group]:
            raise CorruptShardError(f"record batch {group} has another length than it says", shard=display(self._url))
        yield Rows(batch, self.bounds[group], self._form)

    def stored(self, group: int) -> int:
        """Give the bytes of a record batch, all columns of it."""
        return self._stored[group]


class ArrowStream:
    """An Arrow stream: record batches one after the other, and nobody knows how many."""

    bounds = None

    def __init__(self, place: Place, options: TableOptions, head: bytes | None = None) -> None:
        self._place, self._options = place, options
        self.is_passing = place.is_passing
        self._sound = 0
        if head is not None:
            self._check_head(head)

    def pieces(self, group: int, size: int) -> Iterator[Rows]:
        """Read the stream from its beginning."""
        first, url, options = 0, self._place.url, self._options
        with translated(url), self._bytes() as source:
            self._check_head(source.head)
            reader = pa.ipc.open_stream(source.native)
            form = RowForm.of(reader.schema, url, self._place.stem, options.columns, options.key)
            for number, batch in enumerate(reader):
                if number >= self._sound:
                    _validate(batch)
                    self._sound = number + 1
                yield Rows(batch, first, form)
                first += batch.num_rows
            self._check_end(source)

    def stored(self, group: int) -> None:
        """Nobody knows: the stream tells nothing beforehand."""

    @contextmanager
    def _bytes(self) -> Iterator[_Mapped | _Passing]:
        place = self._place
        if place.info.size is not None and local_path(place.path) is not None:
            yield _Mapped(open_native(place))
            return
        expect = None if place.is_passing else place.info
        with open_read(place.path, trust=self._options.trust, expect=expect) as file:
            yield _Passing(file)

    def _check_head(self, head: bytes) -> None:
        wrong = misfit(self._place.url, head, "an Arrow file or stream")
        if head.startswith(_MAGIC):
            shown = display(self._place.url)
            raise PlanError(f"{shown} is a pipe that brings an Arrow file, which is read from its end; send a stream")
        if wrong is not None:
            raise wrong

    def _check_end(self, source: _Mapped | _Passing) -> None:
        """Make sure that the writer came to its end, and that there is nothing after it."""
        last, more = source.end()
        shard = display(self._place.url)
        if more:
            raise CorruptShardError("there are bytes after the end of the stream; was another one added?", shard=shard)
        if last != _END and source.head.startswith(_MESSAGE):
            text = "the stream has no end mark: it was cut off, or its writer has not been closed"
            raise TruncatedShardError(text, shard=shard)


class _Mapped:
    """A stream in a mapped file."""

    def __init__(self, native: pa.NativeFile) -> None:
        self.native = native
        self.head = bytes(native.read(HEAD))
        native.seek(0)

    def end(self) -> tuple[bytes, bytes]:
        """Give the last bytes that were read, and a byte after them if there is one."""
        self.native.seek(max(0, self.native.tell() - len(_END)))
        return bytes(self.native.read(len(_END))), bytes(self.native.read(1))


class _Passing:
    """A stream that passes by, whose first bytes are looked at before it is read."""

    closed = False

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self.head = self._ahead = file.read(HEAD)
        self._last = b""
        self.native = pa.PythonFile(self, mode="r")

    def read(self, size: int) -> bytes:
        """Read so many bytes."""
        data = self._ahead[:size]
        self._ahead = self._ahead[size:]
        if len(data) < size:
            data += self._file.read(size - len(data))
        self._last = (self._last + data[-len(_END) :])[-len(_END) :]
        return data

    def end(self) -> tuple[bytes, bytes]:
        """Give the last bytes that were read, and a byte after them if there is one."""
        return self._last, self._file.read(1)


def _validate(batch: pa.RecordBatch) -> None:
    for column in batch.columns:
        check_sound(column)
