"""Files that TensorBoard reads: records of scalars."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from shoal.sources import open_records, pack_record, read_records

__all__ = ["EventWriter", "curves_of", "read_scalars"]

_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")


class EventWriter:
    """Writes scalars into a new file of a folder.

    >>> import tempfile
    >>> from contextlib import closing
    >>> folder = tempfile.mkdtemp()
    >>> with closing(EventWriter(folder)) as events:
    ...     events.add("Loss", 1, 0.5)
    >>> read_scalars(folder, "Loss")
    [(1, 0.5)]
    """

    def __init__(self, folder: str | Path) -> None:
        os.makedirs(folder, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"
        self._file: BinaryIO = open(Path(folder) / name, "xb", buffering=0)  # noqa: SIM115 - until it is closed
        self._write(_text(3, b"brain.Event:2"))

    def add(self, tag: str, step: int, value: float) -> None:
        """Write a number."""
        scalar = _text(1, tag.encode()) + b"\x15" + _FLOAT.pack(value)
        self._write(b"\x10" + _varint(step) + _text(5, _text(1, scalar)))

    def close(self) -> None:
        """End the file."""
        self._file.close()

    def _write(self, event: bytes) -> None:
        self._file.write(pack_record(b"\x09" + _DOUBLE.pack(time.time()) + event))


def read_scalars(folder: str | Path, tag: str) -> list[tuple[int, float]]:
    """Read the numbers of a tag from all files of a folder, by their steps."""
    return sorted(curves_of(folder).get(tag, []))


def curves_of(folder: str | Path) -> dict[str, list[tuple[int, float]]]:
    """Read the curves in the event files of a folder: for each tag its steps and numbers, by their steps.

    >>> import tempfile
    >>> from contextlib import closing
    >>> folder = tempfile.mkdtemp()
    >>> with closing(EventWriter(folder)) as events:
    ...     events.add("Loss", 2, 0.25)
    ...     events.add("Loss", 1, 0.5)
    >>> curves_of(folder)
    {'Loss': [(1, 0.5), (2, 0.25)]}
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(Path(folder).glob("events.out.tfevents.*")):
        with open_records(str(path)) as read, suppress(EOFError):  # which may be being written
            for record in read_records(read, str(path)):
                for tag, step, value in _scalars(bytes(record.data)):
                    found.setdefault(tag, []).append((step, value))
    return {tag: sorted(points) for tag, points in found.items()}


def _scalars(event: bytes) -> Iterator[tuple[str, int, float]]:
    fields = dict(_fields(event))
    step = fields.get(2, 0)
    for number, summary in _fields(event):
        if number == 5:
            for inner, value in _fields(summary):
                parts = dict(_fields(value)) if inner == 1 else {}
                if 1 in parts and 2 in parts:
                    yield parts[1].decode(), int(step), _FLOAT.unpack(parts[2])[0]


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Take a message apart: the number of each field, and its value or bytes."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        match key & 7:
            case 0:
                value, at = _read_varint(message, at)
                yield key >> 3, value
            case 1:
                yield key >> 3, message[at : at + 8]
                at += 8
            case 2:
                size, at = _read_varint(message, at)
                yield key >> 3, message[at : at + size]
                at += size
            case _:
                yield key >> 3, message[at : at + 4]
                at += 4


def _text(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at
