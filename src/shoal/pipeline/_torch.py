"""Batches as torch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal._optional import require
from shoal.abc import Sample

__all__ = ["stack", "to_torch"]


def stack(tensors: list[Any]) -> Any:
    """Stack tensors of one shape."""
    return require("torch", "a batch of tensors").stack(tensors)


def to_torch(batch: Sample) -> Sample:
    """Turn the arrays of a batch into tensors that share their memory."""
    torch = require("torch", 'to="torch"')
    return {name: torch.from_numpy(value) if _fits(value) else value for name, value in batch.items()}


def _fits(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "biufc"
