"""webdataset as its documentation has it: Pillow decodes, torchvision's transforms do the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import webdataset

from benchmarks.constants import BATCH, MEAN, RATIO, SCALE, SIDE, STD, WORKERS
from benchmarks.peers import _torchvision  # noqa: F401

# isort: split
from torchvision import transforms


def images(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Shuffle shards and a buffer of 1,000, decode with ``"pil"``, batch in the workers."""
    prepare = transforms.Compose(
        [
            transforms.RandomResizedCrop(SIDE, scale=SCALE, ratio=RATIO),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((MEAN / 255).tolist(), (STD / 255).tolist()),
        ]
    )
    urls = sorted(str(path) for path in folder.glob("*.tar"))
    dataset = (
        webdataset.WebDataset(urls, shardshuffle=len(urls))
        .shuffle(1000)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(prepare, lambda label: label)
        .batched(BATCH)
    )
    yield from webdataset.WebLoader(dataset, batch_size=None, num_workers=WORKERS)
