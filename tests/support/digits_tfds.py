"""A stand-in for ``tensorflow_datasets``, whose data cannot be downloaded: scikit-learn's digits as MNIST."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from support import digits_mnist

__all__ = ["load"]


def load(name: str, split: str, data_dir: str | None = None) -> Any:
    """Give a dataset of dicts with an image of 28x28x1 and a label."""
    assert name == "mnist"
    images, labels = digits_mnist.load_data()[0 if split == "train" else 1]
    return tf.data.Dataset.from_tensor_slices({"image": images[..., None], "label": labels.astype(np.int64)})
