"""The lengths and sizes of the record batches of an Arrow file, without reading the batches.

pyarrow tells a batch's length after it has read all of it. The footer says where the batches are, and a few bytes at
the head of each say how many rows it has; both are flatbuffers (format/File.fbs and Message.fbs of Apache Arrow).
"""

from __future__ import annotations

import struct
from typing import Any

from shoal.errors import CorruptShardError
from shoal.files import display

__all__ = ["batch_extents"]

_TAIL = struct.Struct("<i6s")
#: Where a message is, how long its head and its body are.
_BLOCK = struct.Struct("<qi4xq")

# The numbers of fields in their tables, and of a kind of message.
_FOOTER_BATCHES = 3
_MESSAGE_KIND, _MESSAGE_HEADER = 1, 2
_BATCH_LENGTH = 0
_RECORD_BATCH = 3


def batch_extents(source: Any, url: str) -> list[tuple[int, int]]:
    """Count the rows and the bytes of each batch; ``source`` is a file of pyarrow.

    >>> import io, pyarrow as pa
    >>> sink, table = pa.BufferOutputStream(), pa.table({"n": range(5)})
    >>> with pa.ipc.new_file(sink, table.schema) as writer:
    ...     writer.write_table(table, max_chunksize=2)
    >>> [rows for rows, size in batch_extents(pa.BufferReader(sink.getvalue()), "a.arrow")]
    [2, 2, 1]
    """
    try:
        blocks = _blocks(source)
        lengths = [_batch_length(_read(source, head, offset)) for offset, head, _ in blocks]
    except struct.error as error:
        raise CorruptShardError(f"its footer is damaged: {error}", shard=display(url)) from error
    if any(length < 0 for length in lengths):
        raise CorruptShardError("a record batch has less than no rows", shard=display(url))
    return [(length, head + max(body, 0)) for length, (_, head, body) in zip(lengths, blocks, strict=True)]


def _blocks(source: Any) -> list[tuple[int, int, int]]:
    end = source.size() - _TAIL.size
    length, _ = _TAIL.unpack(_read(source, _TAIL.size, end))
    footer = _read(source, length, end - length)
    place = _field(footer, _root(footer, 0), _FOOTER_BATCHES)
    if place is None:
        return []
    vector = place + _number("<I", footer, place)
    count = _number("<I", footer, vector)
    return list(_BLOCK.iter_unpack(footer[vector + 4 : vector + 4 + count * _BLOCK.size]))


def _read(source: Any, length: int, offset: int) -> bytes:
    if offset < 0 or not 0 <= length <= source.size() - offset:
        raise struct.error(f"it names {length} bytes at {offset}, outside of the file")
    return bytes(source.read_at(length, offset))


def _batch_length(message: bytes) -> int:
    # Before Arrow 0.15 there was no mark before the length.
    begin = 8 if message.startswith(b"\xff\xff\xff\xff") else 4
    table = _root(message, begin)
    kind, header = _field(message, table, _MESSAGE_KIND), _field(message, table, _MESSAGE_HEADER)
    if kind is None or header is None or message[kind] != _RECORD_BATCH:
        raise struct.error("a message that should be a record batch is none")
    length = _field(message, header + _number("<I", message, header), _BATCH_LENGTH)
    return 0 if length is None else _number("<q", message, length)


def _root(buffer: bytes, begin: int) -> int:
    return begin + _number("<I", buffer, begin)


def _field(buffer: bytes, table: int, number: int) -> int | None:
    """Find a field of a table; None where it has the value that goes without saying."""
    layout = table - _number("<i", buffer, table)
    slot = 4 + 2 * number
    offset = _number("<H", buffer, layout + slot) if slot < _number("<H", buffer, layout) else 0
    return table + offset if offset else None


def _number(kind: str, buffer: bytes, place: int) -> int:
    if place < 0:
        raise struct.error("a place before the beginning")
    value: int = struct.unpack_from(kind, buffer, place)[0]
    return value
