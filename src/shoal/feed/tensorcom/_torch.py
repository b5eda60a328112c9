"""Arrays of messages as tensors of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shoal._optional import require
from shoal.errors import PlanError

__all__ = ["to_torch"]


def to_torch(device: str = "cpu") -> Callable[[Any], Any]:
    """Make a function that makes tensors of arrays: floats of 32 bits, integers of 64, bytes as they are.

    Pictures with their colours last, alone or in a batch, get them first.

    >>> to_torch()(np.zeros((2, 4, 5, 3), np.uint8)).shape
    torch.Size([2, 3, 4, 5])
    """
    torch: Any = require("torch", "converting to tensors")
    if str(device).startswith("cuda") and not torch.cuda.is_available():
        raise PlanError(f'tensors on {device!r} need a GPU, and torch finds none here; converters="torch" needs none')

    def convert(value: Any) -> Any:
        return torch.from_numpy(_arranged(value)).to(device) if isinstance(value, np.ndarray) else value

    return convert


def _arranged(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype in (np.float16, np.float64):
        array = array.astype(np.float32)
    elif array.dtype in (np.int16, np.uint16, np.int32):
        array = array.astype(np.int64)
    if not array.flags.writeable:  # torch has no tensors that cannot be written to
        array = array.copy()
    if array.ndim in (3, 4) and array.shape[-1] in (3, 4):
        array = np.moveaxis(array, -1, -3)
    return array
