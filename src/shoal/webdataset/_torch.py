"""What the dialect wants of torch, where it is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shoal._optional import require

__all__ = ["IterableDataset", "data_loader", "node", "tensor", "worker"]

_HAS_TORCH = find_spec("torch") is not None

if TYPE_CHECKING or _HAS_TORCH:
    from torch.utils.data import IterableDataset
else:
    T = TypeVar("T")

    class IterableDataset(Generic[T]):
        """Stands for torch's class, so that the dialect reads shards without torch too."""


def worker() -> tuple[int, int] | None:
    """Tell which worker of how many this is, inside a DataLoader."""
    if not _HAS_TORCH:
        return None
    from torch.utils.data import get_worker_info

    info = get_worker_info()
    return None if info is None else (info.id, info.num_workers)


def node(group: Any = None) -> tuple[int, int] | None:
    """Tell rank and world size, where a process group is up."""
    if not _HAS_TORCH:
        return None
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    return distributed.get_rank(group), distributed.get_world_size(group)


def data_loader(*args: Any, **options: Any) -> Any:
    """Make a DataLoader, or say what brings one."""
    return require("torch.utils.data", "a WebLoader").DataLoader(*args, **options)


def tensor(array: Any) -> Any:
    """Give an array as a tensor that shares its memory."""
    return require("torch", "decoding into tensors").from_numpy(array)
