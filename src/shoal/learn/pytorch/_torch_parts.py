"""Batches that are read in one place and dealt out: each worker gets its part of each of them.

Every worker gets as many parts as there are batches, so all take the same steps. Whoever has no row of a small batch
gets one that does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, default_collate

from shoal.abc import Block, Shard, Source, dealt
from shoal.engines import Share
from shoal.errors import PlanError
from shoal.learn.pytorch._torch_items import Item
from shoal.pipeline import Dataset

__all__ = ["Part", "PartsLoader", "Shared", "Unbatched", "scattered"]

#: Items, and how many of them count.
Part: TypeAlias = "tuple[list[Any], int]"


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


class PartsLoader:
    """The parts of one worker; each iteration is an epoch."""

    samples: int | None = None

    def __init__(self, parts: Callable[[], Iterator[Part]], steps: int | None = None) -> None:
        self._parts, self.steps = parts, steps
        self.epoch = self._step = self._skipped = 0
        self._under_way: Iterator[dict[str, Any]] | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.close()
        self._under_way = self._next_epoch()
        return self._under_way

    def close(self) -> None:
        """End the epoch that is under way."""
        if self._under_way is not None:
            self._under_way.close()  # type: ignore[attr-defined]
            self._under_way = None

    def state_dict(self) -> dict[str, Any]:
        """Say how many batches of which epoch were received."""
        return {"epoch": self.epoch, "step": self._step}

    def load_state_dict(self, states: Any) -> None:
        """Go on after as many batches, which are read and left out: whoever deals them out begins anew."""
        state = states if isinstance(states, Mapping) else states[0]
        self.epoch, self._skipped = state["epoch"], state["step"]
        self._step = self._skipped

    def _next_epoch(self) -> Iterator[dict[str, Any]]:
        skipped, self._skipped = self._skipped, 0
        parts = self._parts()
        for number, (items, count) in enumerate(parts, 1):
            if number > skipped:
                self._step = number
                yield {"items": items, "count": count}
            if number == self.steps:
                break
        getattr(parts, "close", lambda: None)()
        self.epoch, self._step = self.epoch + 1, 0


class Shared:
    """Parts of batches that the process which has the data sends to the workers."""

    def __init__(self, batches: Iterable[list[Any]], workers: int) -> None:
        source = _BatchSource(batches, workers)
        self._shares: list[Share] = Dataset(source).split(workers, equal=False, part=1, workers=0)

    def __call__(self, rank: int, world_size: int) -> Iterator[Part]:
        """Give the parts of a worker."""
        if world_size != len(self._shares):
            text = f"the batches are dealt out to {len(self._shares)} workers, and there are {world_size}"
            raise PlanError(f"{text}; data that is served needs the number of workers that it began with")
        for sample in self._shares[rank]:
            yield sample["part"].value

    def close(self) -> None:
        """End the dealing."""
        self._shares[0].close()


def scattered(batches: Iterable[list[Any]], rank: int, world_size: int) -> Iterator[Part]:
    """Give the parts of a worker, of batches that the first worker has."""
    if world_size == 1:
        yield from ((batch, len(batch)) for batch in batches)
        return
    mine: Iterator[list[Any]] = iter(batches if rank == 0 else ())
    while True:
        batch = next(mine, None)
        parts: list[Part | None] = [None] * world_size if batch is None else [*_parts(batch, world_size)]
        got: list[Part | None] = [None]
        dist.scatter_object_list(got, parts if rank == 0 else None, src=0)
        if got[0] is None:
            return
        yield got[0]


class _BatchSource(Source):
    """A sample is the part that one worker has of a batch; those of a batch follow one another."""

    def __init__(self, batches: Iterable[list[Any]], workers: int) -> None:
        self._batches, self._workers = batches, workers

    @property
    def seekable(self) -> bool:
        """False: it is a stream."""
        return False

    def shards(self) -> Sequence[Shard]:
        """Name the stream."""
        return [Shard("torch://batches")]

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        """Yield the parts of a batch as a block."""
        for number, batch in enumerate(self._batches):
            parts = enumerate(_parts(batch, self._workers))
            yield Block([{"__key__": f"{number}-{rank}", "part": Item(part)} for rank, part in parts], (shard,))


def _parts(batch: list[Any], workers: int) -> Iterator[Part]:
    """Deal a batch out: as many to each, in their order; who has none gets the first, which does not count."""
    for places in dealt(len(batch), workers):
        yield (batch[places.start : places.stop], len(places)) if places else (batch[:1], 0)


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
