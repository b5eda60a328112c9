"""A scheduler or a server of MXNet's kvstore. It is run by its place, in the environment of MXNet, and imports little.

This is what ``import mxnet`` does in a process with such a role; without all of MXNet it begins in a twentieth of the
time.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from typing import Any

__all__ = ["serve"]


def serve() -> None:
    """Be what the variables of this process say, until the last worker has taken leave."""
    spec = importlib.util.find_spec("mxnet")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("this environment has no mxnet")
    library = ctypes.CDLL(os.path.join(spec.submodule_search_locations[0], "libmxnet.so"))
    handle = ctypes.c_void_p()
    _check(library, library.MXKVStoreCreate(b"dist", ctypes.byref(handle)))
    _check(library, library.MXKVStoreRunServer(handle, _CONTROLLER(_told), None))
    _check(library, library.MXKVStoreFree(handle))


_CONTROLLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


def _told(number: int, text: bytes, nothing: Any) -> None:
    """Hear a command of a worker: there is none, for optimizers are with the workers."""


def _check(library: Any, code: int) -> None:
    if code:
        library.MXGetLastError.restype = ctypes.c_char_p
        raise RuntimeError(library.MXGetLastError().decode(errors="replace"))
