"""Compressed tars: which compression a stream has, and streams that undo or apply it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zlib
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

import zstandard

from shoal.errors import PlanError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["ByteSink", "compression_of_name", "compressor", "decompressed", "detect_compression", "is_damage", "sniff"]

_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError)

# As long as can be, because a plain tar begins with a name, and "BZhang/1.jpg" is one. Of bzip2 it is the level and
# how the first block, or the end of a stream without any, begins; of gzip the only method there is.
_MAGIC = re.compile(rb"(?P<gz>\x1f\x8b\x08)|(?P<bz2>BZh[1-9](?:1A|\x17r))|(?P<xz>\xfd7zXZ\0)|(?P<zst>\x28\xb5\x2f\xfd)")
_HEAD = 6
_ENDINGS = {"gz": "gz", "tgz": "gz", "bz2": "bz2", "tbz2": "bz2", "xz": "xz", "txz": "xz", "zst": "zst", "tzst": "zst"}


class ByteSink(Protocol):
    """Anything bytes can be written to."""

    def write(self, data: bytes | memoryview, /) -> object:
        """Write all of the bytes."""
        ...


def sniff(head: bytes) -> str | None:
    """Tell a stream's compression from its first six bytes; names lie.

    >>> sniff(gzip.compress(b"hello")), sniff(b"hello, world")
    ('gz', None)
    """
    match = _MAGIC.match(head)
    return match.lastgroup if match is not None else None


def detect_compression(stream: io.BufferedReader) -> tuple[str | None, io.BufferedReader]:
    """Tell a stream's compression, and give the stream with its first bytes still in it.

    >>> detect_compression(io.BufferedReader(io.BytesIO(gzip.compress(b"hello"))))[0]
    'gz'
    """
    head = stream.peek(_HEAD)[:_HEAD]
    if len(head) not in (0, _HEAD):
        # A pipe or a connection may bring its first bytes one by one, and a peek asks it only once.
        head = stream.read(_HEAD)
        stream = io.BufferedReader(_Rejoined(head, stream))
    return sniff(head), stream


def is_damage(error: Exception) -> bool:
    """Tell whether an exception is how a decompressor says that bytes are not what they should be."""
    return isinstance(error, _DAMAGE) or (type(error) is OSError and error.errno is None)  # the latter is bz2's way


def compression_of_name(name: str) -> str | None:
    """Tell the compression that a file name promises.

    >>> compression_of_name("train-0000.tgz"), compression_of_name("train.tar")
    ('gz', None)
    """
    return _ENDINGS.get(name.lower().rpartition(".")[2])


def decompressed(stream: io.BufferedReader, compression: str | None) -> BinaryIO:
    """Wrap a stream so that reading gives the plain bytes."""
    if compression is None:
        return stream
    if compression == "gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=stream, mode="rb"))
    if compression == "bz2":
        return cast(BinaryIO, bz2.BZ2File(stream))
    if compression == "xz":
        return cast(BinaryIO, lzma.LZMAFile(stream))
    reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True, closefd=False)
    return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, reader), 2**20))


class _Rejoined(io.RawIOBase):
    """A stream whose first bytes were taken off, whole again."""

    def __init__(self, head: bytes, rest: io.BufferedReader) -> None:
        super().__init__()
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        data = self._head or self._rest.read1(len(view))
        view[: len(data)] = data
        self._head = b""
        return len(data)


def compressor(sink: ByteSink, compression: str) -> BinaryIO:
    """Wrap a sink so that what is written arrives compressed; the same bytes in give the same bytes out."""
    target = cast(BinaryIO, sink)
    if compression == "gz":
        return cast(BinaryIO, gzip.GzipFile(filename="", fileobj=target, mode="wb", compresslevel=6, mtime=0))
    if compression == "bz2":
        return cast(BinaryIO, bz2.BZ2File(target, "wb"))
    if compression == "xz":
        return cast(BinaryIO, lzma.LZMAFile(target, "wb"))
    if compression == "zst":
        return cast(BinaryIO, zstandard.ZstdCompressor().stream_writer(target, closefd=False))
    raise PlanError(f"there is no compression {compression!r}; known are gz, bz2, xz and zst")
