"""Arrays laid out so that other libraries can take them as they are.

TensorFlow and JAX share memory with numpy only where it begins at a multiple of 64 bytes, which numpy's own allocations
rarely do; TensorFlow even ends the process over shared memory that does not. So batches are stacked into memory that
begins there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from shoal._optional import tensor_library
from shoal._slabs import ALIGNMENT, aligned_empty

__all__ = ["Memory", "as_array", "is_aligned", "is_number", "is_ragged", "joined", "native", "widened"]

#: Gives memory for an array of a shape and type; None for `aligned_empty`.
Memory: TypeAlias = "Callable[[Sequence[int], np.dtype[Any]], np.ndarray[Any, Any]] | None"

#: The types that every framework has: bool, whole numbers, float16 to float64, complex64 and complex128.
_NUMBERS = frozenset("?bBhHiIlLqQefdFD")


def is_aligned(array: np.ndarray[Any, Any]) -> bool:
    """Tell whether an array's memory begins where TensorFlow and JAX can share it."""
    return array.ctypes.data % ALIGNMENT == 0


def joined(arrays: Sequence[np.ndarray[Any, Any]], memory: Memory = None) -> np.ndarray[Any, Any]:
    """Join arrays of one type along their first dimension, in aligned memory and native byte order.

    >>> joined([np.zeros((2, 3)), np.zeros((1, 3))]).shape
    (3, 3)
    """
    first = arrays[0]
    shape = (sum(map(len, arrays)), *first.shape[1:])
    return np.concatenate(arrays, out=(memory or aligned_empty)(shape, _native(first.dtype)))


def native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Give an array in rows without gaps and in native byte order: itself, if it is so already.

    >>> native(np.array([1, 2], ">i2")[::-1])
    array([2, 1], dtype=int16)
    """
    return np.asarray(array, dtype=_native(array.dtype), order="C")


def is_number(dtype: np.dtype[Any]) -> bool:
    """Tell whether arrays of this type hold booleans or numbers that every framework knows.

    >>> [is_number(np.dtype(name)) for name in ("bool", "u2", "c8", "longdouble", "M8[s]", "U3")]
    [True, True, True, False, False, False]
    """
    return dtype.char in _NUMBERS


def is_ragged(values: Sequence[Any]) -> bool:
    """Tell whether values are arrays of one type that differ at most in their first dimension.

    >>> is_ragged([np.zeros((2, 3)), np.zeros((1, 3))]), is_ragged([np.zeros(2), None])
    (True, False)
    """
    first = values[0]
    if not isinstance(first, np.ndarray) or first.ndim == 0 or first.dtype.hasobject:
        return False
    row, dtype = first.shape[1:], first.dtype
    return all(isinstance(v, np.ndarray) and v.ndim and v.shape[1:] == row and v.dtype == dtype for v in values)


def widened(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Give the small numbers of ``ml_dtypes`` (bfloat16, float8, int4) a type of numpy's that holds them exactly.

    >>> widened(np.zeros(2, "i4")).dtype
    dtype('int32')
    """
    if array.dtype.type.__module__.partition(".")[0] != "ml_dtypes":
        return array
    name = array.dtype.name
    return array.astype(np.int8 if name.startswith("int") else np.uint8 if name.startswith("uint") else np.float32)


def as_array(value: Any, keep: str | None = None) -> Any:
    """Make an array of another framework's tensor; give back everything else, and those of ``keep``, as it is."""
    library = tensor_library(value)
    return value if library is None or library == keep else np.asarray(value)


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.isnative else dtype.newbyteorder("=")
