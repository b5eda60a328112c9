"""Compressed tars: which compression a stream has, and streams that undo or apply it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from typing import BinaryIO, Protocol, cast

import zstandard

from shoal.errors import PlanError

__all__ = ["DAMAGE", "ByteSink", "compression_of_name", "compressor", "decompressed", "sniff"]

#: What the decompressors raise for bytes that are not theirs.
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError)

_MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}
_ENDINGS = {"gz": "gz", "tgz": "gz", "bz2": "bz2", "tbz2": "bz2", "xz": "xz", "txz": "xz", "zst": "zst", "tzst": "zst"}


class ByteSink(Protocol):
    """Anything bytes can be written to."""

    def write(self, data: bytes, /) -> object:
        """Write all of the bytes."""
        ...


def sniff(head: bytes) -> str | None:
    """Tell a stream's compression from its first six bytes; names lie.

    >>> sniff(gzip.compress(b"hello")), sniff(b"hello, world")
    ('gz', None)
    """
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


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
