"""Tenbin: a list of arrays as aligned chunks, for files (``.ten``) and for the wire.

An array is two chunks: a header (dtype, a name of at most 8 characters, shape, all in words of 8 bytes) and its raw
data. In a file a chunk is the magic ``~TenBin~``, the payload's length, the payload, and zeros up to a multiple of 64
bytes of payload. Everything is little-endian. Words of a header behind the dimensions mean nothing here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.errors import DecodeError, EncodeError
from shoal.shards.codecs._codec import Data
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions

__all__ = [
    "PREFIX_SIZE",
    "TenbinCodec",
    "decode_array",
    "decode_chunks",
    "decode_header",
    "decode_prefix",
    "dumps",
    "encode_array",
    "encode_chunk",
    "encode_header",
    "header_size",
    "loads",
    "padding",
]

_MAGIC = b"~TenBin~"
_PREFIX = struct.Struct("<8sq")
#: Bytes of a chunk before its payload.
PREFIX_SIZE = _PREFIX.size
_HEAD = struct.Struct("<8s8sq")
_ALIGN = 64
_MAX_DIMS = 9
_CODES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
_DTYPES = {code.encode(): np.dtype(f"<{code}") for code in _CODES}
_NAMES = {dtype: code for code, dtype in _DTYPES.items()}


@dataclass(frozen=True, slots=True)
class TenbinCodec:
    """Read and write a list of numeric arrays.

    >>> data = TenbinCodec("ten").encode([np.arange(3, dtype="i4")], EncodeOptions())
    >>> TenbinCodec("ten").decode(data, DecodeOptions())
    [array([0, 1, 2], dtype=int32)]
    """

    extension: str
    kind = "a list of arrays (tenbin)"

    def decode(self, data: Data, options: DecodeOptions) -> list[NDArray[Any]]:
        """Give read-only arrays over one private copy of the bytes."""
        return loads(bytes(data))

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Write a list or tuple of arrays."""
        if not isinstance(value, list | tuple):
            raise EncodeError(f"tenbin holds a list of arrays, not {type(value).__name__}; pass [array] for one")
        return dumps([np.asarray(array) for array in value])


def dumps(arrays: Sequence[NDArray[Any]], names: Sequence[str] | None = None) -> bytes:
    """Write arrays as chunks, with a name for each if given.

    >>> len(dumps([np.zeros((2, 3), "f4")]))
    160
    """
    names = [""] * len(arrays) if names is None else names
    if len(names) != len(arrays):
        raise EncodeError(f"there are {len(arrays)} arrays but {len(names)} names")
    parts: list[Data] = []
    for array, name in zip(arrays, names, strict=True):
        for payload in encode_array(array, name):
            parts += encode_chunk(payload)
    return b"".join(parts)


def loads(data: bytes) -> list[NDArray[Any]]:
    """Read arrays from chunks, as read-only views of the bytes.

    >>> loads(dumps([np.array([1, 2], "u1")]))[0].flags.writeable
    False
    """
    payloads = list(decode_chunks(data))
    if len(payloads) % 2:
        raise DecodeError("a tenbin header is not followed by its data")
    return [decode_array(header, raw)[0] for header, raw in zip(payloads[::2], payloads[1::2], strict=True)]


def encode_array(array: NDArray[Any], name: str = "") -> tuple[bytes, memoryview]:
    """Give an array as its header and its raw data, which is a view where the array lies in order.

    >>> header, raw = encode_array(np.ones((2, 3), "u1"), "mask")
    >>> len(header), bytes(raw)
    (40, b'\\x01\\x01\\x01\\x01\\x01\\x01')
    """
    header = encode_header(array, name)
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return header, plain.reshape(-1).view(np.uint8).data


def decode_array(header: Data, raw: Data) -> tuple[NDArray[Any], str]:
    """Give the array that a header describes, as a view of its raw data, and its name.

    >>> decode_array(*encode_array(np.array([1, 2], "i4"), "pair"))
    (array([1, 2], dtype=int32), 'pair')
    """
    dtype, name, shape = decode_header(header)
    if dtype.itemsize * math.prod(shape) != len(raw):
        raise DecodeError(f"the tenbin header says {dtype} {shape}, but its data is {len(raw)} bytes")
    try:
        return np.ndarray(shape, dtype, raw), name
    except ValueError as error:  # 2**62 rows of nothing
        raise DecodeError(f"the tenbin header says {dtype} {shape}: {error}") from None


