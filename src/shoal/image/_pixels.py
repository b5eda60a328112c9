"""What is done to pixels: sample a box, flip, normalise. With OpenCV if it is there, else with Pillow and numpy."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["SCRATCH", "mirrored", "normalised", "opencv", "sample_box"]

Pixels = NDArray[np.uint8]

# A thread keeps what it needs for usual pictures; the memory of a giant one is given back.
_KEPT = 64 * 2**20
# OpenCV counts pixels of a source in 16 bits in some of its ways.
_LONGEST = 2**15 - 2


class Scratch(threading.local):
    """Memory that a thread uses again for the next picture."""

    def __init__(self) -> None:
        self._kept: dict[str, Pixels] = {}

    def take(self, purpose: str, size: int) -> Pixels:
        """Give some bytes, which hold until the purpose is next asked for by this thread."""
        kept = self._kept.get(purpose)
        if kept is None or kept.size < size:
            kept = np.empty(size, np.uint8)
            if size <= _KEPT:
                self._kept[purpose] = kept
        return kept[:size]

    def source(self, size: int) -> Pixels:
        """Give memory for the pixels of a source."""
        return self.take("source", size)


SCRATCH = Scratch()


@lru_cache(maxsize=1)
def opencv() -> Any:
    """Import OpenCV, when the first picture is treated; None without it.

    Its own threads are switched off for the whole process: pictures are treated side by side already, and a pool
    inside each call takes the processors from the others and makes all of them slower.
    """
    try:
        cv = importlib.import_module("cv2")
    except ImportError:
        return None
    cv.setNumThreads(0)
    return cv


def sample_box(source: Pixels, box: tuple[float, float, float, float], target: Pixels) -> None:
    """Fill the target with a box (left, top, width, height) of the source, linearly between the centres of pixels."""
    left, top, width, height = box
    whole = not (left % 1 or top % 1 or width % 1 or height % 1)
    if whole:
        source = source[int(top) : int(top + height), int(left) : int(left + width)]
        left = top = 0.0
    if source.shape == target.shape and whole:
        np.copyto(target, source)
        return
    cv = opencv()
    tall, wide = target.shape[:2]
    if cv is None or max(source.shape) > _LONGEST:
        image = Image.fromarray(np.ascontiguousarray(source))
        extent = (left, top, left + width, top + height)
        seen = image.transform((wide, tall), Image.Transform.EXTENT, extent, Image.Resampling.BILINEAR)
        np.copyto(target, np.asarray(seen))
    elif whole:
        _put(cv.resize(source, (wide, tall), dst=target, interpolation=cv.INTER_LINEAR), target)
    else:
        x, y = width / wide, height / tall
        matrix = np.array([[x, 0, left + x / 2 - 0.5], [0, y, top + y / 2 - 0.5]])
        flags = cv.INTER_LINEAR | cv.WARP_INVERSE_MAP
        done = cv.warpAffine(source, matrix, (wide, tall), dst=target, flags=flags, borderMode=cv.BORDER_REPLICATE)
        _put(done, target)


def mirrored(source: Pixels, target: Pixels) -> None:
    """Fill the target with the source, left and right exchanged."""
    cv = opencv()
    if cv is None:
        np.copyto(target, source[:, ::-1].copy() if np.shares_memory(source, target) else source[:, ::-1])
    else:
        _put(cv.flip(source, 1, target), target)


def normalised(
    source: Pixels, scale: Sequence[float], shift: Sequence[float], target: NDArray[np.float32], *, flipped: bool
) -> None:
    """Fill a target (3, height, width) with ``source * scale + shift``, the source being (height, width, 3)."""
    tall, wide = source.shape[:2]
    planes = SCRATCH.take("planes", 3 * tall * wide).reshape(3, tall, wide)
    cv = opencv()
    if cv is None or not target.flags.c_contiguous:
        np.copyto(planes, (source[:, ::-1] if flipped else source).transpose(2, 0, 1))
        np.multiply(planes, np.array(scale, np.float32)[:, None, None], out=target)
        np.add(target, np.array(shift, np.float32)[:, None, None], out=target)
        return
    cv.split(source, list(planes))
    if flipped:
        stacked = planes.reshape(3 * tall, wide)  # all planes at once
        cv.flip(stacked, 1, stacked)
    for plane, factor, offset, out in zip(planes, scale, shift, target, strict=True):
        # Of two weighted sums one counts: there is no quicker way to write a * x + b once, straight to its place.
        cv.addWeighted(plane, factor, plane, 0.0, offset, out, cv.CV_32F)


def _put(done: Pixels, target: Pixels) -> None:
    """Copy what a library made elsewhere because it would not write to the target."""
    if done is not target:
        np.copyto(target, done)
