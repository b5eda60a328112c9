"""Write samples into tars, one by one or sharded."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeAlias

from shoal.abc import Sample
from shoal.errors import EncodeError, PlanError, SampleError
from shoal.files import open_write, scheme
from shoal.settings import parse_bytes
from shoal.shards._compression import ByteSink, compression_of_name, compressor
from shoal.shards._file_field import FileField
from shoal.shards._grouping import Entry, split_name
from shoal.shards._header import padded
from shoal.shards._index import Extent, IndexBuilder
from shoal.shards._index_files import save_beside
from shoal.shards._spans import Span
from shoal.shards._tar_format import END_OF_ARCHIVE, Attributes, HeaderMaker
from shoal.shards.codecs import EncodeOptions, encode

__all__ = ["Encoder", "ShardWriter", "TarWriter", "WrittenShard"]

#: True encodes by extension, False wants bytes, a function makes a sample of bytes itself.
Encoder: TypeAlias = "bool | Callable[[Sample], Mapping[str, Any]]"


class _AllOrNothing(ABC):
    """Finished at the end of its ``with`` block, thrown away when the block raises."""

    @abstractmethod
    def close(self) -> None:
        """Finish."""

    @abstractmethod
    def abort(self) -> None:
        """Throw away what is not finished."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


class TarWriter(_AllOrNothing):
    """Writes samples into one tar, which appears under its name when it is complete and never before.

    The target is a path, any URL that fsspec knows, ``-`` for standard output, ``pipe:command`` (with ``trust=True``),
    or an open binary file. Compression follows the name (``.tgz``, ``.tar.zst``, ...) unless given. The same samples
    give the same bytes. Leaving the ``with`` block by an exception leaves no file.

    >>> import io
    >>> tar = io.BytesIO()
    >>> with TarWriter(tar) as writer:
    ...     writer.write({"__key__": "a", "txt": "hello", "cls": 3})
    6
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | BinaryIO,
        *,
        encoder: Encoder = True,
        compression: str | bool | None = None,
        attributes: Attributes | None = None,
        keep_meta: bool = False,
        index: bool = False,
        trust: bool = False,
    ) -> None:
        self._url = None if hasattr(target, "write") else os.fspath(target)
        if index and self._url is None:
            raise PlanError("an index is kept beside its shard, and an open file has no place beside it")
        compression = _compression(compression, self._url)
        self._target = None if self._url is None else open_write(self._url, trust=trust)
        sink: ByteSink = target if self._target is None else self._target  # type: ignore[assignment]
        self._compressor = compressor(sink, compression) if compression else None
        self._sink = sink if self._compressor is None else self._compressor
        self._headers = HeaderMaker(attributes or Attributes())
        self._encoder, self._keep_meta = encoder, keep_meta
        self._index = IndexBuilder() if index else None
        self._last_key: str | None = None
        self._closed = False
        self.count = 0
        """Samples written."""
        self.size = 0
        """Bytes of tar written so far, before compression."""

    def write(self, sample: Mapping[str, Any]) -> int:
        """Append a sample; give back how many bytes its fields have."""
        fields = self.encoded(sample)
        return self.write_fields(sample["__key__"], fields)

    def encoded(self, sample: Mapping[str, Any]) -> dict[str, bytes | FileField]:
        """Check a sample's key and turn its fields into bytes, in the order they are written."""
        if "__key__" not in sample:
            raise EncodeError(f"a sample needs a '__key__'; this one has {sorted(sample)}")
        key = sample["__key__"]
        if callable(self._encoder):
            sample = self._encoder(dict(sample))
        names = sorted(name for name in sample if self._keep_meta or not name.startswith("_"))
        return {name: self._bytes(key, name, sample[name]) for name in names if name != "__key__"}

    def write_fields(self, key: str, fields: Mapping[str, bytes | FileField]) -> int:
        """Append a sample whose fields are bytes already."""
        if self._closed:
            raise ValueError("the tar is closed")
        self._check(key, fields)
        self._check_last(key)
        entry = Entry[Extent](key, self.size)
        for name, data in fields.items():
            header = self._headers.header(f"{key}.{name}", len(data))
            self._sink.write(header)
            if isinstance(data, bytes):
                self._sink.write(data)
            else:
                self._copy(data)
            self._sink.write(bytes(-len(data) % 512))
            entry.fields[name.lower()] = (self.size + len(header), len(data))
            self.size += len(header) + padded(len(data))
        if self._index is not None:
            self._index.add(entry)
        self._last_key = key
        self.count += 1
        return sum(map(len, fields.values()))

    def write_span(self, span: Span) -> None:
        """Append a sample as it lies in another tar, headers and all."""
        if self._closed:
            raise ValueError("the tar is closed")
        self._check_last(span.key)
        begin = self.size
        for piece in span.pieces():
            self._sink.write(piece)
            self.size += len(piece)
        if self._index is not None:
            self._index.add(span.entry(begin))
        self._last_key = span.key
        self.count += 1

    def flush(self) -> None:
        """Pass on what was written; a file still appears only when it is complete."""
        if self._compressor is not None:
            self._compressor.flush()
        if self._target is not None:
            self._target.flush()

    def size_of(self, key: str, fields: Mapping[str, bytes | FileField]) -> int:
        """Count the bytes of tar that a sample would take."""
        self._check(key, fields)
        sizes = {f"{key}.{name}": len(data) for name, data in fields.items()}
        return sum(len(self._headers.header(name, size)) + padded(size) for name, size in sizes.items())

    def close(self) -> None:
        """Finish the tar and let it appear under its name."""
        if self._closed:
            return
        self._closed = True
        try:
            self._sink.write(END_OF_ARCHIVE)
            self.size += len(END_OF_ARCHIVE)
            if self._compressor is not None:
                self._compressor.close()
        except BaseException:
            self._abort_target()
            raise
        if self._target is not None:
            self._target.commit()
        if self._index is not None and self._url is not None:
            save_beside(self._url, self._index, seekable=self._compressor is None)

    def abort(self) -> None:
        """Throw away what was written."""
        if not self._closed:
            self._closed = True
            self._abort_target()

    def _check_last(self, key: str) -> None:
        if key == self._last_key:
            raise EncodeError("the same key twice in a row would be read back as one sample", key=key)

    def _copy(self, data: FileField) -> None:
        for piece in data.pieces():
            self._sink.write(piece)

    def _abort_target(self) -> None:
        if self._target is not None:
            self._target.abort()

    def _bytes(self, key: str, name: str, value: Any) -> bytes | FileField:
        if isinstance(value, bytes | FileField):
            return value
        if self._encoder is not True:
            raise EncodeError(f"{type(value).__name__} is not bytes, and encoding is off", key=key, field=name)
        try:
            return encode(name, value, EncodeOptions())
        except SampleError as error:
            error.key = key
            raise

    def _check(self, key: str, fields: Mapping[str, bytes | FileField]) -> None:
        """Refuse what would be read back as something else, before any of it is written."""
        if not isinstance(key, str):
            raise EncodeError(f"the key {key!r} is a {type(key).__name__}; it must be a str")
        if not fields:
            raise EncodeError("the sample has no fields to write, so it would be lost", key=key)
        for name, data in fields.items():
            if (found := _read_back(f"{key}.{name}")) != (key, name.lower()) or "/" in name:
                text = f"the key {key!r} and the field {name!r} would be read back as {found}"
                raise EncodeError(f"{text}: a key must be non-empty, without a dot in its last part")
            if not isinstance(data, bytes | FileField):
                raise EncodeError(f"{type(data).__name__} is not bytes", key=key, field=name)
        if len({name.lower() for name in fields}) < len(fields):
            raise EncodeError(f"fields differ only in case: {sorted(fields)}", key=key)


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """A shard that is complete.

    >>> import tempfile
    >>> with ShardWriter(f"{tempfile.mkdtemp()}/%d.tar", maxcount=2) as writer:
    ...     for i in range(3):
    ...         _ = writer.write({"__key__": str(i), "cls": i})
    >>> [(shard.count, shard.size) for shard in writer.shards]
    [(2, 3072), (1, 2048)]
    """

    url: str
    count: int
    size: int
    """Bytes of tar, before compression."""


