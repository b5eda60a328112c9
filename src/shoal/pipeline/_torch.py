"""Batches as torch tensors."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from shoal._optional import require
from shoal.abc import Sample
from shoal.pipeline._memory import as_array, is_number

__all__ = ["Device", "stack", "to_torch"]


def stack(tensors: list[Any]) -> Any:
    """Stack tensors of one shape.

    >>> import torch
    >>> stack([torch.zeros(3), torch.ones(3)]).shape
    torch.Size([2, 3])
    """
    return require("torch", "a batch of tensors").stack(tensors)


def to_torch(batch: Sample) -> Sample:
    """Turn arrays of numbers into tensors that share their memory, also those in lists.

    Writing to a tensor writes to the array it came from. Read-only arrays are therefore copied, and so are those in
    another byte order or with negative strides, which torch does not have. Dates, text and whatever else torch has no
    type for stay as they are.

    >>> to_torch({"__key__": ["a", "b"], "x": np.zeros((2, 3)), "words": [np.zeros(1), np.zeros(4)]})["x"].shape
    torch.Size([2, 3])
    """
    torch = require("torch", 'to="torch"')
    return {name: _converted(torch, value) for name, value in batch.items()}


class Device:
    """Takes samples to a device of torch's, and back.

    >>> device = Device("cpu")
    >>> sample = device.there({"__key__": "a", "x": np.arange(3)})
    >>> type(sample["x"]).__name__, device.back({"y": sample["x"] * 2})["y"]
    ('Tensor', array([0, 2, 4]))
    """

    def __init__(self, name: Any) -> None:
        self._torch = require("torch", f"device={name}")
        self._device = self._torch.device(name)

    def there(self, sample: Sample) -> Sample:
        """Make tensors on the device of arrays and tensors."""
        return {name: self._moved(value) for name, value in to_torch(sample).items()}

    def back(self, sample: Sample) -> Sample:
        """Make arrays of tensors; those of types that numpy does not have stay tensors, without a device."""
        return {name: self._array(value) for name, value in sample.items()}

    def _moved(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._moved(each) for each in value]
        return value.to(self._device, non_blocking=True) if isinstance(value, self._torch.Tensor) else value

    def _array(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._array(each) for each in value]
        if not isinstance(value, self._torch.Tensor):
            return value
        here = value.detach().cpu()
        return here if here.dtype is self._torch.bfloat16 else here.numpy()


def _converted(torch: ModuleType, value: Any) -> Any:
    if isinstance(value, list):
        return [_tensor(torch, each) if isinstance(each, np.ndarray) else each for each in value]
    value = as_array(value, keep="torch")
    return _tensor(torch, value) if isinstance(value, np.ndarray) else value


def _tensor(torch: ModuleType, array: np.ndarray[Any, Any]) -> Any:
    if is_number(array.dtype):
        return torch.from_numpy(_shareable(array))
    small = _small_type(torch, array.dtype)
    if small is None:
        return array
    return torch.from_numpy(_shareable(array).view(f"u{array.itemsize}")).view(small)


def _small_type(torch: ModuleType, dtype: np.dtype[Any]) -> Any:
    """Find torch's own type for a bfloat16 or float8 of ``ml_dtypes``, which ``from_numpy`` does not know."""
    found = getattr(torch, dtype.name, None) if dtype.isbuiltin == 2 else None
    return found if isinstance(found, torch.dtype) and found.is_floating_point else None


def _shareable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Give an array that torch can share: itself, or a copy."""
    whole_steps = all(stride >= 0 and stride % array.itemsize == 0 for stride in array.strides)
    if array.flags.behaved and array.dtype.isnative and whole_steps:
        return array
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
