"""DALI on the CPU over plain files, handed to torch by its own iterator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from benchmarks.constants import BATCH, MEAN, RATIO, SCALE, SIDE, STD, WORKERS


@pipeline_def(batch_size=BATCH, num_threads=WORKERS, device_id=None, prefetch_queue_depth=2)
def _pipeline(paths: list[str], labels: list[int]) -> Any:
    data, label = fn.readers.file(files=paths, labels=labels, random_shuffle=True, initial_fill=1000, name="reader")
    pictures = fn.decoders.image_random_crop(
        data, device="cpu", output_type=types.RGB, random_area=SCALE, random_aspect_ratio=RATIO, num_attempts=10
    )
    pictures = fn.resize(pictures, size=(SIDE, SIDE), interp_type=types.INTERP_LINEAR, antialias=False)
    pictures = fn.crop_mirror_normalize(
        pictures,
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=MEAN.tolist(),
        std=STD.tolist(),
        mirror=fn.random.coin_flip(),
    )
    return pictures, label


def images(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Decode only the crop, two threads, two batches ahead."""
    paths = sorted(str(path) for path in folder.glob("*.jpg"))
    pipeline = _pipeline(paths, [int(path[-12:-4]) for path in paths])
    names = ["picture", "cls"]
    for (batch,) in DALIGenericIterator(
        pipeline, names, reader_name="reader", last_batch_policy=LastBatchPolicy.PARTIAL, auto_reset=False
    ):
        yield batch["picture"], batch["cls"].view(-1)
