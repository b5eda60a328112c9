"""The values that can be written as a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shoal._optional import is_tensor
from shoal.errors import EncodeError
from shoal.shards.codecs._torch import channels_last

__all__ = ["to_image"]

# Room for the rounding of a resize or a normalisation that was undone, as WebDataset grants it.
_SLACK = 0.001


def to_image(value: Any) -> Image.Image:
    """Give a PIL image for a PIL image, an array with its channels last or a tensor with its channels first.

    >>> to_image(np.zeros((4, 6, 3))).size
    (6, 4)
    """
    if isinstance(value, Image.Image):
        return value
    if is_tensor(value):
        value = channels_last(value)
    if not isinstance(value, np.ndarray):
        raise EncodeError(f"a picture is written from a PIL image, an array or a tensor, not {type(value).__name__}")
    return Image.fromarray(_samples(_squeeze(value)))


def _squeeze(array: NDArray[Any]) -> NDArray[Any]:
    if 0 in array.shape or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))):
        raise EncodeError(
            f"an array of shape {array.shape} is not a picture, which is (height, width) or (height, width, 1, 3 or 4)"
        )
    return array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array


def _samples(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype == np.uint8 or (array.dtype == np.bool_ and array.ndim == 2):
        return array
    if not np.issubdtype(array.dtype, np.floating):
        raise EncodeError(
            f"a picture is written from uint8, float or (height, width) bool, not {array.dtype}; "
            "use array.astype('uint8') where the values fit, or a npy field where they do not"
        )
    low, high = float(array.min()), float(array.max())
    if not (low >= -_SLACK and high <= 1 + _SLACK):  # written so that NaN is refused too
        raise EncodeError(f"float pictures hold values from 0 to 1, these go from {low:g} to {high:g}; divide by 255?")
    pixels: NDArray[np.uint8] = np.rint(np.clip(array, 0, 1) * 255).astype(np.uint8)
    return pixels
