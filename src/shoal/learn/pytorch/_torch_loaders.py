"""A torch DataLoader as data: its dataset, shared out over workers, or its batches, dealt out by whoever has it.

Items with numbers are read by the workers, each its own, if the order is one that everybody can work out: as they lie,
or shuffled. Any other sampler tells the workers which items to read. A stream, and what cannot be sent elsewhere, is
read in one place, and each item goes to one worker. The loader's ``collate_fn`` is called by the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)
from torch.utils.data import Dataset as TorchDataset

from shoal.errors import PlanError
from shoal.learn._creators import CreatedRows
from shoal.learn._data import Ask, FieldRows, Prepared, of_columns, prepared
from shoal.learn._job import Batches, Rows
from shoal.learn._parts import Part, PartsLoader, Shared
from shoal.learn.pytorch._torch_items import ItemSource, Kept
from shoal.learn.pytorch._torch_parts import Unbatched, scattered
from shoal.pipeline import Dataset

__all__ = ["Served", "inputs_of", "served", "torch_prepared"]


class Served:
    """A loader whose data only this process can read; see `served`."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader


def served(loader: DataLoader[Any]) -> Served:
    """Say that only this process can read the data of a loader: items are then sent from here to the workers.

    So it is with files that only this machine has. Loaders over streams, or over what cannot be pickled, are served
    anyway.

    >>> from torch.utils.data import DataLoader
    >>> type(served(DataLoader([1, 2, 3]))).__name__
    'Served'
    """
    if not isinstance(loader, DataLoader):
        raise PlanError(f"served takes a DataLoader, not a {type(loader).__name__}")
    return Served(loader)


def torch_prepared(data: Any, ask: Ask, *, config: Mapping[str, Any], batch_size: int | None = None) -> Prepared:
    """Make rows of loaders, of torch datasets, and of functions that make data; all else is for `prepared`."""
    if isinstance(data, Served | DataLoader) and batch_size is not None:
        text = f"batch_size={batch_size} is given beside a DataLoader, which has a batch size of its own"
        raise PlanError(f"{text}; leave it out: the loader's counts the rows of a step on all workers")
    if isinstance(data, Served):
        return _dealt_out(data.loader, None, ask)
    if isinstance(data, DataLoader):
        return _of_loader(data, ask)
    if isinstance(data, TorchDataset):
        return _of_dataset(data, ask)
    if callable(data):
        there = replace(ask, workers=None)
        return Prepared(CreatedRows(data, config, partial(torch_prepared, ask=there, config=config)))
    return prepared(data, ask)


def inputs_of(loader: DataLoader[Any], features: Sequence[str] | None) -> Iterator[list[Any]]:
    """Give the inputs of the batches of a loader, as it has them."""
    ask = Ask(features, labelled=False)
    return (_told_apart(batch, ask)[0] for batch in loader)


class ItemRows(Rows):
    """Items of a torch dataset, and the function that makes batches of them."""

    def __init__(
        self, dataset: Dataset, collate: _Collate, batch_size: int | None, fixed: Mapping[str, Any] | None = None
    ) -> None:
        self._dataset, self._collate, self.batch_size = dataset, collate, batch_size
        self._fixed = dict(fixed or {})

    def loader(self, batch_size: int, rank: int, world_size: int, to: str, **options: Any) -> Batches:
        """Make the batches of one worker; items are read one after the other, unless somebody asks for more."""
        chosen = {"workers": 0, **options, **self._fixed}
        return self._dataset.loader(self.batch_size or batch_size, rank=rank, world_size=world_size, **chosen)

    def taken(self, batch: dict[str, Any]) -> tuple[list[Any], list[Any], int]:
        """Make a batch of the real items."""
        items, mask = [item.value for item in batch["item"]], batch.get("__mask__")
        real = items if mask is None else [item for item, is_real in zip(items, mask, strict=True) if is_real]
        return *self._collate(real or items[:1]), len(real)


class PartRows(Rows):
    """Parts of batches that somebody deals out: items, or the numbers of those that a worker reads."""

    def __init__(
        self, parts: Callable[[int, int], Iterator[Part]], collate: _Collate, batch_size: int | None, kept: Kept | None
    ) -> None:
        self._parts, self._collate, self.batch_size, self._kept = parts, collate, batch_size, kept

    def loader(self, batch_size: int, rank: int, world_size: int, to: str, **options: Any) -> Batches:
        """Make the batches of one worker."""
        return PartsLoader(partial(self._parts, rank, world_size), options.get("steps"))

    def taken(self, batch: dict[str, Any]) -> tuple[list[Any], list[Any], int]:
        """Make a batch of the items."""
        items = batch["items"] if self._kept is None else self._kept.items(batch["items"])
        return *self._collate(items), batch["count"]


