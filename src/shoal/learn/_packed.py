"""Arrays in a file, in their order: numpy's own format, without objects, so that reading it runs no code."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from shoal.errors import StateError

__all__ = ["pack", "unpack"]

_NAMES = "__names__"


def pack(arrays: Sequence[NDArray[Any]], names: Sequence[str] | None = None) -> bytes:
    """Write arrays, which may have names.

    >>> [array.tolist() for array in unpack(pack([np.arange(3), np.ones(2)])).values()]
    [[0, 1, 2], [1.0, 1.0]]
    """
    names = [str(number) for number in range(len(arrays))] if names is None else names
    told = {"names": list(names), "types": [array.dtype.name for array in arrays]}
    plain = {f"a{number}": _plain(array) for number, array in enumerate(arrays)}
    buffer = io.BytesIO()
    np.savez(buffer, **{_NAMES: np.frombuffer(json.dumps(told).encode(), np.uint8)}, **plain)  # type: ignore[arg-type]
    return buffer.getvalue()


def unpack(data: bytes) -> dict[str, NDArray[Any]]:
    """Read arrays, by their names and in their order."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            told = json.loads(found[_NAMES].tobytes())
            kinds = zip(told["names"], told["types"], strict=True)
            return {name: found[f"a{number}"].view(_type(kind)) for number, (name, kind) in enumerate(kinds)}
    except (ValueError, KeyError, OSError, EOFError, BadZipFile) as error:
        raise StateError(f"these are not the arrays that were written: {error}") from error


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Take bytes of what numpy itself has no type for, such as bfloat16."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")


def _type(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
