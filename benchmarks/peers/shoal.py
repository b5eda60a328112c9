"""Shoal, from the tars that webdataset reads too and from Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2  # noqa: F401  (nobody's first batch waits for an import)
import pyarrow.compute
import pyarrow.parquet  # noqa: F401
import torch  # noqa: F401

from benchmarks.constants import BATCH, WORKERS
from shoal import image, read_parquet, read_tar


def image_loader(folder: Path) -> Any:
    """Shuffle across shards, decode, crop, flip and normalise in two threads."""
    return (
        read_tar(_tars(folder))
        .shuffle("shards", seed=0)
        .decode()
        .apply(image.random_resized_crop(224), image.flip(), image.normalize())
        .loader(BATCH, workers=WORKERS, to="torch")
    )


def images(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Run one epoch."""
    for batch in image_loader(folder):
        yield batch["jpg"], batch["cls"]


def small(folder: Path) -> Iterator[Any]:
    """Shuffle across shards; with an index where ``SHOAL_CACHE`` has one."""
    for batch in read_tar(_tars(folder)).shuffle("shards").loader(256, workers=WORKERS):
        yield batch["bin"]


def small_parquet(folder: Path) -> Iterator[Any]:
    """Shuffle across the files of a folder."""
    paths = sorted(str(path) for path in folder.glob("*.parquet"))
    for batch in read_parquet(paths).shuffle("shards").loader(256, workers=WORKERS):
        yield batch["bin"]


def _tars(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.glob("*.tar"))
