"""Pictures and tones in files, and Hugging Face datasets that name them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import skimage.data
import soundfile
from numpy.typing import NDArray
from PIL import Image

__all__ = [
    "LABELS",
    "crop",
    "mapped",
    "numbers",
    "picture_dataset",
    "picture_files",
    "quiet",
    "rows_of",
    "sounds",
    "tone_files",
]

LABELS = ["cat", "coffee"]


def crop(number: int) -> NDArray[np.uint8]:
    """Cut a small piece out of a photograph, another for each number."""
    photo = _photos()[number % 2]
    top, left = number * 7 % 200, number * 13 % 300
    piece: NDArray[np.uint8] = np.ascontiguousarray(photo[top : top + 24, left : left + 32])
    return piece


@contextmanager
def quiet(cache: Path) -> Iterator[None]:
    """Keep what is prepared out of the user's cache, and bars out of the output."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
        datasets.disable_progress_bars()
        yield
        datasets.enable_progress_bars()


@cache
def _photos() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    return skimage.data.chelsea(), skimage.data.coffee()


def picture_files(folder: Path, count: int) -> list[str]:
    """Write so many pictures, without loss."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:03d}.png" for number in range(count)]
    for number, path in enumerate(paths):
        Image.fromarray(crop(number)).save(path)
    return list(map(str, paths))


def picture_dataset(folder: Path, count: int, *, on_disk: bool = False) -> Any:
    """Make a dataset of pictures that are in files of their own."""
    rows = {
        "image": picture_files(folder / "pictures", count),
        "label": [number % 2 for number in range(count)],
        "text": [f"row {number}" for number in range(count)],
    }
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=LABELS), "text": datasets.Value("string")}
    )
    dataset = datasets.Dataset.from_dict(rows, features=features, split="train")
    return mapped(dataset, folder / "rows.arrow") if on_disk else dataset


def mapped(dataset: Any, path: Path) -> Any:
    """Write a dataset to a file and map it; what rows name stays where it is, which ``save_to_disk`` would embed."""
    table = dataset.with_format("arrow")[:]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    return datasets.Dataset.from_file(str(path), split="train")


def numbers(count: int) -> Any:
    """Make a dataset of numbered rows."""
    return datasets.Dataset.from_dict({"n": range(count), "text": [f"row {n}" for n in range(count)]}, split="train")


def sounds(paths: list[str], **options: Any) -> Any:
    """Make a dataset of sounds that are in files."""
    return datasets.Dataset.from_dict({"audio": paths}).cast_column("audio", datasets.Audio(**options))


def tone_files(folder: Path, count: int, *, rate: int = 22050, channels: int = 1) -> list[str]:
    """Write so many tones, each a bit higher than the one before; the second channel is silent."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:03d}.wav" for number in range(count)]
    for number, path in enumerate(paths):
        tone = 0.5 * np.sin(2 * np.pi * (220 + 20 * number) * np.arange(rate // 10) / rate)
        silent = [np.zeros_like(tone)] * (channels - 1)
        soundfile.write(path, np.stack([tone, *silent], axis=1), rate, subtype="PCM_16")
    return list(map(str, paths))


def rows_of(paths: list[str]) -> list[dict[str, Any]]:
    """Read Parquet files as pyarrow does."""
    return [row for path in paths for row in pq.read_table(path).to_pylist()]
