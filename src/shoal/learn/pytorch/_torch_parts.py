"""The batches of a torch DataLoader, to be dealt out: what they are made of, and from worker to worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, default_collate

from shoal.errors import PlanError
from shoal.learn._parts import Part, parts_of

__all__ = ["Unbatched", "scattered"]


class Unbatched:
    """The batches of a loader as lists of what they are made of: items, or with ``numbers`` their numbers."""

    def __init__(self, loader: DataLoader[Any], *, numbers: bool) -> None:
        self._loader, self._numbers, self._epoch = loader, numbers, 0
        own = type(loader).__iter__ is not DataLoader.__iter__
        self._whole = own or (loader.batch_size is None and loader.batch_sampler is None)
        self.collate: Callable[[list[Any]], Any] = default_collate if self._whole else loader.collate_fn

    def __iter__(self) -> Iterator[list[Any]]:
        """Give the batches of another epoch."""
        for sampler in (self._loader.sampler, self._loader.batch_sampler):
            getattr(sampler, "set_epoch", _ignored)(self._epoch)
        self._epoch += 1
        if self._whole:
            return map(_rows, self._loader)
        if self._numbers:
            assert self._loader.batch_sampler is not None
            return map(list, self._loader.batch_sampler)
        return iter(_uncollated(self._loader))


def scattered(batches: Iterable[list[Any]], rank: int, world_size: int) -> Iterator[Part]:
    """Give the parts of a worker, of batches that the first worker has."""
    if world_size == 1:
        yield from ((batch, len(batch)) for batch in batches)
        return
    mine: Iterator[list[Any]] = iter(batches if rank == 0 else ())
    while True:
        batch = next(mine, None)
        parts: list[Part | None] = [None] * world_size if batch is None else [*parts_of(batch, world_size)]
        got: list[Part | None] = [None]
        dist.scatter_object_list(got, parts if rank == 0 else None, src=0)
        if got[0] is None:
            return
        yield got[0]


def _uncollated(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Make the same loader once more, which leaves items as they are."""
    names = ["num_workers", "worker_init_fn", "generator", "timeout", "multiprocessing_context"]
    names += ["prefetch_factor"] if loader.num_workers else []
    options = {name: getattr(loader, name) for name in names}
    if isinstance(loader.dataset, IterableDataset):
        options |= {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    else:
        options |= {"batch_sampler": loader.batch_sampler}
    return DataLoader(loader.dataset, collate_fn=list, **options)


def _ignored(epoch: int) -> None:
    """Do nothing: most samplers know no epochs."""


def _rows(batch: Any) -> list[Any]:
    """Cut a batch that a loader gives as a whole into its rows."""
    if isinstance(batch, Mapping):
        return [dict(zip(batch, row, strict=True)) for row in zip(*map(_rows, batch.values()), strict=True)]
    if isinstance(batch, tuple | list):
        return list(zip(*map(_rows, batch), strict=True))
    if not isinstance(batch, torch.Tensor) and not hasattr(batch, "__array__"):
        raise PlanError(f"a batch of the loader has a {type(batch).__name__} in it, which cannot be shared out as rows")
    return list(batch)
