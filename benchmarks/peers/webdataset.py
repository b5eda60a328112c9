"""webdataset with a fast decoder: two processes that make batches, the parent only receives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import webdataset
from torch.utils.data import default_collate

from benchmarks.constants import BATCH, WORKERS
from benchmarks.transform import picture_tensor


def images(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Shuffle shards and a buffer of 1,000, decode and batch in the workers, as its documentation does."""
    dataset = _shuffled(folder).to_tuple("jpg", "cls").map_tuple(picture_tensor, int).batched(BATCH)
    yield from webdataset.WebLoader(dataset, batch_size=None, num_workers=WORKERS)


def images_by_torch(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Let torch stack the batches: in a worker it does so in the memory that is sent."""
    dataset = _shuffled(folder).to_tuple("jpg", "cls").map_tuple(picture_tensor, int)
    batches = dataset.batched(BATCH, collation_fn=default_collate)
    yield from webdataset.WebLoader(batches, batch_size=None, num_workers=WORKERS)


def small(folder: Path) -> Iterator[Any]:
    """Read in this process, where it is fastest: workers would have to send every sample."""
    yield from _shuffled(folder).map(lambda sample: sample["bin"]).batched(256, collation_fn=list)


def _shuffled(folder: Path) -> webdataset.WebDataset:
    urls = sorted(str(path) for path in folder.glob("*.tar"))
    return webdataset.WebDataset(urls, shardshuffle=len(urls)).shuffle(1000)
