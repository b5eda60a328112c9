"""The message in a TFRecord: a ``tf.train.Example``, parsed from its bytes without TensorFlow or protobuf.

It is a map of names to lists of bytes, of float32 or of int64. As in every parser of the format, fields that nobody
knows are passed over, a name that comes again replaces what it had, and lists may be packed or not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from shoal.errors import CorruptShardError

__all__ = ["Values", "parse_example"]

#: What a feature holds; None if its list has no kind.
Values: TypeAlias = "list[bytes] | NDArray[np.float32] | NDArray[np.int64] | None"

T = TypeVar("T", np.float32, np.int64)

_VARINT, _FIXED64, _BYTES, _GROUP, _END_GROUP, _FIXED32 = range(6)
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
_LONGEST = 10
_MASK = 2**64 - 1
_FLOAT = np.dtype("<f4")


class _Field(NamedTuple):
    """A field of a message: its number, how it is written, and where its value lies."""

    number: int
    wire: int
    low: int
    high: int


def parse_example(data: bytes, names: Collection[str] | None = None) -> dict[str, Values]:
    r"""Parse an example; only the features with these names, if any are given. Names are in the order of the alphabet.

    >>> parse_example(b"\n\x0f\n\r\n\x03age\x12\x06\x1a\x04\n\x02\x03\x05")
    {'age': array([3, 5])}
    """
    places: dict[str, tuple[int, int]] = {}
    for example in _fields(data, 0, len(data)):
        if example[:2] == (1, _BYTES):
            for entry in _fields(data, example.low, example.high):
                if entry[:2] == (1, _BYTES):
                    name, place = _entry(data, entry)
                    places[name] = place
    return {name: _values(data, *places[name]) for name in sorted(places) if names is None or name in names}


def _entry(data: bytes, entry: _Field) -> tuple[str, tuple[int, int]]:
    """Read one name, and where its feature lies; either may be left out, as all that is empty."""
    name, place = b"", (entry.low, entry.low)
    for number, wire, low, high in _fields(data, entry.low, entry.high):
        if (number, wire) == (1, _BYTES):
            name = data[low:high]
        elif (number, wire) == (2, _BYTES):
            place = low, high
    try:
        return name.decode(), place
    except UnicodeDecodeError:
        raise CorruptShardError(f"the name of a feature is not UTF-8: {name[:40]!r}") from None


def _values(data: bytes, low: int, high: int) -> Values:
    kind = 0
    lists: list[tuple[int, int]] = []
    for number, wire, begin, end in _fields(data, low, high):
        if wire != _BYTES or number not in (_BYTES_LIST, _FLOAT_LIST, _INT64_LIST):
            continue
        # Of several kinds the last one counts; the same one again goes on.
        lists = [*lists, (begin, end)] if number == kind else [(begin, end)]
        kind = number
    items = [field for place in lists for field in _fields(data, *place) if field.number == 1]
    if kind == _BYTES_LIST:
        return [data[item.low : item.high] for item in items if item.wire == _BYTES]
    if kind == _FLOAT_LIST:
        return _joined([_floats(data, item) for item in items if item.wire in (_BYTES, _FIXED32)], np.float32)
    if kind == _INT64_LIST:
        return _joined([_integers(data, item) for item in items if item.wire in (_BYTES, _VARINT)], np.int64)
    return None


def _joined(arrays: list[NDArray[T]], kind: type[T]) -> NDArray[T]:
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.empty(0, kind)


def _floats(data: bytes, item: _Field) -> NDArray[np.float32]:
    if (item.high - item.low) % 4:
        raise CorruptShardError(f"{item.high - item.low} bytes are no row of numbers of 4")
    return np.frombuffer(data, _FLOAT, (item.high - item.low) // 4, item.low).astype(np.float32)


def _integers(data: bytes, item: _Field) -> NDArray[np.int64]:
    """Read numbers of one to ten bytes, of which the last one is below 128, all at once."""
    raw = np.frombuffer(data, np.uint8, item.high - item.low, item.low)
    if not len(raw):
        return np.empty(0, np.int64)
    ends = np.flatnonzero(raw < 128)
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise CorruptShardError("the last number of a list does not end")
    if len(ends) == len(raw):
        return raw.astype(np.int64)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if int(lengths.max()) > _LONGEST:
        raise CorruptShardError("a number of a list is longer than 64 bits")
    made = np.zeros(len(ends), np.uint64)
    for place in range(int(lengths.max())):
        longer = lengths > place
        made[longer] |= (raw[starts[longer] + place] & np.uint8(127)).astype(np.uint64) << np.uint64(7 * place)
    return made.view(np.int64)


def _fields(data: bytes, at: int, end: int) -> Iterator[_Field]:
    """Go through the fields of a message; groups, which are out of use, are passed over with all that is in them."""
    groups: list[int] = []
    while at < end:
        tag, at = _varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 2**29:
            raise CorruptShardError(f"there is no field with the number {number}")
        low, high = _extent(data, wire, at, end)
        if high > end:
            raise CorruptShardError(f"field {number} goes on {high - end} bytes behind the end of its message")
        at = high
        if wire == _GROUP:
            groups.append(number)
        elif wire == _END_GROUP:
            if not groups or groups.pop() != number:
                raise CorruptShardError(f"a group with the number {number} ends that did not begin")
        elif not groups:
            yield _Field(number, wire, low, high)
    if groups:
        raise CorruptShardError(f"a group with the number {groups[-1]} does not end")


def _extent(data: bytes, wire: int, at: int, end: int) -> tuple[int, int]:
    """Find where the value of a field lies."""
    if wire == _VARINT:
        return at, _varint(data, at, end)[1]
    if wire == _BYTES:
        length, low = _varint(data, at, end)
        return low, low + length
    if wire in (_GROUP, _END_GROUP):
        return at, at
    if wire in (_FIXED32, _FIXED64):
        return at, at + (4 if wire == _FIXED32 else 8)
    raise CorruptShardError(f"there is no way of writing with the number {wire}")


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at < end and data[at] < 128:  # most are: numbers of fields, short lengths
        return data[at], at + 1
    value = 0
    for place in range(min(_LONGEST, end - at)):
        byte = data[at + place]
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value & _MASK, at + place + 1
    raise CorruptShardError("a number does not end where it should")
