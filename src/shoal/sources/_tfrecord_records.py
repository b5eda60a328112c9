"""Records of TFRecord files: their lengths, their bytes and the checksums of both, and nothing of what they mean.

A record is its length (8 bytes), a checksum of that (4), its bytes, and a checksum of these (4). The checksums are
CRC-32C, turned by 15 bits and moved by a constant, so that a record may hold records. Whole files may be compressed by
gzip or zlib, which their first bytes tell.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal._optional import require
from shoal.errors import CorruptShardError, ShardError, TruncatedShardError
from shoal.files import display, open_read

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = [
    "HEAD_BYTES",
    "Read",
    "Record",
    "checksums",
    "compression_of",
    "open_records",
    "read_records",
    "reader_of",
    "record_offsets",
]

#: Gives as many of the bytes that follow as it is told, or what is left of them.
Read: TypeAlias = "Callable[[int], bytes]"

#: What a record begins with, and what tells whether a file is compressed.
HEAD_BYTES = 12
_FOOT = 4
_LENGTH = struct.Struct("<QI")
_MASK = 0xA282EAD8
#: A length may be any number; bytes that are not there take no memory if they are asked for in pieces.
_PIECE = 64 * 2**20
_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile)


class Record(NamedTuple):
    """The bytes of a record, and where it is: behind how many bytes, decompressed, and how many records."""

    offset: int
    number: int
    data: bytes

    @property
    def stop(self) -> int:
        """The place behind it."""
        return self.offset + HEAD_BYTES + len(self.data) + _FOOT


def compression_of(head: bytes) -> str | None:
    """Tell by its first twelve bytes whether a file is compressed.

    >>> compression_of(gzip.compress(b"")), compression_of(zlib.compress(b"")), compression_of(bytes(12))
    ('gz', 'zlib', None)
    """
    if len(head) >= HEAD_BYTES and _length_of(head) is not None:
        return None
    if head.startswith(b"\x1f\x8b\x08"):
        return "gz"
    return "zlib" if len(head) > 1 and head[0] == 0x78 and int.from_bytes(head[:2], "big") % 31 == 0 else None


@contextmanager
def open_records(url: str, offset: int = 0) -> Iterator[Read]:
    """Open a file as the plain bytes of its records, from one of them on; a compressed file is read from its start.

    >>> import pathlib, tempfile
    >>> from shoal.sources import pack_record
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.tfrecord")
    >>> _ = path.write_bytes(pack_record(b"one"))
    >>> with open_records(str(path)) as read:
    ...     len(read(1000))
    19
    """
    with open_read(url, offset=offset) as stream:
        compression = None if offset else compression_of(_head(stream, url))
        if compression == "gz":
            yield gzip.GzipFile(fileobj=stream, mode="rb").read
        else:
            yield stream.read if compression is None else io.BufferedReader(_Inflated(stream), 2**18).read


def _head(stream: io.BufferedReader, url: str) -> bytes:
    head = stream.peek(HEAD_BYTES)[:HEAD_BYTES]
    if len(head) < HEAD_BYTES:
        # A connection may bring its first bytes one by one, and a peek asks it only once.
        with open_read(url) as again:
            return again.read(HEAD_BYTES)
    return head


def read_records(read: Read, url: str, *, offset: int = 0, number: int = 0) -> Iterator[Record]:
    """Read records, the first of which has this offset and number, and check all of them.

    >>> data = bytes.fromhex("0300000000000000b099490e6f6e6501405508")
    >>> next(read_records(reader_of(data), "a.tfrecord"))
    Record(offset=0, number=0, data=b'one')
    """
    checksum = checksums()
    while head := _read(read, HEAD_BYTES, url, offset, number):
        length = _length_of(head) if len(head) == HEAD_BYTES else -1
        if length is None:
            raise _wrong_length(url, offset, number)
        data = _read(read, length, url, offset, number) if length >= 0 else b""
        foot = _read(read, _FOOT, url, offset, number) if len(data) == length else b""
        if len(foot) < _FOOT:
            raise _cut_off(url, offset, number)
        if checksum(data) != int.from_bytes(foot, "little"):
            text = f"the bytes of record {number} do not fit to their checksum"
            raise CorruptShardError(text, shard=display(url), offset=offset)
        record = Record(offset, number, data)
        yield record
        offset, number = record.stop, number + 1


def reader_of(data: memoryview | bytes, at: int = 0) -> Read:
    """Read bytes that are at hand, from a place on."""

    def read(size: int) -> bytes:
        nonlocal at
        piece = bytes(data[at : at + size])
        at += len(piece)
        return piece

    return read


def record_offsets(data: memoryview | bytes, url: str) -> NDArray[np.int64]:
    """Find where the records of a file begin, and at last where it ends, by their lengths alone."""
    places, size, at = [0], len(data), 0
    while at < size:
        length = _length_of(bytes(data[at : at + HEAD_BYTES])) if at + HEAD_BYTES <= size else -1
        if length is None:
            raise _wrong_length(url, at, len(places) - 1)
        if length < 0 or at + HEAD_BYTES + length + _FOOT > size:
            raise _cut_off(url, at, len(places) - 1)
        at += HEAD_BYTES + length + _FOOT
        places.append(at)
    return np.array(places, np.int64)


@cache
def checksums() -> Callable[[bytes], int]:
    """Give the function that makes the checksum of some bytes."""
    crc = require("google_crc32c", "the format TFRecord").value

    def checksum(data: bytes) -> int:
        plain: int = crc(data)
        return ((plain >> 15 | plain << 17) + _MASK) & 0xFFFFFFFF

    return checksum


def _length_of(head: bytes) -> int | None:
    """Give the length that a record begins with; None if it does not fit to its checksum."""
    length, found = _LENGTH.unpack(head[:HEAD_BYTES])
    return int(length) if checksums()(head[:8]) == found else None


def _read(read: Read, size: int, url: str, offset: int, number: int) -> bytes:
    try:
        if size <= _PIECE:
            return read(size)
        pieces: list[bytes] = []
        while size and (piece := read(min(size, _PIECE))):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)
    except _DAMAGE as error:
        kind = TruncatedShardError if isinstance(error, EOFError) else CorruptShardError
        text = f"it cannot be decompressed at record {number}: {error}"
        raise kind(text, shard=display(url), offset=offset) from error


def _wrong_length(url: str, offset: int, number: int) -> ShardError:
    text = f"the length of record {number} does not fit to its checksum"
    hint = "; is it a TFRecord file?" if number == 0 else ""
    return CorruptShardError(f"{text}{hint}", shard=display(url), offset=offset)


def _cut_off(url: str, offset: int, number: int) -> ShardError:
    text = f"record {number} is cut off: the file ends before it does"
    return TruncatedShardError(text, shard=display(url), offset=offset)


class _Inflated(io.RawIOBase):
    """The plain bytes of a stream that zlib compressed."""

    def __init__(self, stream: io.BufferedReader) -> None:
        super().__init__()
        self._stream, self._zlib = stream, zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        while not self._zlib.eof:
            data = self._zlib.decompress(self._zlib.unconsumed_tail or self._stream.read1(), len(view))
            if data:
                view[: len(data)] = data
                return len(data)
            if not self._zlib.unconsumed_tail and not self._zlib.eof and not self._stream.peek(1):
                raise EOFError("the compressed bytes end too early")
        return 0
