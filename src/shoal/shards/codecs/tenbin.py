"""Tenbin: a list of arrays as aligned chunks, for files (``.ten``) and for the wire.

An array is two chunks: a header (dtype, a name of at most 8 characters, shape, all in words of 8 bytes) and its raw
data. In a file a chunk is the magic ``~TenBin~``, the payload's length, the payload, and zeros up to a multiple of 64
bytes of payload. Everything is little-endian.
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

__all__ = ["TenbinCodec", "decode_header", "dumps", "encode_header", "loads"]

_MAGIC = b"~TenBin~"
_PREFIX = struct.Struct("<8sq")
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
    parts: list[bytes] = []
    for array, name in zip(arrays, names, strict=True):
        parts += _chunk(encode_header(array, name))
        parts += _chunk(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return b"".join(parts)


def loads(data: bytes) -> list[NDArray[Any]]:
    """Read arrays from chunks, as read-only views of the bytes.

    >>> loads(dumps([np.array([1, 2], "u1")]))[0].flags.writeable
    False
    """
    payloads = list(_payloads(memoryview(data)))
    if len(payloads) % 2:
        raise DecodeError("a tenbin header is not followed by its data")
    return [_array(header, raw) for header, raw in zip(payloads[::2], payloads[1::2], strict=True)]


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
    label = name.encode("ascii")
    if len(label) > 8 or b"\0" in label:
        raise EncodeError(f"the tenbin name {name!r} must be at most 8 ASCII characters")
    return struct.pack(f"<8s8s{array.ndim + 1}q", code, label, array.ndim, *array.shape)


def decode_header(payload: Data) -> tuple[np.dtype[Any], str, tuple[int, ...]]:
    """Read what `encode_header` wrote: dtype, name, shape.

    >>> decode_header(encode_header(np.zeros((2, 3), "f4"), "data"))
    (dtype('float32'), 'data', (2, 3))
    """
    code, label, ndim = struct.unpack_from("<8s8sq", payload)
    dtype = _DTYPES.get(code.rstrip(b"\0"))
    if dtype is None:
        raise DecodeError(f"the tenbin dtype {code!r} is not one of {' '.join(_CODES)}")
    if not 0 <= ndim <= _MAX_DIMS or len(payload) != 24 + 8 * ndim:
        raise DecodeError(f"a tenbin header of {len(payload)} bytes says {ndim} dimensions")
    shape = struct.unpack_from(f"<{ndim}q", payload, 24)
    if any(size < 0 for size in shape):
        raise DecodeError(f"a tenbin header says the shape {shape}")
    return dtype, label.rstrip(b"\0").decode("ascii"), shape


def _chunk(payload: bytes) -> tuple[bytes, bytes, bytes]:
    return _PREFIX.pack(_MAGIC, len(payload)), payload, bytes(-len(payload) % _ALIGN)


def _payloads(data: memoryview) -> Iterator[memoryview]:
    position = 0
    while position < len(data):
        if len(data) - position < _PREFIX.size:
            raise DecodeError(f"a tenbin chunk ends within its prefix at byte {position}")
        magic, length = _PREFIX.unpack_from(data, position)
        begin = position + _PREFIX.size
        position = begin + length + -length % _ALIGN
        if magic != _MAGIC or length < 0 or position > len(data):
            raise DecodeError(f"byte {begin - _PREFIX.size}: {magic!r} and a length of {length} are no tenbin chunk")
        yield data[begin : begin + length]


def _array(header: memoryview, raw: memoryview) -> NDArray[Any]:
    dtype, _, shape = decode_header(header)
    if dtype.itemsize * math.prod(shape) != len(raw):
        raise DecodeError(f"the tenbin header says {dtype} {shape}, but its data is {len(raw)} bytes")
    array: NDArray[Any] = np.ndarray(shape, dtype, raw)
    return array
