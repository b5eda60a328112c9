"""TurboJPEG 3 by ctypes: a rectangle of a JPEG, in full or at a fraction of its size, into memory that is there.

It is optional. The wheel ``turbojpeg`` carries the library as a file; its Python module is not used. Rows below the
rectangle are not decoded, and of those above it and of the columns beside it only what the format forces.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.shards.codecs._codec import Data

__all__ = ["Decoder", "Header", "decoder", "library"]

_DECOMPRESS, _RGB = 1, 0
_STOP_ON_WARNING, _SUBSAMPLING, _WIDTH, _HEIGHT, _PRECISION, _COLOURS, _LOSSLESS = 0, 4, 5, 6, 7, 8, 15
_CMYK, _YCCK = 3, 4
#: chroma subsampling, as TurboJPEG numbers it -> the width of a block of all colours, where a rectangle may begin
_BLOCK_WIDTH = {0: 8, 1: 16, 2: 16, 3: 8, 4: 8, 5: 32, 6: 8}
# Colours are interpolated between neighbours: with two more columns those at the edge come out as in a full decode.
_MARGIN = 2


class _Rectangle(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("x", "y", "w", "h")]


class _Fraction(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("num", "denom")]


class Header(NamedTuple):
    """What the header of a JPEG says."""

    width: int
    height: int
    block_width: int


class Library(NamedTuple):
    """The functions that are used. Quick ones keep the interpreter lock, which costs more to give back than they do."""

    init: Any
    destroy: Any
    read_header: Any
    decompress: Any
    set: Any
    get: Any
    set_scale: Any
    set_rectangle: Any


@lru_cache(maxsize=1)
def library() -> Library | None:
    """Load the library of the wheel, or else the system's if it is of version 3; None if there is neither."""
    for path in _candidates():
        try:
            return _bind(path)
        except (OSError, AttributeError):  # not there, or too old to have these functions
            continue
    return None


def _candidates() -> Iterator[str]:
    try:
        files = importlib.metadata.files("turbojpeg") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    yield from (str(file.locate()) for file in files if file.name.startswith("libturbojpeg"))
    yield "libturbojpeg.so.0"


def _bind(path: str) -> Library:
    slow, quick = ctypes.CDLL(path), ctypes.PyDLL(path)
    handle, number, size, pointer = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p

    def typed(function: Any, *arguments: Any, result: Any = number) -> Any:
        function.argtypes, function.restype = arguments, result
        return function

    return Library(
        init=typed(quick.tj3Init, number, result=handle),
        destroy=typed(quick.tj3Destroy, handle, result=None),
        read_header=typed(quick.tj3DecompressHeader, handle, pointer, size),
        decompress=typed(slow.tj3Decompress8, handle, pointer, size, pointer, number, number),
        set=typed(quick.tj3Set, handle, number, number),
        get=typed(quick.tj3Get, handle, number),
        set_scale=typed(quick.tj3SetScalingFactor, handle, _Fraction),
        set_rectangle=typed(quick.tj3SetCroppingRegion, handle, _Rectangle),
    )


class Decoder:
    """A decompressor for one picture. The exact transforms are used, as in ``_jpeg``."""

    def __init__(self, functions: Library, data: Data) -> None:
        self._functions = functions
        self._handle = functions.init(_DECOMPRESS)
        if not self._handle:
            raise MemoryError("TurboJPEG could not be started")
        functions.set(self._handle, _STOP_ON_WARNING, 1)
        self._data = np.frombuffer(data, np.uint8)
        self._place = self._data.ctypes.data, self._data.size

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._functions.destroy(self._handle)

    def header(self) -> Header | None:
        """Read the size; None where the file is for Pillow to judge: CMYK, 12 bits, lossless, odd sampling, damage."""
        if self._functions.read_header(self._handle, *self._place):
            return None
        get, handle = self._functions.get, self._handle
        block_width = _BLOCK_WIDTH.get(get(handle, _SUBSAMPLING))
        if block_width is None or get(handle, _COLOURS) in (_CMYK, _YCCK):
            return None
        if get(handle, _PRECISION) != 8 or get(handle, _LOSSLESS) == 1:
            return None
        return Header(get(handle, _WIDTH), get(handle, _HEIGHT), block_width)

    def read(self, header: Header, box: tuple[int, int, int, int], scale: int, memory: Any) -> NDArray[np.uint8] | None:
        """Decode the RGB pixels of a box (left, top, width, height, in pixels of the picture at 1/scale).

        ``memory(size)`` gives the bytes that they are put into. None if the decoder had anything to complain about.
        """
        left, top, width, height = box
        begin = max(0, left - _MARGIN)
        begin -= begin % max(1, header.block_width // scale)
        wide = min(-(-header.width // scale), left + width + _MARGIN) - begin
        functions, handle = self._functions, self._handle
        if scale > 1 and functions.set_scale(handle, _Fraction(1, scale)):
            return None
        if functions.set_rectangle(handle, _Rectangle(begin, top, wide, height)):
            return None
        pixels: NDArray[np.uint8] = memory(3 * wide * height).reshape(height, wide, 3)
        if functions.decompress(handle, *self._place, pixels.ctypes.data, 0, _RGB):
            return None
        return pixels[:, left - begin : left - begin + width]


def decoder(data: Data) -> Decoder | None:
    """Give a decoder for a picture; None without the library.

    Each picture gets its own: a used one keeps tables, and a damaged file that lacks some would be decoded with those
    of the picture before it, or spoil the next. Making one takes two microseconds.
    """
    functions = library()
    return None if functions is None else Decoder(functions, data)
