"""Batches as TensorFlow tensors."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from shoal._optional import require
from shoal.abc import Sample
from shoal.pipeline._memory import as_array, is_aligned, is_number, is_ragged, joined, native

__all__ = ["join", "stack", "to_tensorflow"]


def stack(tensors: list[Any]) -> Any:
    """Stack tensors of one shape and type."""
    return require("tensorflow", "a batch of tensors").stack(tensors)


def join(tensors: list[Any]) -> Any:
    """Join tensors along their first dimension."""
    return require("tensorflow", "a batch of tensors").concat(tensors, axis=0)


def to_tensorflow(batch: Sample) -> Sample:
    """Turn arrays into tensors, text into string tensors, and arrays of different lengths into ragged tensors.

    Arrays of numbers share their memory with the tensor where they can be written to and begin at a multiple of 64
    bytes, as those that a loader stacks do; do not write to them afterwards, for TensorFlow takes a tensor to be
    constant. All other arrays are copied. Whatever TensorFlow has no type for (dates, lists of dicts) stays as it is.

    ``to_tensorflow({"__key__": ["a", "b"], "x": np.zeros((2, 3), "f4")})["x"]`` is a ``tf.Tensor`` of shape (2, 3).
    """
    tf = require("tensorflow", 'to="tensorflow"')
    return {name: _converted(tf, value) for name, value in batch.items()}


def _converted(tf: ModuleType, value: Any) -> Any:
    if isinstance(value, list):
        return _from_list(tf, value)
    value = as_array(value, keep="tensorflow")
    return _tensor(tf, value) if isinstance(value, np.ndarray) and _has_type(tf, value.dtype) else value


def _tensor(tf: ModuleType, array: np.ndarray[Any, Any]) -> Any:
    array = native(array)
    # TensorFlow's kernels abort the process when memory that they share is not aligned; empty memory has no address.
    if is_number(array.dtype) and array.size and array.flags.writeable and is_aligned(array):
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.convert_to_tensor(array)


def _has_type(tf: ModuleType, dtype: np.dtype[Any]) -> bool:
    if dtype.hasobject:
        return False
    try:
        tf.as_dtype(dtype)
    except TypeError:
        return False
    return True


def _from_list(tf: ModuleType, values: list[Any]) -> Any:
    if all(isinstance(value, str) for value in values):
        return _strings(tf, values)
    if all(isinstance(value, bytes) for value in values):
        return tf.constant([bytes(value) for value in values])
    if is_ragged(values) and _has_type(tf, values[0].dtype):
        lengths = np.array([len(value) for value in values], np.int64)
        return tf.RaggedTensor.from_row_lengths(_tensor(tf, joined(values)), lengths, validate=False)
    return values


def _strings(tf: ModuleType, values: list[str]) -> Any:
    try:
        # The name of a file may be no UTF-8; this gives back the bytes that it has on disk.
        return tf.constant([value.encode("utf-8", "surrogateescape") for value in values])
    except UnicodeEncodeError:
        return values
