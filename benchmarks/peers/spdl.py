"""SPDL over plain files: its pipeline of threads, with its own decoder (FFmpeg) and with a fast one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import spdl.io
import torch
from spdl.pipeline import PipelineBuilder

from benchmarks.constants import BATCH, MEAN, SIDE, STD, WORKERS
from benchmarks.transform import crop_box, picture_tensor

_MEAN, _STD = (torch.from_numpy(values).view(1, 3, 1, 1) for values in (MEAN, STD))


def images(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Crop, scale and flip in FFmpeg's filters, as its documentation does; normalise by the batch."""
    return _run(folder, _with_ffmpeg)


def images_tuned(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Do the work on a picture with simplejpeg and OpenCV."""
    return _run(folder, _with_opencv)


def _with_ffmpeg(paths: list[str]) -> torch.Tensor:
    pixels = spdl.io.to_torch(spdl.io.convert_frames([_frames(path) for path in paths])).permute(0, 3, 1, 2)
    return pixels.to(torch.float32, memory_format=torch.contiguous_format).sub_(_MEAN).div_(_STD)


def _frames(path: str) -> Any:
    packets = spdl.io.demux_image(path)
    left, top, wide, high = crop_box(packets.width, packets.height)
    flip = "hflip," if random.random() < 0.5 else ""
    filters = f"crop={wide}:{high}:{left}:{top},scale={SIDE}:{SIDE}:flags=bilinear,{flip}format=pix_fmts=rgb24"
    return spdl.io.decode_packets(packets, filter_desc=filters)


def _with_opencv(paths: list[str]) -> torch.Tensor:
    batch = torch.empty(len(paths), 3, SIDE, SIDE)
    for target, path in zip(batch, paths, strict=True):
        target.copy_(picture_tensor(Path(path).read_bytes()))
    return batch


def _run(folder: Path, work: Callable[[list[str]], torch.Tensor]) -> Iterator[tuple[Any, Any]]:
    """Let each of two threads make whole batches: passing single pictures from stage to stage costs a third more."""
    paths = sorted(str(path) for path in folder.glob("*.jpg"))
    random.shuffle(paths)
    pipeline = (
        PipelineBuilder()
        .add_source(paths)
        .aggregate(BATCH)
        .pipe(lambda batch: (work(batch), [int(path[-12:-4]) for path in batch]), concurrency=WORKERS)
        .add_sink(2)
        .build(num_threads=WORKERS)
    )
    with pipeline.auto_stop():
        yield from pipeline.get_iterator(timeout=60)
