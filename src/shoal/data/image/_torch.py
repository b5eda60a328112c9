"""Batches by torch's own loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal._optional import require

if TYPE_CHECKING:
    from shoal.abc import Sample
    from shoal.pipeline import Loader

__all__ = ["data_loader"]


def data_loader(loader: Loader) -> Any:
    """Give the batches of a loader as a `DataLoader`, whose last batch is as short as torch's users expect it."""
    data = require("torch.utils.data", "a DataLoader")
    return data.DataLoader(loader.torch_dataset(), batch_size=None, collate_fn=without_padding)


def without_padding(batch: Sample) -> Sample:
    """Cut off the rows that a mask says are padding.

    >>> import torch
    >>> without_padding({"x": torch.arange(3), "__mask__": torch.tensor([True, True, False])})
    {'x': tensor([0, 1])}
    """
    if "__mask__" not in batch:
        return batch
    count = int(batch["__mask__"].sum())
    return {name: value[:count] for name, value in batch.items() if name != "__mask__"}