class _Collate:
    """Makes batches of items, and tells inputs from targets."""

    def __init__(self, function: Callable[[list[Any]], Any], ask: Ask) -> None:
        self._function, self._ask = function, ask

    def __call__(self, items: list[Any]) -> tuple[list[Any], list[Any]]:
        return _told_apart(self._function(items), self._ask)


def _told_apart(batch: Any, ask: Ask) -> tuple[list[Any], list[Any]]:
    """Tell inputs from targets: by their names, or the last is the target."""
    if isinstance(batch, Mapping):
        if ask.features is None or (ask.labelled and ask.labels is None):
            have = ", ".join(map(str, batch))
            raise PlanError(f"batches of the loader are dicts of {have}: name feature_cols= and label_cols=")
        return [batch[name] for name in ask.features], [batch[name] for name in ask.labels or ()]
    several = list(batch) if isinstance(batch, tuple | list) else [batch]
    if ask.labelled and len(several) < 2:
        raise PlanError(f"a batch of the loader is a {type(batch).__name__}; it should be (*inputs, target)")
    inputs, targets = (several[:-1], several[-1:]) if len(several) > 1 else (several, [])
    nested = len(inputs) == 1 and isinstance(inputs[0], tuple | list)
    return list(inputs[0]) if nested else inputs, targets


def _of_loader(loader: DataLoader[Any], ask: Ask) -> Prepared:
    """Share the dataset of a loader out, if its order can be worked out; else let its sampler be asked."""
    dataset = loader.dataset
    if isinstance(dataset, IterableDataset) or type(loader).__iter__ is not DataLoader.__iter__:
        return _dealt_out(loader, None, ask)
    kept = Kept.of(dataset) if ask.workers is not None else Kept(dataset)
    if kept is None or loader.batch_size is None or not _is_plain(loader):
        return _dealt_out(loader, kept if loader.batch_sampler is not None else None, ask)
    seed = ask.shuffle or 0 if _is_shuffled(loader) else None
    end = "drop" if loader.drop_last else None
    if type(dataset) is TensorDataset and loader.collate_fn is default_collate and len(dataset.tensors) > 1:
        return _of_tensors(dataset, replace(ask, shuffle=seed), loader.batch_size, end)
    processes = {"workers": loader.num_workers, "mode": "process"} if loader.num_workers else {}
    fixed = {**processes, **({} if end is None else {"end": end})}
    collate = _Collate(loader.collate_fn, ask)
    return Prepared(ItemRows(_shuffled(kept, seed), collate, loader.batch_size, fixed))


def _of_dataset(dataset: TorchDataset[Any], ask: Ask) -> Prepared:
    """Share a dataset out that came without a loader."""
    if isinstance(dataset, IterableDataset):
        raise PlanError("a stream needs a DataLoader around it, which says how many items make a batch")
    kept = Kept.of(dataset) if ask.workers is not None else Kept(dataset)
    if kept is None:
        name = type(dataset).__name__
        raise PlanError(f"{name} cannot be pickled for the workers; give served(DataLoader(dataset, batch_size=...))")
    return Prepared(ItemRows(_shuffled(kept, ask.shuffle), _Collate(default_collate, ask), None))


def _of_tensors(dataset: TensorDataset, ask: Ask, batch_size: int, end: str | None) -> Prepared:
    """Take the rows of tensors as those of arrays, which workers share."""
    *inputs, target = (tensor.detach().cpu().numpy() for tensor in dataset.tensors)
    found = of_columns({**{f"x{number}": each for number, each in enumerate(inputs)}, "y0": target}, ask)
    assert isinstance(found.rows, FieldRows)
    return replace(found, rows=replace(found.rows, batch_size=batch_size, end=end))


def _dealt_out(loader: DataLoader[Any], kept: Kept | None, ask: Ask) -> Prepared:
    """Read the batches of a loader in one place: here, or where the first worker is; it may be only their numbers."""
    batches = Unbatched(loader, numbers=kept is not None)
    collate = _Collate(batches.collate, ask)
    if ask.workers is None:
        return Prepared(PartRows(partial(scattered, batches), collate, None, kept))
    shared = Shared(batches, ask.workers)
    return Prepared(PartRows(shared, collate, None, kept), shared.close)


def _shuffled(kept: Kept, seed: int | None) -> Dataset:
    dataset = Dataset(ItemSource(kept))
    return dataset if seed is None else dataset.shuffle("full", seed=seed)


def _is_plain(loader: DataLoader[Any]) -> bool:
    """Tell whether a loader gives each item once, as they lie or shuffled."""
    sampler, count = loader.sampler, len(loader.dataset)  # type: ignore[arg-type]
    if isinstance(sampler, RandomSampler):
        return type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == count
    return type(sampler) in (SequentialSampler, DistributedSampler)


def _is_shuffled(loader: DataLoader[Any]) -> bool:
    return isinstance(loader.sampler, RandomSampler) or bool(getattr(loader.sampler, "shuffle", False))
