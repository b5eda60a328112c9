"""One NumPy array."""

from __future__ import annotations

import ast
import io
import math
import re
import struct
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.errors import DecodeError, EncodeError
from shoal.shards.codecs._codec import Data
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions
from shoal.shards.codecs._pickle import refuse_untrusted

__all__ = ["NpyCodec", "dump_array", "load_array"]

_MAGIC = b"\x93NUMPY"
# A header is a short dict; NumPy refuses longer ones too, since literal_eval is slow and deep on hostile text.
_MAX_HEADER = 10_000
_USUAL = re.compile(r"\{'descr': '([^'\\]*)', 'fortran_order': (True|False), 'shape': \(([0-9, ]{0,300})\), \}")
_PARSER = threading.Lock()


@dataclass(frozen=True, slots=True)
class NpyCodec:
    """Read and write an array with its dtype and shape; object arrays are read only where the data is trusted.

    >>> data = NpyCodec("npy").encode([[1.5, 2.5]], EncodeOptions())
    >>> NpyCodec("npy").decode(data, DecodeOptions())
    array([[1.5, 2.5]])
    """

    extension: str
    kind = "a NumPy array (npy)"

    def decode(self, data: Data, options: DecodeOptions) -> NDArray[Any]:
        """Copy the array out of the bytes; it can be written to."""
        return load_array(data, options)

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Write an array, or what NumPy makes an array of."""
        return dump_array(value)


def load_array(data: Data, options: DecodeOptions) -> NDArray[Any]:
    """Read an array; what its header claims is checked against the bytes there are before memory is taken."""
    dtype, fortran, shape, start = _header(data)
    if dtype.hasobject:
        refuse_untrusted("an array of objects", options)
        return np.asarray(np.load(io.BytesIO(data), allow_pickle=True))
    size = dtype.itemsize * math.prod(shape)
    if size != len(data) - start:
        raise DecodeError(
            f"the npy header says {dtype} {shape}, which is {size} bytes, but {len(data) - start} bytes follow it"
        )
    view: NDArray[Any] = np.ndarray(shape, dtype, data, start, order="F" if fortran else "C")
    return view.copy(order="K")


def dump_array(value: Any) -> bytes:
    """Write an array without pickling anything."""
    array = np.asanyarray(value)
    if array.dtype.hasobject:
        raise EncodeError("an array of objects would have to be pickled; give it a dtype, or use a pyd field")
    file = io.BytesIO()
    try:
        np.lib.format.write_array(file, array, version=(1, 0))
    except ValueError:  # a header too long, or field names outside latin1, need the newest version
        np.lib.format.write_array(file, array, version=(3, 0))
    return file.getvalue()


def _header(data: Data) -> tuple[np.dtype[Any], bool, tuple[int, ...], int]:
    magic, version = struct.unpack_from("<6sB", data)
    if magic != _MAGIC or not 1 <= version <= 3:
        raise ValueError("no npy magic of version 1 to 3")
    layout = "<H" if version == 1 else "<I"
    begin = 8 + struct.calcsize(layout)
    (length,) = struct.unpack_from(layout, data, 8)
    if length > min(_MAX_HEADER, len(data) - begin):
        raise ValueError(f"the header would be {length} bytes long")
    text = str(data[begin : begin + length], "utf-8" if version == 3 else "latin1")
    fields = _fields(text.strip())
    shape = tuple(fields["shape"])
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"the shape is {shape}")
    return np.lib.format.descr_to_dtype(fields["descr"]), bool(fields["fortran_order"]), shape, begin + length


def _fields(text: str) -> dict[str, Any]:
    """Read the dict of a header. numpy writes it in one way, but for types that have fields."""
    usual = _USUAL.fullmatch(text)
    if usual is not None:
        shape = tuple(int(size) for size in usual[3].split(",") if size.strip())
        return {"descr": usual[1], "fortran_order": usual[2] == "True", "shape": shape}
    # Python 3.11 counts how deep it is in a source once for all threads, and is confused when several are at it.
    with _PARSER:
        fields: dict[str, Any] = ast.literal_eval(text)
    return fields
