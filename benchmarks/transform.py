"""The work on one picture, as fast as Python libraries do it: simplejpeg and OpenCV, for all that are "tuned"."""

from __future__ import annotations

import math
import random

import cv2
import numpy as np
import simplejpeg
import torch

from benchmarks.constants import MEAN, RATIO, SCALE, SIDE, STD

_TABLES = [((np.arange(256, dtype=np.float32) - mean) / std) for mean, std in zip(MEAN, STD, strict=True)]

cv2.setNumThreads(0)  # its own threads get in the way of the loader's


def crop_box(width: int, height: int) -> tuple[int, int, int, int]:
    """Draw left, top, width, height of a random resized crop."""
    for _ in range(10):
        area = width * height * random.uniform(*SCALE)
        ratio = math.exp(random.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            return random.randint(0, width - wide), random.randint(0, height - high), wide, high
    return 0, 0, width, height


def picture_array(data: bytes) -> np.ndarray:
    """Decode, crop at random, flip half of the time, normalise: CHW in float32."""
    pixels = simplejpeg.decode_jpeg(data, "RGB")
    left, top, wide, high = crop_box(pixels.shape[1], pixels.shape[0])
    small = cv2.resize(pixels[top : top + high, left : left + wide], (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    if random.random() < 0.5:
        small = cv2.flip(small, 1)
    out = np.empty((3, SIDE, SIDE), np.float32)
    for plane, table, target in zip(cv2.split(small), _TABLES, out, strict=True):
        cv2.LUT(plane, table, target)
    return out


def picture_tensor(data: bytes) -> torch.Tensor:
    """Do the same for torch."""
    return torch.from_numpy(picture_array(data))
