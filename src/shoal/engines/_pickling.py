"""How values are pickled on their way to another process: by name what has one there, by value what has not."""

from __future__ import annotations

import pickle
import types
from collections.abc import Callable
from typing import Any

import cloudpickle

from shoal._optional import require
from shoal.errors import PlanError

__all__ = ["Plain", "Thorough", "refusal", "shipped"]


def shipped(function: Callable[..., Any], name: str) -> bytes:
    """Pack a function, those of a script or notebook by value; one that cannot be packed is named.

    >>> len(shipped(len, "map(len)")) < 100
    True
    """
    try:
        packed: bytes = cloudpickle.dumps(function)
    except Exception as error:  # whatever the function refers to may refuse in its own way
        text = f"{name} cannot be sent to another process ({type(error).__name__}: {error}); "
        raise PlanError(text + 'mode="thread" can run it') from error
    return packed


class Plain(pickle.Pickler):
    """Pickles by name what has one in a module that the other process can import."""

    def reducer_override(self, value: Any) -> Any:
        """Refuse what is known in this process only."""
        reduced = _reduced(value)
        if reduced is None and _of_main(value):
            raise pickle.PicklingError(f"{value!r} is known by name in this process only")
        return NotImplemented if reduced is None else reduced


class Thorough(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles functions and classes of scripts and functions too, by value."""

    def reducer_override(self, value: Any) -> Any:
        """Find a way for everything."""
        reduced = _reduced(value)
        return super().reducer_override(value) if reduced is None else reduced


def refusal(value: Any, error: Exception) -> PlanError:
    """Say that a value cannot be pickled."""
    text = f"a {type(value).__name__} cannot be sent to another process ({type(error).__name__}: {error}); "
    return PlanError(text + 'keep such values out of samples, or use mode="thread"')


def _of_main(value: Any) -> bool:
    return isinstance(value, type | types.FunctionType) and value.__module__ == "__main__"


def _reduced(value: Any) -> Any:
    """Say how to make a value again for which pickle has no good way of its own; None for all others."""
    kind = type(value)
    if kind is memoryview:
        return _reduced_view(value)
    if kind.__module__ == "torch" and kind.__name__ == "Tensor" and _plain_tensor(value):
        return _tensor, (value.numpy(),)
    return None


def _reduced_view(view: memoryview) -> Any:
    if not view.nbytes:
        return memoryview, (b"" if view.readonly else bytearray(),)
    memoryview(bytes(view.itemsize)).cast(view.format)  # type: ignore[call-overload]  # or it could not be made again
    if not view.c_contiguous:
        laid_out = memoryview(view.tobytes() if view.readonly else bytearray(view.tobytes()))
        return _view, (pickle.PickleBuffer(laid_out), view.format, view.shape)
    return _view, (pickle.PickleBuffer(view), view.format, view.shape)


def _view(buffer: Any, form: str, shape: tuple[int, ...]) -> memoryview:
    flat = memoryview(buffer).cast("B")
    return flat if form == "B" and len(shape) == 1 else flat.cast(form, shape)  # type: ignore[call-overload]


def _plain_tensor(tensor: Any) -> bool:
    """Tell whether numpy can hold it: torch's own way of pickling copies a tensor several times."""
    if tensor.device.type != "cpu" or tensor.requires_grad or not tensor.is_contiguous():
        return False
    try:
        tensor.numpy()
    except (TypeError, RuntimeError):  # sparse, quantized, of a type that numpy lacks
        return False
    return True


def _tensor(array: Any) -> Any:
    return require("torch", "receiving tensors").from_numpy(array)
