"""Hugging Face datasets, map-style over its own Arrow files, with a fast decoder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
from torch.utils.data import DataLoader

from benchmarks.constants import BATCH, WORKERS
from benchmarks.transform import picture_tensor


def _decode(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {"picture": [picture_tensor(data) for data in rows["jpg"]], "cls": rows["cls"]}


def images(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Shuffle all rows, fetch them by the batch, decode and collate in the workers."""
    dataset = datasets.load_from_disk(str(folder)).with_transform(_decode)
    for batch in DataLoader(dataset, BATCH, shuffle=True, num_workers=WORKERS):
        yield batch["picture"], batch["cls"]


def small(folder: Path) -> Iterator[Any]:
    """Fetch shuffled rows by the batch in this process, where it is fastest."""
    dataset = datasets.load_from_disk(str(folder))
    yield from DataLoader(dataset, 256, shuffle=True, collate_fn=lambda rows: [row["bin"] for row in rows])
