"""Tensors of TensorFlow through a function of arrays, also inside a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shoal._optional import require

__all__ = ["through"]

tf: Any = require("tensorflow", "Keras on TensorFlow")


def through(function: Callable[[Any], Any], tensors: Sequence[Any]) -> list[Any]:
    """Give what a function makes of tensors as one flat array, in the same shapes and types."""
    dense = [tf.convert_to_tensor(each) for each in tensors]
    kind = tf.float64 if any(each.dtype == tf.float64 for each in dense) else tf.float32
    flat = tf.concat([tf.reshape(tf.cast(each, kind), [-1]) for each in dense], axis=0)
    made = tf.numpy_function(function, [flat], kind)
    made.set_shape(flat.shape)
    parts = tf.split(made, [each.shape.num_elements() for each in dense])
    return [tf.cast(tf.reshape(part, each.shape), each.dtype) for part, each in zip(parts, dense, strict=True)]