def encode_header(array: NDArray[Any], name: str = "") -> bytes:
    """Describe an array: dtype, name, number of dimensions, dimensions.

    >>> encode_header(np.zeros((2, 3), "u1"), "mask")[:12]
    b'u1\\x00\\x00\\x00\\x00\\x00\\x00mask'
    """
    code = _NAMES.get(array.dtype.newbyteorder("<"))
    if code is None:
        raise EncodeError(f"tenbin has no dtype {array.dtype}; it knows {' '.join(_CODES)}")
    if array.ndim > _MAX_DIMS:
        raise EncodeError(f"tenbin holds arrays of at most {_MAX_DIMS} dimensions, not {array.ndim}")
    if len(name) > 8 or not name.isascii() or "\0" in name:
        raise EncodeError(f"the tenbin name {name!r} must be at most 8 ASCII characters")
    return struct.pack(f"<8s8s{array.ndim + 1}q", code, name.encode("ascii"), array.ndim, *array.shape)


def decode_header(payload: Data) -> tuple[np.dtype[Any], str, tuple[int, ...]]:
    """Read what `encode_header` wrote: dtype, name, shape.

    >>> decode_header(encode_header(np.zeros((2, 3), "f4"), "data"))
    (dtype('float32'), 'data', (2, 3))
    """
    if len(payload) < _HEAD.size or len(payload) % 8:
        raise DecodeError(f"a tenbin header has at least 3 words of 8 bytes; this one has {len(payload)} bytes")
    code, label, ndim = _HEAD.unpack_from(payload)
    dtype = _DTYPES.get(code.rstrip(b"\0"))
    if dtype is None:
        raise DecodeError(f"the tenbin dtype {code!r} is not one of {' '.join(_CODES)}")
    if not 0 <= ndim <= _MAX_DIMS or len(payload) < header_size(ndim):
        raise DecodeError(f"a tenbin header of {len(payload)} bytes says {ndim} dimensions")
    shape = struct.unpack_from(f"<{ndim}q", payload, _HEAD.size)
    if any(size < 0 for size in shape):
        raise DecodeError(f"a tenbin header says the shape {shape}")
    if not label.isascii():
        raise DecodeError(f"the tenbin name {label!r} is not ASCII")
    return dtype, label.rstrip(b"\0").decode("ascii"), shape


def header_size(dimensions: int) -> int:
    """Count the bytes that describe an array of so many dimensions.

    >>> header_size(2) == len(encode_header(np.zeros((2, 3))))
    True
    """
    return _HEAD.size + 8 * dimensions


def encode_chunk(payload: Data) -> tuple[bytes, Data, bytes]:
    """Give what a chunk is made of: its prefix, its payload, and the zeros behind.

    >>> [len(part) for part in encode_chunk(bytes(40))]
    [16, 40, 24]
    """
    return _PREFIX.pack(_MAGIC, len(payload)), payload, bytes(padding(len(payload)))


def decode_chunks(data: Data) -> Iterator[memoryview]:
    """Give the payloads of chunks that follow one another.

    >>> [bytes(payload) for payload in decode_chunks(b"".join(encode_chunk(b"abc")))]
    [b'abc']
    """
    data, position = memoryview(data), 0
    while position < len(data):
        length = decode_prefix(data[position : position + PREFIX_SIZE], position)
        begin = position + PREFIX_SIZE
        position = begin + length + padding(length)
        if position > len(data):
            raise DecodeError(f"byte {begin - PREFIX_SIZE}: a tenbin chunk of {length} bytes is cut off")
        yield data[begin : begin + length]


def decode_prefix(prefix: Data, position: int = 0) -> int:
    """Give the length of the payload that follows; the position is told if there is none.

    >>> decode_prefix(encode_chunk(b"abc")[0])
    3
    """
    if len(prefix) < PREFIX_SIZE:
        raise DecodeError(f"byte {position}: a tenbin chunk ends within its prefix")
    magic, length = _PREFIX.unpack(prefix)
    if magic != _MAGIC or length < 0:
        raise DecodeError(f"byte {position}: {magic!r} and a length of {length} are no tenbin chunk")
    return int(length)


def padding(length: int) -> int:
    """Count the zeros behind a payload of so many bytes.

    >>> padding(40), padding(64), padding(0)
    (24, 0, 0)
    """
    return -length % _ALIGN
