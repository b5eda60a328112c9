"""Batches as JAX arrays."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from shoal._optional import require
from shoal.abc import Sample
from shoal.pipeline._memory import as_array, is_number, native

__all__ = ["join", "stack", "to_jax"]


def stack(arrays: list[Any]) -> Any:
    """Stack JAX arrays of one shape and type."""
    return require("jax", "a batch of JAX arrays").numpy.stack(arrays)


def join(arrays: list[Any]) -> Any:
    """Join JAX arrays along their first dimension."""
    return require("jax", "a batch of JAX arrays").numpy.concatenate(arrays)


def to_jax(batch: Sample) -> Sample:
    """Turn arrays of numbers into JAX arrays on the default device; lists stay lists.

    JAX has no 64-bit numbers unless ``jax_enable_x64`` is set: without it they become 32-bit ones, and whole numbers
    that do not fit wrap around, as ``jax.device_put`` does it. On the CPU an array that keeps its type and begins at a
    multiple of 64 bytes, as those that a loader stacks do, shares its memory with the JAX array; do not write to it
    afterwards, for JAX takes an array to be constant. All others are copied. Dates and text stay numpy arrays.

    ``to_jax({"__key__": ["a", "b"], "x": np.zeros((2, 3), "f4")})["x"]`` is a ``jax.Array`` of shape (2, 3).
    """
    jax = require("jax", 'to="jax"')
    return {name: _converted(jax, value) for name, value in batch.items()}


def _converted(jax: ModuleType, value: Any) -> Any:
    value = as_array(value, keep="jax")
    if not (isinstance(value, np.ndarray) and _has_type(jax, value.dtype)):
        return value
    with np.errstate(over="ignore", invalid="ignore"):  # what JAX makes 32-bit may become infinite
        return jax.device_put(native(value))


def _has_type(jax: ModuleType, dtype: np.dtype[Any]) -> bool:
    """Tell whether JAX has the type; of those that other libraries add to numpy, it knows bfloat16 and its kin."""
    return is_number(dtype) or (dtype.isbuiltin == 2 and jax.dtypes.issubdtype(dtype, np.number))
