"""An array as a picture, whatever its numbers and wherever its colours are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import DecodeError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

__all__ = ["picture_of"]

#: How many numbers a pixel may have: grey, colours, or colours and how opaque.
_COLOURS = (1, 3, 4)


def picture_of(array: NDArray[Any]) -> Image:
    """Make a picture of rows and columns, with colours last, first, or none.

    Bytes are taken as they are. Other numbers from 0 to 1 are dark to bright, and if some are beyond that, it is from
    the least to the greatest.

    >>> picture_of(np.zeros((3, 20, 30), np.float32)).size
    (30, 20)
    """
    from PIL import Image

    pixels = _colours_last(array)
    if pixels.dtype != np.uint8:
        pixels = _bytes(pixels)
    return Image.fromarray(np.ascontiguousarray(pixels[..., :3] if pixels.ndim == 3 else pixels)).convert("RGB")


def _colours_last(array: NDArray[Any]) -> NDArray[Any]:
    if array.ndim == 3 and array.shape[-1] not in _COLOURS and array.shape[0] in _COLOURS:
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[-1] not in _COLOURS) or not array.size:
        raise DecodeError(f"an array of the shape {array.shape} is no picture, which has rows, columns and colours")
    return array


def _bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Bring numbers to 0 to 255; what is no number is dark."""
    known = np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = min(known.min(), 0.0), max(known.max(), 1.0)
    if low < 0 or high > 1:
        low, high = known.min(), known.max()
    made: NDArray[np.uint8] = ((known - low) / max(high - low, 1e-12) * 255).round().astype(np.uint8)
    return made
