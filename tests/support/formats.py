"""Batches in every format, and back: what was made of each field, and whether it shares the array's memory.

JAX and TensorFlow run in processes of their own: JAX warns whenever its process is forked, which other tests do, and
both keep threads.
"""

from __future__ import annotations

import ctypes
import gc
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import numpy as np

import shoal
from shoal import registry
from shoal.pipeline._collate import collate

OWN_PROCESS = ("jax", "tensorflow")


@dataclass(frozen=True)
class Field:
    """What became of a field."""

    kind: str
    """The name of its type."""
    value: Any
    """Back as an array, or a list."""
    shared: bool
    """Whether it is in the memory of the array it was made of."""


@dataclass(frozen=True)
class Life:
    """What happened to an array's memory."""

    shared: bool
    kept: bool
    """It lived on when the batch was dropped."""
    right: bool
    """What was converted still had its values then."""
    released: bool
    """It was given back when what was converted was dropped too."""


class Converter:
    """Runs functions of this module where a format's library may be loaded."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._pool = (
            ProcessPoolExecutor(
                1, mp_context=get_context("spawn"), initializer=warnings.simplefilter, initargs=("error",)
            )
            if name in OWN_PROCESS
            else None
        )

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        if self._pool is None:
            return function(self.name, *args)
        return self._pool.submit(function, self.name, *args).result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


def convert_samples(to: str, samples: Sequence[dict[str, Any]]) -> dict[str, Field]:
    """Collate samples and convert the batch."""
    return describe(to, collate(samples))


def convert_x64(to: str, samples: Sequence[dict[str, Any]]) -> dict[str, Field]:
    """Convert with JAX's 64-bit numbers switched on."""
    import jax

    with jax.enable_x64(True):
        return convert_samples(to, samples)


def convert_odd(to: str, name: str) -> Field:
    """Convert an array that is laid out in an unusual way."""
    array = ODD[name]()
    return describe(to, {"__key__": ["k"] * len(array), "x": array})["x"]


def convert_tensors(to: str, library: str, shapes: Sequence[tuple[int, ...]]) -> Field:
    """Collate samples that hold a library's tensors, each filled with its number, and convert the batch."""
    samples = [{"__key__": "k", "x": _MAKE_TENSOR[library](np.full(shape, n, "f4"))} for n, shape in enumerate(shapes)]
    found = describe(to, collate(samples))["x"]
    if to in OWN_PROCESS and isinstance(found.value, list):  # a tensor that is sent would bring its library along
        return replace(found, value=[np.asarray(each) for each in found.value])
    return found


def load(to: str, url: str, size: int) -> list[dict[str, Field]]:
    """Load a shard's batches."""
    back = _BACK[to]
    batches = shoal.read_tar(url).decode().loader(size, to=to)
    return [{name: Field(type(value).__name__, back(value), False) for name, value in _items(b)} for b in batches]


def live(to: str) -> Life:
    """Drop a batch, see that its memory lives as long as what was made of it, and no longer."""
    memory = (ctypes.c_char * 8192)()
    begin = -ctypes.addressof(memory) % 64
    array = np.frombuffer(memory, np.uint8)[begin : begin + 4096].view("f4").reshape(4, 256)
    array[:] = np.arange(1024).reshape(4, 256)
    owner, address = weakref.ref(memory), array.ctypes.data
    made = registry.load("format", to)({"__key__": list("abcd"), "x": array})
    value = dict(_items(made))["x"]
    del memory, array
    gc.collect()
    kept = owner() is not None
    _ = [np.full(1024, -1, "f4") for _ in range(1000)]
    right = np.array_equal(_BACK[to](value), np.arange(1024).reshape(4, 256))
    shared = _ADDRESS[to](value) == address
    del made, value
    gc.collect()
    return Life(shared, kept, right, owner() is None)


def describe(to: str, batch: dict[str, Any]) -> dict[str, Field]:
    """Convert a batch, drop it, and look at what was made of it."""
    addresses = {name: value.ctypes.data for name, value in batch.items() if isinstance(value, np.ndarray)}
    made = registry.load("format", to)(dict(batch))
    shared = {name: name in addresses and _ADDRESS[to](value) == addresses[name] for name, value in _items(made)}
    batch.clear()
    return {name: Field(type(value).__name__, _BACK[to](value), shared[name]) for name, value in _items(made)}


