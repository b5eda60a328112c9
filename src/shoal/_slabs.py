"""Memory for batches that comes back when the last one who looks at it has gone.

Fresh memory for each batch costs a quarter of the speed of an image pipeline: the system has to clear every page. So
large arrays are lent out. The lender gives away a fresh exporter of the memory (a ctypes array over a map), and its
finalizer takes the memory back. A finalizer on the array itself would not do: numpy lets views of views refer to the
first array of the chain that owns or borrows memory, so the array a user got may go while a view of it lives on.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["ALIGNMENT", "Slabs", "aligned_empty", "whole_slab"]

ALIGNMENT = 64

#: Less than this is left to the allocator, which recycles it well enough.
_SMALLEST = 2**20


class Slabs:
    """Lends arrays, and lends their memory again when nobody refers to it any more.

    >>> slabs = Slabs()
    >>> first = slabs.empty((64, 3, 224, 224), np.dtype("f4"))
    >>> address, row = first.ctypes.data, first[7]
    >>> del first
    >>> slabs.empty((64, 3, 224, 224), np.dtype("f4")).ctypes.data == address  # somebody still has a row
    False
    >>> del row
    >>> slabs.empty((64, 3, 224, 224), np.dtype("f4")).ctypes.data == address
    True
    """

    def __init__(self, keep: int = 3) -> None:
        self._free: dict[int, deque[mmap.mmap]] = {}
        self._keep = keep

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Give an array of any contents, its memory at a multiple of 64 bytes at least."""
        size = math.prod(shape) * dtype.itemsize
        if size < _SMALLEST or dtype.hasobject:
            return aligned_empty(shape, dtype)
        size = _rounded(size)
        free = self._free.setdefault(size, deque(maxlen=self._keep))  # a full one drops the oldest
        try:
            memory = free.pop()
        except IndexError:
            memory = _mapped(size)
        exporter: Any = (ctypes.c_char * size).from_buffer(memory)
        weakref.finalize(exporter, free.append, memory).atexit = False
        return np.ndarray(shape, dtype, exporter)


def aligned_empty(shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Make an array of any contents whose memory begins at a multiple of 64 bytes.

    >>> aligned_empty((3, 5), np.dtype("f4")).ctypes.data % ALIGNMENT
    0
    """
    memory = np.empty(math.prod(shape) * dtype.itemsize + ALIGNMENT, np.uint8)
    return np.ndarray(shape, dtype, memory, -memory.ctypes.data % ALIGNMENT)


def whole_slab(rows: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    """Give the slab of which these are the rows, one after the other and all of them.

    >>> slab = Slabs().empty((4, 2**18), np.dtype("f4"))
    >>> whole_slab([slab[0], slab[1], slab[2], slab[3]]) is slab, whole_slab([slab[0], slab[2]]) is slab
    (True, False)
    """
    slab = rows[0].base
    lender: Any = getattr(slab, "base", None)
    if not isinstance(slab, np.ndarray) or not isinstance(lender, ctypes.Array):
        return None
    if slab.shape != (len(rows), *rows[0].shape) or slab.dtype != rows[0].dtype:
        return None
    first, stride, strides = slab.ctypes.data, slab.strides[0], slab.strides[1:]
    for number, row in enumerate(rows):
        here = row.base is slab and row.strides == strides and row.shape == slab.shape[1:] and row.dtype == slab.dtype
        if not here or row.ctypes.data != first + number * stride:
            return None
    return slab


def _rounded(size: int) -> int:
    """Round up to one of eight sizes for each power of two, so that batches of similar size share memory."""
    step = max(1 << (size.bit_length() - 4), mmap.PAGESIZE)
    return -(-size // step) * step


def _mapped(size: int) -> mmap.mmap:
    # Not in huge pages: on a machine whose memory is full of cached files, the system works long to find some.
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
