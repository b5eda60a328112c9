"""A stand-in for torchvision's ``datasets`` where MNIST cannot be downloaded.

These are scikit-learn's digits, 8x8 pixels in 17 grey levels, enlarged to 28x28 and moved round so that, as in MNIST,
the first one is a five.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn.datasets
from PIL import Image


class MNIST:
    def __init__(
        self, root: str, train: bool = True, transform: Callable[[Any], Any] | None = None, download: bool = False
    ) -> None:
        digits = sklearn.datasets.load_digits()
        self._images = np.roll((digits.images * 255 / 16).astype(np.uint8), -5, axis=0)
        self._labels = np.roll(digits.target, -5)
        self._transform = transform

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = Image.fromarray(self._images[index]).resize((28, 28), Image.Resampling.NEAREST)
        return image if self._transform is None else self._transform(image), int(self._labels[index])