def _items(made: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(made, "schema"):
        return zip(made.schema.names, made.columns, strict=True)
    return iter(made.items())


# Addresses


def _array_address(value: Any) -> int | None:
    return value.ctypes.data if isinstance(value, np.ndarray) else None


def _tensorflow_address(value: Any) -> int | None:
    if type(value).__name__ != "EagerTensor":
        return _array_address(value)
    return None if value.dtype.name == "string" else value._numpy_internal().ctypes.data


def _arrow_address(column: Any) -> int | None:
    buffers = [buffer for buffer in column.buffers() if buffer is not None]
    return buffers[-1].address if buffers else None


def _pandas_address(series: Any) -> int | None:
    if series.dtype == object:
        return _array_address(series[0]) if len(series) else None
    return _array_address(series.to_numpy())


_ADDRESS: dict[str, Callable[[Any], int | None]] = {
    "numpy": _array_address,
    "torch": lambda value: value.data_ptr() if hasattr(value, "data_ptr") else _array_address(value),
    "tensorflow": _tensorflow_address,
    "jax": lambda v: v.unsafe_buffer_pointer() if hasattr(v, "unsafe_buffer_pointer") else _array_address(v),
    "arrow": _arrow_address,
    "pandas": _pandas_address,
}


# Back to numpy


def _torch_back(value: Any) -> Any:
    import ml_dtypes
    import torch

    if isinstance(value, list):
        return [_torch_back(each) for each in value]
    if not isinstance(value, torch.Tensor):
        return value
    if value.dtype == torch.bfloat16:
        return value.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return value.numpy()


def _tensorflow_back(value: Any) -> Any:
    if type(value).__name__ == "RaggedTensor":
        return [row.numpy() for row in value]
    if type(value).__name__ != "EagerTensor":
        return value
    return value.numpy().tolist() if value.dtype.name == "string" else value.numpy()


def _arrow_back(column: Any) -> Any:
    import pyarrow as pa

    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return column.to_numpy_ndarray()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [None if row.values is None else _arrow_back(row.values) for row in column]
    if pa.types.is_struct(kind) and kind.names == ["data", "shape"]:
        data, shapes = _arrow_back(column.field("data")), column.field("shape").to_pylist()
        return [array.reshape(shape) for array, shape in zip(data, shapes, strict=True)]
    if pa.types.is_primitive(kind):
        return column.to_numpy(zero_copy_only=False)
    return column.to_pylist()


def _pandas_back(series: Any) -> Any:
    if series.dtype == object or series.dtype == "str":
        return series.tolist()
    return series.to_numpy()


_BACK: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda value: value,
    "torch": _torch_back,
    "tensorflow": _tensorflow_back,
    "jax": lambda value: np.asarray(value) if hasattr(value, "unsafe_buffer_pointer") else value,
    "arrow": _arrow_back,
    "pandas": _pandas_back,
}


# Odd arrays and tensors


def _aligned(dtype: Any, shape: tuple[int, ...], offset: int = 0) -> np.ndarray[Any, Any]:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    array = memory[begin : begin + size].view(dtype).reshape(shape)
    array[:] = np.arange(array.size).reshape(shape)
    return array


def _read_only() -> np.ndarray[Any, Any]:
    array = _aligned("f4", (4, 3))
    array.flags.writeable = False
    return array


ODD: dict[str, Callable[[], np.ndarray[Any, Any]]] = {
    "aligned": lambda: _aligned("f4", (4, 3)),
    "read-only": _read_only,
    "between numbers": lambda: _aligned("f4", (4, 3), offset=1),
    "at 4 bytes": lambda: _aligned("f4", (4, 3), offset=4),
    "at 16 bytes": lambda: _aligned("f4", (4, 3), offset=16),
    "at 32 bytes": lambda: _aligned("f4", (4, 3), offset=32),
    "every second": lambda: _aligned("f4", (8, 3))[::2],
    "backwards": lambda: _aligned("f4", (4, 3))[::-1],
    "columns first": lambda: _aligned("f4", (3, 4)).T,
    "big-endian": lambda: _aligned(">f4", (4, 3)),
    "little-endian": lambda: _aligned("<f4", (4, 3)),
    "field of records": lambda: _aligned("u1", (4, 3 * 5)).view([("a", "u1"), ("b", "<f4")])["b"],
    "broadcast": lambda: np.broadcast_to(np.float32(7), (4, 3)),
    "no columns": lambda: np.zeros((4, 0), "f4"),
    "no inner columns": lambda: np.zeros((4, 0, 2), "f4"),
    "no rows": lambda: np.zeros((0, 3), "f4"),
    "one": lambda: np.ones((1, 1), "f4"),
}


def _to_torch(array: np.ndarray[Any, Any]) -> Any:
    import torch

    return torch.from_numpy(array)


def _to_jax(array: np.ndarray[Any, Any]) -> Any:
    import jax.numpy

    return jax.numpy.asarray(array)


def _to_tensorflow(array: np.ndarray[Any, Any]) -> Any:
    import tensorflow as tf

    return tf.constant(array)


_MAKE_TENSOR: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "torch": _to_torch,
    "jax": _to_jax,
    "tensorflow": _to_tensorflow,
}
