"""Batches as torch tensors, and devices of torch's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from textwrap import shorten
from types import ModuleType
from typing import Any

import numpy as np

from shoal._optional import require
from shoal.abc import Sample
from shoal.errors import MissingDeviceError
from shoal.pipeline._memory import as_array, is_number
from shoal.pipeline._torch_streams import Streams

__all__ = ["Device", "join", "stack", "to_torch"]


def stack(tensors: list[Any]) -> Any:
    """Stack tensors of one shape.

    >>> import torch
    >>> stack([torch.zeros(3), torch.ones(3)]).shape
    torch.Size([2, 3])
    """
    return require("torch", "a batch of tensors").stack(tensors)


def join(tensors: list[Any]) -> Any:
    """Join tensors along their first dimension.

    >>> import torch
    >>> join([torch.zeros(2, 3), torch.ones(1, 3)]).shape
    torch.Size([3, 3])
    """
    return require("torch", "a batch of tensors").cat(tensors)


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
    """A device of torch's, as stages use it: `shoal.abc.Device` says who calls what.

    Where it has streams, copies are made beside the computing, from pinned memory.

    >>> device = Device("cpu")
    >>> sample = device.ready(device.there({"__key__": "a", "x": np.arange(3)}))
    >>> type(sample["x"]).__name__, device.back(device.made({"y": sample["x"] * 2}))["y"]
    ('Tensor', array([0, 2, 4]))
    """

    def __init__(self, name: str, streams: Streams | None = None) -> None:
        self._torch = torch = require("torch", f"device={name!r}")
        self._device = _existing(torch, name)
        self.name = str(self._device)
        self._streams = streams or Streams.of(torch, self._device)
        self._pins = self._streams is not None and _can_pin(torch, self._device)

    def built(self, make: Callable[[], Any]) -> Any:
        """Build something there; what it made elsewhere is taken there, if it has a ``to`` as models have."""
        with self._device:
            built = make()
        return built.to(self._device) if hasattr(built, "to") else built

    def there(self, sample: Sample) -> Sample:
        """Make tensors on the device of arrays and tensors."""
        tensors = to_torch(sample)
        if self._streams is None:
            return self._each(tensors, lambda tensor: tensor.to(self._device))
        pinned = self._each(tensors, self._pinned)
        with self._streams.copying():
            moved = self._each(pinned, lambda tensor: tensor.to(self._device, non_blocking=True))
            return self._streams.copied(moved, pinned)

    def ready(self, sample: Sample) -> Sample:
        """Let what is computed next come after the copies."""
        return sample if self._streams is None else self._streams.arrive(sample, self._tensors(sample))

    def made(self, sample: Sample) -> Sample:
        """Note what has been computed."""
        return sample if self._streams is None else self._streams.computed(sample)

    def back(self, sample: Sample) -> Sample:
        """Make arrays of tensors; those of types that numpy does not have stay tensors, without a device."""
        with nullcontext() if self._streams is None else self._streams.returning(sample):
            return self._each(sample, _array)

    def stay(self, sample: Sample) -> Sample:
        """Wait until all is computed."""
        return sample if self._streams is None else self._streams.stay(sample, self._tensors(sample))

    def _each(self, sample: Sample, change: Callable[[Any], Any]) -> Sample:
        """Change the tensors of a sample, also those in lists."""
        return {name: self._changed(value, change) for name, value in sample.items()}

    def _changed(self, value: Any, change: Callable[[Any], Any]) -> Any:
        if isinstance(value, list):
            return [self._changed(each, change) for each in value]
        return change(value) if isinstance(value, self._torch.Tensor) else value

    def _tensors(self, sample: Sample) -> list[Any]:
        found: list[Any] = []
        self._each(sample, found.append)
        return found

    def _pinned(self, tensor: Any) -> Any:
        pins = self._pins and tensor.device.type == "cpu" and tensor.layout is self._torch.strided
        return tensor.pin_memory() if pins else tensor


def _array(tensor: Any) -> Any:
    """Give a tensor as an array; one of a type that numpy lacks stays a tensor."""
    here = tensor.detach().cpu()
    try:
        return here.numpy()
    except TypeError:
        return here


def _existing(torch: ModuleType, name: str) -> Any:
    """Find a device, with its number if there are several of its kind."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except Exception as error:  # each kind has its own way of not being there
        raise MissingDeviceError(f'device="{name}", and {_found(torch, name, error)}') from None
    library: Any = getattr(torch, device.type, None)
    numbered = device.index is None and device.type != "cpu" and hasattr(library, "current_device")
    return torch.device(device.type, library.current_device()) if numbered else device


def _found(torch: ModuleType, name: str, error: Exception) -> str:
    """Say which devices there are instead, and what to write."""
    kind, version = name.partition(":")[0], f"torch {torch.__version__}"
    count = getattr(getattr(torch, kind, None), "device_count", lambda: 0)()
    if count:
        names = [f'"{kind}:{number}"' for number in range(count)]
        return f"{version} finds {count} of its kind here: write {' or '.join(names)}"
    reason = shorten(str(error), 120, placeholder=" ...")
    return f'{version} finds none of its kind here ({reason}): write device="cpu", or run it where there is one'


def _can_pin(torch: ModuleType, device: Any) -> bool:
    """Tell whether torch pins memory for a device: that is for the kind of accelerator that it runs on."""
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:  # before torch 2.6
        return bool(device.type == "cuda")
    return bool(accelerator.is_available() and accelerator.current_accelerator().type == device.type)


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
