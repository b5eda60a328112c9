"""Photographs as they come in practice: JPEG files of about 500x375 pixels and 95 KB, quality 90, 4:2:0.

They are cut at random from the photographs that come with scikit-learn and scikit-image, with grain added until a file
has the size of a typical one of ImageNet at that quality.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import simplejpeg
import skimage.data
from sklearn.datasets import load_sample_images

HEIGHT, WIDTH, QUALITY = 375, 500, 90
SPREAD = 40
"""Sides differ by up to so many pixels, as real ones do."""
GRAIN = 13.0
"""Standard deviation of the noise; it brings the mean file to about 95 KB."""


def images(count: int) -> Iterator[bytes]:
    """Yield so many different files, the same ones each time."""
    pictures = [*load_sample_images().images, skimage.data.astronaut(), skimage.data.coffee()]
    pictures = [np.tile(picture, (2, 2, 1)) for picture in pictures]  # larger than a cut in every direction
    noise = np.random.default_rng(0).normal(0, GRAIN, (1024, 1024, 1)).astype(np.float32)
    for number in range(count):
        yield _cut(pictures[number % len(pictures)], noise, np.random.default_rng(number))


def _cut(picture: np.ndarray, noise: np.ndarray, rng: np.random.Generator) -> bytes:
    height, width = (int(side + rng.integers(-SPREAD, SPREAD + 1)) for side in (HEIGHT, WIDTH))
    cut = _window(picture, height, width, rng) + _window(noise, height, width, rng)
    pixels = np.clip(cut, 0, 255).astype(np.uint8)
    data: bytes = simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), QUALITY, "RGB", "420")
    return data


def _window(array: np.ndarray, height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    top = int(rng.integers(0, array.shape[0] - height + 1))
    left = int(rng.integers(0, array.shape[1] - width + 1))
    return array[top : top + height, left : left + width]
