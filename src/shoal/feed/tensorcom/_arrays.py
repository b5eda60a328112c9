"""Lists of arrays as bytes: headers and data, as parts or as chunks of one buffer."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal.errors import DecodeError, EncodeError, TensorcomError
from shoal.shards.codecs import tenbin

__all__ = [
    "Buffer",
    "Infos",
    "checked",
    "decode_buffer",
    "decode_chunks",
    "decode_header",
    "decode_list",
    "encode_buffer",
    "encode_chunks",
    "encode_header",
    "encode_list",
    "flat",
    "roundup",
    "str64",
    "unstr64",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
Infos: TypeAlias = "bool | Sequence[str] | None"


def str64(text: str) -> int:
    """Give a text of at most 8 ASCII characters as a whole number.

    >>> unstr64(str64("hello"))
    'hello'
    """
    if len(text) > 8 or not text.isascii():
        raise TensorcomError(f"{text!r} is not at most 8 ASCII characters")
    return int(struct.unpack("<q", text.encode("ascii").ljust(8, b"\0"))[0])


def unstr64(number: int) -> str:
    """Give the text back that a number stands for.

    >>> unstr64(26478)
    'ng'
    """
    data = struct.pack("<q", number)
    if not data.isascii():
        raise DecodeError(f"{number} stands for {data!r}, which is no text")
    return data.decode("ascii").strip("\0")


def roundup(n: int, k: int = 64) -> int:
    """Give the next multiple of 64, or of another number.

    >>> roundup(1), roundup(64), roundup(0), roundup(9, 8)
    (64, 64, 0, 16)
    """
    return -(-n // k) * k


def encode_header(array: NDArray[Any], info: str = "") -> bytes:
    """Describe an array.

    >>> import numpy as np
    >>> decode_header(encode_header(np.zeros((12, 19), "f4"), "data"))
    ((12, 19), dtype('float32'), 'data')
    """
    with _asserted():
        return tenbin.encode_header(array, info)


def decode_header(header: Buffer) -> tuple[tuple[int, ...], np.dtype[Any], str]:
    """Read a description: shape, dtype and name.

    >>> import numpy as np
    >>> decode_header(encode_header(np.zeros(7, "u1")))
    ((7,), dtype('uint8'), '')
    """
    dtype, info, shape = tenbin.decode_header(flat(header))
    return shape, dtype, info


def encode_list(arrays: Sequence[NDArray[Any]], infos: Sequence[str] | None = None) -> list[Buffer]:
    """Give the headers and the data of arrays, by turns; data is a view where an array lies in order.

    >>> import numpy as np
    >>> [len(part) for part in encode_list([np.zeros(3, "f4"), np.zeros((2, 2), "u1")], ["x", "y"])]
    [32, 12, 40, 4]
    """
    names = [""] * len(arrays) if infos is None else infos
    if len(names) != len(arrays):
        raise TensorcomError(f"there are {len(arrays)} arrays, but the infos {list(names)}; give one for each")
    with _asserted():
        pairs = [tenbin.encode_array(array, name) for array, name in zip(arrays, names, strict=True)]
    return [part for pair in pairs for part in pair]


def decode_list(parts: Sequence[Buffer], infos: Infos = False) -> Any:
    """Give the arrays of headers and data, as views; with ``infos=True`` their names as well.

    Names that are given are compared, and others refused.

    >>> import numpy as np
    >>> decode_list(encode_list([np.array([7], "u1")], ["data"]), infos=True)
    ([array([7], dtype=uint8)], ['data'])
    >>> decode_list(encode_list([np.array([7], "u1")], ["data"]), infos=["date"])
    Traceback (most recent call last):
        ...
    shoal.errors.TensorcomError: the arrays are named ['data'], and not ['date']
    """
    if len(parts) % 2:
        raise DecodeError(f"{len(parts)} parts are no headers with their data, which come in pairs")
    views = [flat(part) for part in parts]
    pairs = [tenbin.decode_array(header, raw) for header, raw in zip(views[::2], views[1::2], strict=True)]
    return checked([array for array, _ in pairs], [name for _, name in pairs], infos)


def checked(arrays: list[NDArray[Any]], names: list[str], infos: Infos) -> Any:
    """Give arrays as they are wanted: alone, with their names, or only if these are the right ones."""
    if infos is None or infos is False:
        return arrays
    if infos is True:
        return arrays, names
    if names != list(infos):
        raise TensorcomError(f"the arrays are named {names}, and not {list(infos)}")
    return arrays


def encode_chunks(parts: Iterable[Buffer]) -> bytes:
    """Put parts into one, each with a prefix and padding.

    >>> encode_chunks([b"abc"])[:19]
    b'~TenBin~\\x03\\x00\\x00\\x00\\x00\\x00\\x00\\x00abc'
    """
    return b"".join(piece for part in parts for piece in tenbin.encode_chunk(flat(part)))


def decode_chunks(data: Buffer) -> list[memoryview]:
    """Take parts out of one, as views.

    >>> [bytes(part) for part in decode_chunks(encode_chunks([b"abc", b""]))]
    [b'abc', b'']
    """
    return list(tenbin.decode_chunks(flat(data)))


def encode_buffer(arrays: Sequence[NDArray[Any]], infos: Sequence[str] | None = None) -> bytes:
    """Give arrays as the bytes of a file, or of a message of a single part.

    >>> import numpy as np
    >>> len(encode_buffer([np.zeros(3, "f4")]))
    160
    """
    return encode_chunks(encode_list(arrays, infos))


def decode_buffer(data: Buffer, infos: Infos = False) -> Any:
    """Give the arrays in the bytes of a file, as read-only views.

    >>> import numpy as np
    >>> decode_buffer(encode_buffer([np.array([1, 2], "i4")]))
    [array([1, 2], dtype=int32)]
    """
    return decode_list([part.toreadonly() for part in decode_chunks(data)], infos)


def flat(part: Buffer) -> memoryview:
    """Give any buffer as bytes, one after the other."""
    view = memoryview(part)
    if view.ndim == 1 and view.format == "B":
        return view
    return view.cast("B") if view.nbytes else memoryview(b"")


@contextmanager
def _asserted() -> Iterator[None]:
    """Refuse as Tensorcom does what cannot be written."""
    try:
        yield
    except EncodeError as error:
        raise TensorcomError(str(error)) from None
