"""MosaicML Streaming with a fast decoder, from its own shards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from benchmarks.constants import BATCH, WORKERS
from benchmarks.peers import _torchvision  # noqa: F401
from benchmarks.transform import picture_tensor

# isort: split
from streaming import StreamingDataset
from streaming.base.util import clean_stale_shared_memory


class Pictures(StreamingDataset):
    """Shards of JPEGs and labels."""

    def __getitem__(self, index: Any) -> tuple[Any, int]:
        sample = super().__getitem__(index)
        return picture_tensor(sample["jpg"]), sample["cls"]


def images(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Decode and collate in the workers; shuffle with its default algorithm."""
    clean_stale_shared_memory()
    dataset = Pictures(local=str(folder), shuffle=True, batch_size=BATCH)
    yield from DataLoader(dataset, BATCH, num_workers=WORKERS)
