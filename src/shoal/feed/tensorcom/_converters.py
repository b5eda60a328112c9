"""Functions for the arrays of a message, by their places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from shoal._optional import is_tensor
from shoal.errors import PlanError, TensorcomError
from shoal.feed.tensorcom._torch import to_torch

__all__ = ["Functions", "functions", "to_numpy", "transformed"]

Function: TypeAlias = "Callable[[Any], Any] | None"
#: A function for all arrays, or a list of them, in which None leaves an array as it is; some have names.
Functions: TypeAlias = "Callable[[Any], Any] | str | Sequence[Callable[[Any], Any] | str | None] | None"


def functions(given: Functions, device: str | None = None) -> list[Function]:
    """Make a list of what was given, with functions in place of their names.

    >>> functions(None), functions("numpy") == [to_numpy], len(functions([abs, None, "numpy"]))
    ([], True, 3)
    """
    if given is None:
        return [] if device is None else [to_torch(device)]
    listed: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
    return [_named(each, device) if isinstance(each, str) else each for each in listed]


def transformed(arrays: Sequence[Any], chosen: Sequence[Function]) -> list[Any]:
    """Apply the first function to the first array, and so on; where they are fewer, they begin again.

    >>> transformed([1, 2, 3], [float, None])
    [1.0, 2, 3.0]
    """
    if len(chosen) > len(arrays):
        raise TensorcomError(f"there are {len(chosen)} functions for {len(arrays)} arrays; give at most one for each")
    if not chosen:
        return list(arrays)
    pairs = ((array, chosen[place % len(chosen)]) for place, array in enumerate(arrays))
    return [array if function is None else function(array) for array, function in pairs]


def to_numpy(value: Any) -> Any:
    """Make an array of a tensor; pictures with their colours first, alone or in a batch, get them last.

    >>> import torch
    >>> to_numpy(torch.zeros(2, 3, 4, 5)).shape, to_numpy("as it is")
    ((2, 4, 5, 3), 'as it is')
    """
    if not is_tensor(value):
        return value
    if value.ndim in (3, 4) and value.shape[-3] in (3, 4):
        value = value.movedim(-3, -1)
    return value.detach().cpu().numpy()


def _named(name: str, device: str | None) -> Callable[[Any], Any]:
    if name == "numpy":
        return to_numpy
    if name in ("torch", "torch_cuda"):
        return to_torch(device or ("cuda" if name == "torch_cuda" else "cpu"))
    raise PlanError(f"there is no converter {name!r}; known are 'torch', 'torch_cuda', 'numpy', and any function")
