"""Keep freed memory for the next sample, instead of giving it back to the system each time.

glibc returns the end of the heap to the system as soon as 128 KiB of it are free. A program that reads sample after
sample of about that size then pays for fresh pages with every one of them: reading is five times slower than the copy
itself. Whether it happens is luck: any small object that lies behind the samples prevents it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from shoal import settings

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of mallopt(3)
_LARGEST_MMAP_THRESHOLD = 32 * 2**20


def keep_freed_memory() -> None:
    """Let this process keep as much freed memory as the setting ``keep_freed`` says; 0 leaves the C library alone.

    >>> keep_freed_memory()
    """
    size = settings.current().keep_freed
    library = _c_library()
    if size and library is not None:
        library.mallopt(_TRIM_THRESHOLD, min(size, 2**31 - 1))
        library.mallopt(_MMAP_THRESHOLD, min(size, _LARGEST_MMAP_THRESHOLD))


@cache
def _c_library() -> Any:
    """Give the C library of this process if it is one that can be told."""
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "gnu_get_libc_version") else None
