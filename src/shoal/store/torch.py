"""PyTorch: tensors that lie in the store, and stored frames, tables and partitions as datasets.

Tensors are views of the store's memory; what is written to one is copied first, so the store keeps its own.

>>> import tempfile, torch
>>> from shoal.store import connect
>>> store = connect(tempfile.mkdtemp(), memory="10MB")
>>> store.get(store.put(torch.ones(2, 3, dtype=torch.bfloat16))).dtype
torch.bfloat16
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal._optional import require
from shoal.errors import PlanError, StoreError
from shoal.store._contexts import BuilderContext, ResolverContext, context
from shoal.store._meta import Object, ObjectMeta
from shoal.store._rows import chosen, columns, frame_of, full_columns, plain_resolvers, row_partitions
from shoal.store._writable import writable

if TYPE_CHECKING:
    from shoal.store._base import BaseStore

__all__ = ["register_torch_types", "torch_context"]

torch: Any = require("torch", "shoal.store.torch")
datasets: Any = require("torch.utils.data", "shoal.store.torch")

_BATCH = 4096


def register_torch_types(
    builder_ctx: BuilderContext | None = None, resolver_ctx: ResolverContext | None = None
) -> None:
    """Register what puts tensors, datasets and modules, and what makes datasets of stored objects; either may be None.

    In such a context ``get(id)`` gives a `TensorDataset` of the columns of a frame or a table; with
    ``data="x", label="y"`` of these two; and of an object in partitions a `ConcatDataset` of those of this worker.

    >>> import pandas, tempfile
    >>> from shoal.store import connect, resolver_context
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> made = store.put(pandas.DataFrame({"x": [0, 1, 2], "y": [0, 2, 4]}))
    >>> with resolver_context() as resolvers:
    ...     register_torch_types(None, resolvers)
    ...     [int(y) for x, y in store.get(made, data="x", label="y")]
    [0, 2, 4]
    """
    if builder_ctx is not None:
        builder_ctx.register(torch.Tensor, build_tensor)
        builder_ctx.register(datasets.Dataset, build_dataset)
        builder_ctx.register(torch.nn.Module, build_module)
    if resolver_ctx is not None:
        resolver_ctx.register("vineyard::Tensor", resolve_array)
        resolver_ctx.register("vineyard::Tensor<torch.", resolve_tensor)
        for name in ("DataFrame", "RecordBatch", "Table"):
            resolver_ctx.register(f"vineyard::{name}", resolve_rows)
        for name in ("GlobalTensor", "GlobalDataFrame", "GlobalShards"):
            resolver_ctx.register(f"vineyard::{name}", resolve_partitions)


@contextmanager
def torch_context() -> Iterator[tuple[BuilderContext, ResolverContext]]:
    """Put and get datasets of torch for a while.

    >>> import pandas, tempfile
    >>> from shoal.store import connect
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> made = store.put(pandas.DataFrame({"x": [0, 1, 2], "y": [0, 2, 4]}))
    >>> with torch_context():
    ...     type(store.get(made, data="x", label="y")).__name__
    'TensorDataset'
    """
    with context() as (builders, resolvers):
        register_torch_types(builders, resolvers)
        yield builders, resolvers


def build_tensor(store: BaseStore, value: Any, partition_index: Any = None) -> ObjectMeta:
    """Describe a tensor, wherever it is."""
    if value.layout is not torch.strided or value.is_quantized:
        raise StoreError(f"a tensor of the layout {value.layout} and type {value.dtype} cannot be put; make it dense")
    here = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    keys = {
        "shape_": list(here.shape),
        "value_type_": str(here.dtype),
        "partition_index_": [int(number) for number in partition_index or ()],
    }
    data = here.reshape(-1).view(torch.uint8).numpy() if here.numel() else b""
    return ObjectMeta(f"vineyard::Tensor<{here.dtype}>", keys, buffer_=data)


def resolve_tensor(obj: Object) -> Any:
    """Give a tensor that lies where it was put."""
    name, shape = str(obj.meta["value_type_"]), tuple(obj.meta["shape_"])
    dtype = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        raise StoreError(f"{obj!r} is a tensor of {name}, which this torch does not have")
    data = obj.blob("buffer_")
    if not data.nbytes:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(writable(data)).view(dtype).reshape(shape)


def resolve_array(obj: Object) -> Any:
    """Give a tensor of an array of numpy's; within something else, or without a type in torch, it stays an array."""
    array = plain_resolvers()(obj)
    return _tensor(array) if obj.id is not None and _has_type(array) else array


