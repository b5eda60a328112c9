"""Tensors as arrays, for the way to a process of another environment, and back; no bytes are copied here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["as_arrays", "as_tensors"]

_MARK = "shoal.tensor"
#: Types that stand for those which numpy does not have, by their bytes.
_STANDING = {1: torch.uint8, 2: torch.int16}


def as_arrays(values: Any) -> Any:
    """Make arrays of all tensors in lists, tuples and dicts; nothing else changes.

    >>> as_tensors(as_arrays([torch.ones(2, dtype=torch.bfloat16), "a"]))
    [tensor([1., 1.], dtype=torch.bfloat16), 'a']
    """
    if isinstance(values, torch.Tensor):
        plain = values.detach().cpu().resolve_conj().resolve_neg()
        try:
            return {_MARK: plain.numpy(), "type": ""}
        except TypeError:
            bits = plain.contiguous().view(_STANDING[plain.element_size()])
            return {_MARK: bits.numpy(), "type": str(plain.dtype).partition(".")[2]}
    if isinstance(values, Mapping):
        return {name: as_arrays(each) for name, each in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(map(as_arrays, values)) if type(values) in (list, tuple) else tuple(map(as_arrays, values))
    return values


def as_tensors(values: Any) -> Any:
    """Make tensors again of what were some."""
    if isinstance(values, dict):
        if _MARK not in values:
            return {name: as_tensors(each) for name, each in values.items()}
        tensor = torch.from_numpy(values[_MARK])
        return tensor.view(getattr(torch, values["type"])) if values["type"] else tensor
    return type(values)(map(as_tensors, values)) if isinstance(values, list | tuple) else values
