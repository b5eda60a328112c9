"""The bytes of TFRecord files: examples out of values, records out of examples."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.errors import EncodeError
from shoal.sources._tfrecord_records import checksums

__all__ = ["pack_example", "pack_record"]

#: What a field of a message begins with: its number, and that its bytes follow their length.
_FIRST, _SECOND, _THIRD = b"\x0a", b"\x12", b"\x1a"
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")


def pack_record(data: bytes) -> bytes:
    """Put a length and checksums around some bytes.

    >>> pack_record(b"one").hex()
    '0300000000000000b099490e6f6e6501405508'
    """
    checksum, length = checksums(), _LENGTH.pack(len(data))
    return b"".join([length, _CHECKSUM.pack(checksum(length)), data, _CHECKSUM.pack(checksum(data))])


def pack_example(features: Mapping[str, Any]) -> bytes:
    r"""Write a ``tf.train.Example``: bytes, text, numbers, and lists or arrays of one of these.

    Whole numbers become int64 and others float32, all that the format has; text becomes UTF-8, and arrays lose their
    shape. Equal features make equal bytes.

    >>> pack_example({"age": [3, 5]})
    b'\n\x0f\n\r\n\x03age\x12\x06\x1a\x04\n\x02\x03\x05'
    """
    entries = b"".join(_framed(_FIRST, _entry(name, features[name])) for name in sorted(features))
    return _framed(_FIRST, entries)


def _entry(name: str, value: Any) -> bytes:
    return _framed(_FIRST, name.encode()) + _framed(_SECOND, _feature(name, value))


def _feature(name: str, value: Any) -> bytes:
    values = value if isinstance(value, list | tuple | np.ndarray) else [value]
    if len(values) and all(isinstance(each, bytes | str) for each in values):
        texts = (each.encode() if isinstance(each, str) else bytes(each) for each in values)
        return _framed(_FIRST, b"".join(_framed(_FIRST, text) for text in texts))
    numbers = _numbers(name, values)
    if numbers.dtype.kind == "f":
        return _framed(_SECOND, _framed(_FIRST, numbers.astype("<f4").tobytes()))
    return _framed(_THIRD, _framed(_FIRST, _varints(numbers)))


def _numbers(name: str, values: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    try:
        numbers = np.asarray(values).ravel()
    except ValueError:
        numbers = np.empty(0, object)
    if numbers.dtype.kind not in "biuf" or (numbers.dtype == np.uint64 and len(numbers) and numbers.max() >= 2**63):
        kind = type(values[0]).__name__ if len(values) else "nothing"
        text = f"{len(values)} values of type {kind} are no feature of an example"
        raise EncodeError(f"{text}, which holds bytes, text, or numbers up to 64 bits", field=name)
    return numbers if numbers.dtype.kind == "f" else numbers.astype(np.int64)


def _varints(numbers: NDArray[np.int64]) -> bytes:
    """Write numbers seven bits at a time, the lowest first; those below zero take ten bytes."""
    small = numbers.view(np.uint64)
    if len(small) and int(small.max()) < 128:
        return small.astype(np.uint8).tobytes()
    return b"".join(bytes(_septets(int(number))) for number in small)


def _septets(number: int) -> Iterator[int]:
    while number > 127:
        yield number & 127 | 128
        number >>= 7
    yield number


def _framed(tag: bytes, data: bytes) -> bytes:
    return b"".join([tag, bytes(_septets(len(data))), data])