def build_dataset(store: BaseStore, value: Any, builder: BuilderContext) -> ObjectMeta:
    """Describe a dataset, all of it, as a frame: a column for each field of its samples."""
    if isinstance(value, datasets.TensorDataset):
        found: dict[Any, Any] = dict(enumerate(value.tensors))
    else:
        batches = [_fields(batch) for batch in datasets.DataLoader(value, batch_size=_BATCH)]
        if not batches:
            raise PlanError(f"this {type(value).__name__} has no samples, so nobody knows their fields")
        found = {name: torch.cat([torch.as_tensor(batch[name]) for batch in batches]) for name in batches[0]}
    meta = builder(store, frame_of({name: column.detach().cpu().numpy() for name, column in found.items()}))
    meta["dataset_"] = "torch"
    return meta


def build_module(store: BaseStore, value: Any, builder: BuilderContext) -> ObjectMeta:
    """Describe the state of a module: what comes back is its ``state_dict()``."""
    return builder(store, value.state_dict())


def resolve_rows(obj: Object, data: Any = None, label: Any = None) -> Any:
    """Give a dataset of the columns of a frame or a table; the label, if one is named, comes last."""
    return _dataset(columns(obj), data, label)


def resolve_partitions(
    obj: Object,
    data: Any = None,
    label: Any = None,
    partitions: str = "mine",
    rank: int | None = None,
    world_size: int | None = None,
) -> Any:
    """Give a dataset of the partitions of this worker, in their order."""
    parts = row_partitions(obj, partitions, rank, world_size)
    if all(part.typename.startswith("vineyard::Tensor<torch.") for part in parts):
        return datasets.ConcatDataset([datasets.TensorDataset(resolve_tensor(part)) for part in parts])
    found = full_columns(obj, partitions, rank, world_size)
    return datasets.ConcatDataset([_dataset(some, data, label) for _, some in found])


def _dataset(found: dict[Any, Any], data: Any, label: Any) -> Any:
    if data is None and label is None:
        return datasets.TensorDataset(*(_column(name, column) for name, column in found.items()))
    rows = chosen(found, data, label, default=None)
    inputs = rows.data if isinstance(rows.data, dict) else {data: rows.data}
    targets = [] if rows.label is None else [_column(label, rows.label)]
    return datasets.TensorDataset(*(_column(name, column) for name, column in inputs.items()), *targets)


def _fields(batch: Any) -> dict[Any, Any]:
    if isinstance(batch, dict):
        return batch
    return dict(enumerate(batch)) if isinstance(batch, list | tuple) else {0: batch}


def _column(name: Any, column: np.ndarray[Any, Any]) -> Any:
    if not _has_type(column):
        text = f"column {name!r} is of the type {column.dtype}, which torch does not have"
        raise PlanError(f"{text}; choose others, as in get(id, data='x', label='y'), or convert it before it is put")
    return _tensor(column)


def _has_type(array: np.ndarray[Any, Any]) -> bool:
    try:
        torch.from_numpy(np.empty(0, array.dtype.newbyteorder("=")))
    except TypeError:
        return False
    return True


def _tensor(array: np.ndarray[Any, Any]) -> Any:
    """Share the memory of an array, if it is in one piece."""
    if not array.size or not array.flags.c_contiguous or not array.dtype.isnative:
        return torch.from_numpy(np.array(array, array.dtype.newbyteorder("=")))
    flat = writable(array.reshape(-1).view(np.uint8))
    return torch.from_numpy(flat.view(array.dtype).reshape(array.shape))
