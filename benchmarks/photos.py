"""Real JPEG files of about 100 KB, made from the photographs that come with scikit-learn and scikit-image."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import simplejpeg
import skimage.data
from sklearn.datasets import load_sample_images

SIZE = (480, 640)


def photos(count: int, distinct: int = 250) -> Iterator[bytes]:
    """Yield crops of the photographs, ``distinct`` different ones over and over."""
    made = [_crop(number) for number in range(min(count, distinct))]
    for number in range(count):
        yield made[number % len(made)]


def _crop(number: int) -> bytes:
    rng = np.random.default_rng(number)
    pictures = [*load_sample_images().images, skimage.data.astronaut(), skimage.data.coffee()]
    picture = pictures[number % len(pictures)]
    picture = np.tile(picture, (2, 2, 1))  # larger than a crop in every direction
    top = int(rng.integers(0, picture.shape[0] - SIZE[0]))
    left = int(rng.integers(0, picture.shape[1] - SIZE[1]))
    crop = np.ascontiguousarray(picture[top : top + SIZE[0], left : left + SIZE[1]])
    data: bytes = simplejpeg.encode_jpeg(crop, 92, "RGB", "420")
    return data
