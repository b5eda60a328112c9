"""LitData with a fast decoder, from its own chunks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litdata

from benchmarks.constants import BATCH, WORKERS
from benchmarks.transform import picture_tensor


class Pictures(litdata.StreamingDataset):
    """Chunks of JPEGs and labels."""

    def __getitem__(self, index: Any) -> tuple[Any, int]:
        sample = super().__getitem__(index)
        return picture_tensor(sample["jpg"]), sample["cls"]


def images(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Decode and collate in the workers."""
    dataset = Pictures(str(folder), shuffle=True, drop_last=False)
    yield from litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=WORKERS)


def small(folder: Path) -> Iterator[Any]:
    """Read in this process, where it is fastest."""
    dataset = litdata.StreamingDataset(str(folder), shuffle=True, drop_last=False)
    yield from litdata.StreamingDataLoader(
        dataset, batch_size=256, num_workers=0, collate_fn=lambda rows: [row["bin"] for row in rows]
    )