class ShardWriter(_AllOrNothing):
    """Writes samples into a row of shards, beginning a new one before ``maxcount`` samples or ``maxsize`` bytes
    would be exceeded (a single larger sample gets a shard of its own).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with ShardWriter(f"{folder}/train-%04d.tar", maxcount=2) as writer:
    ...         for i in range(5):
    ...             _ = writer.write({"__key__": f"{i:06d}", "cls": i})
    ...     [shard.count for shard in writer.shards]
    [2, 2, 1]
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        maxcount: int = 100_000,
        maxsize: float | str = 3e9,
        *,
        start: int = 0,
        on_begin: Callable[[str], object] | None = None,
        on_shard: Callable[[WrittenShard], object] | None = None,
        **options: Any,
    ) -> None:
        self._pattern = os.fspath(pattern)
        self._next = start
        if self._name(start) == self._name(start + 1):
            raise PlanError(f"{self._pattern!r} does not number its shards; write it like 'train-%06d.tar'")
        if maxcount < 1 or parse_bytes(maxsize) < 1:
            raise PlanError(f"maxcount={maxcount} and maxsize={maxsize} must be at least 1")
        self._maxcount, self._maxsize = maxcount, parse_bytes(maxsize)
        self._on_begin, self._on_shard, self._options = on_begin, on_shard, options
        self._writer: TarWriter | None = None
        self._open_url = ""
        self.shards: list[WrittenShard] = []
        """The shards that are complete."""

    def write(self, sample: Mapping[str, Any]) -> int:
        """Append a sample, to a new shard if the current one is full; give back how many bytes its fields have."""
        writer = self._writer or self._open()
        fields = writer.encoded(sample)
        if not self._has_room(writer.size_of(sample["__key__"], fields)):
            self._finish()
            writer = self._open()
        return writer.write_fields(sample["__key__"], fields)

    def write_span(self, span: Span, *, may_begin: bool = True) -> bool:
        """Append a sample as it lies in another tar; False if that needs a new shard, and none may begin."""
        if self._writer is not None and span.flows and self._has_room(span.size):
            span = span.held()  # its size decides, and is not yet known
        if self._writer is None or not self._has_room(span.size):
            if not may_begin:
                return False
            self.close()
        writer = self._writer or self._open()
        writer.write_span(span)
        return True

    def close(self) -> None:
        """Finish the last shard; one in which nothing could be written is none."""
        if self._writer is not None and self._writer.count == 0:
            self.abort()
        if self._writer is not None:
            self._finish()

    @property
    def begun(self) -> int:
        """Count the shards that are complete or being written."""
        return len(self.shards) + (self._writer is not None)

    def abort(self) -> None:
        """Throw away the shard being written; those complete stay."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None

    def _has_room(self, size: int) -> bool:
        assert self._writer is not None
        whole = self._writer.size + size + len(END_OF_ARCHIVE)
        return self._writer.count == 0 or (self._writer.count < self._maxcount and whole <= self._maxsize)

    def _name(self, number: int) -> str:
        try:
            return self._pattern % number
        except (TypeError, ValueError):
            return self._pattern

    def _open(self) -> TarWriter:
        self._open_url = self._name(self._next)
        if self._on_begin is not None:
            self._on_begin(self._open_url)
        self._writer = self._make_writer(self._open_url)
        self._next += 1
        return self._writer

    def _make_writer(self, url: str) -> TarWriter:
        return TarWriter(url, **self._options)

    def _finish(self) -> None:
        writer, self._writer = self._writer, None
        assert writer is not None
        writer.close()
        self.shards.append(WrittenShard(self._open_url, writer.count, writer.size))
        if self._on_shard is not None:
            self._on_shard(self.shards[-1])


def _read_back(name: str) -> tuple[str, str] | None:
    """Tell what a reader makes of a name once it is bytes; None for nothing."""
    try:
        read = name.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
    parts = None if "\0" in read else split_name(read)
    return None if parts is not None and parts[1] == "__key__" else parts


def _compression(given: str | bool | None, url: str | None) -> str | None:
    if given is None:
        return compression_of_name(url) if url is not None and scheme(url) != "pipe" else None
    if given is True:
        return "gz"
    return given or None
