"""The process groups and data loaders of torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.data
from torch import distributed

from shoal.pipeline.groups import Group

__all__ = ["LoaderDataset", "torch_group", "torch_worker"]


class _TorchGroup(Group):
    """Ranks under torch.distributed, talking over a gloo group of their own beside whatever training uses."""

    def __init__(self) -> None:
        self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()
        self._own: Any = None

    def highest(self, number: int) -> int:
        if self._own is None:
            self._own = distributed.new_group(backend="gloo")
        shared = torch.tensor([number])
        distributed.all_reduce(shared, op=distributed.ReduceOp.MAX, group=self._own)
        return int(shared[0])


def torch_group() -> Group | None:
    """Give the group of this process, if one was started."""
    started = distributed.is_available() and distributed.is_initialized()
    return _TorchGroup() if started else None


def torch_worker() -> tuple[int, int]:
    """Tell which worker process of a `DataLoader` this is, and of how many.

    >>> torch_worker()
    (0, 1)
    """
    info = torch.utils.data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


class LoaderDataset(torch.utils.data.IterableDataset[Any]):
    """A loader's batches for torch's own loaders; with a state, as `StatefulDataLoader` of torchdata wants it."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """Say what was received."""
        state: dict[str, Any] = self.loader.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration go on from a state."""
        self.loader.load_state_dict(state)
