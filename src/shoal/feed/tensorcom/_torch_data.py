"""Datasets and workers of torch, where it is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Generic, TypeVar

__all__ = ["IterableDataset", "worker"]

_HAS_TORCH = find_spec("torch") is not None

if TYPE_CHECKING or _HAS_TORCH:
    from torch.utils.data import IterableDataset
else:
    T = TypeVar("T")

    class IterableDataset(Generic[T]):
        """Stands for torch's class, so that messages can be received without torch too."""


def worker() -> tuple[int, int]:
    """Tell which worker of how many this is; the only one outside of a DataLoader."""
    if not _HAS_TORCH:
        return 0, 1
    from torch.utils.data import get_worker_info

    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)
