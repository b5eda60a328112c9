"""torch's DataLoader over plain files, with a fast decoder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.constants import BATCH, WORKERS
from benchmarks.transform import picture_tensor


class Files(Dataset[tuple[torch.Tensor, int]]):
    """A file for each picture, named by its label."""

    def __init__(self, folder: Path) -> None:
        self._paths = sorted(str(path) for path in folder.glob("*.jpg"))

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        path = self._paths[number]
        with open(path, "rb") as file:
            return picture_tensor(file.read()), int(path[-12:-4])


def images(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Shuffle all files, decode and collate in the workers."""
    yield from DataLoader(Files(folder), BATCH, shuffle=True, num_workers=WORKERS)
