"""Arrays of JAX through a function of numpy's, also inside what is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shoal._optional import require

__all__ = ["through"]

jax: Any = require("jax", "Keras on JAX")


def through(function: Callable[[Any], Any], tensors: Sequence[Any]) -> list[Any]:
    """Give what a function makes of arrays as one flat array, in the same shapes and types."""
    numpy = jax.numpy
    kind = numpy.float64 if any(each.dtype == numpy.float64 for each in tensors) else numpy.float32
    flat = numpy.concatenate([each.astype(kind).reshape(-1) for each in tensors])
    callback = require("jax.experimental", "Keras on JAX").io_callback
    made = callback(
        lambda array: function(np.asarray(array)), jax.ShapeDtypeStruct(flat.shape, flat.dtype), flat, ordered=True
    )
    ends = np.cumsum([each.size for each in tensors])[:-1].tolist()
    parts = numpy.split(made, ends)
    return [part.reshape(each.shape).astype(each.dtype) for part, each in zip(parts, tensors, strict=True)]
