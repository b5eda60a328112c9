"""Colours and numbers as pictures: masks, heat-maps, and what of an array is drawn."""

from __future__ import annotations

import colorsys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

__all__ = ["decimated", "heat", "mask", "rests"]

#: Points of a colour scale that grows evenly brighter, from deep blue over green to yellow.
_SCALE = np.array(
    [[33, 20, 84], [45, 66, 138], [35, 112, 142], [32, 156, 133], [106, 199, 95], [233, 221, 66]], np.float64
)
_VOID = 255
#: The hue of the first class, and the step to the next: the golden section keeps neighbours far apart.
_FIRST = 0.54
_GOLDEN = 0.618034


def heat(values: NDArray[Any]) -> Image:
    """Paint a table of numbers, the least dark and the greatest bright; what is no number is clear.

    >>> heat(np.arange(6).reshape(2, 3)).size
    (3, 2)
    """
    from PIL import Image

    numbers = values.astype(np.float64)
    finite = np.isfinite(numbers)
    low, high = (numbers[finite].min(), numbers[finite].max()) if finite.any() else (0.0, 1.0)
    shares = np.clip((np.where(finite, numbers, low) - low) / max(high - low, 1e-12), 0, 1) * (len(_SCALE) - 1)
    before = np.minimum(shares.astype(np.int64), len(_SCALE) - 2)
    colours = _SCALE[before] + (_SCALE[before + 1] - _SCALE[before]) * (shares - before)[..., None]
    return Image.fromarray(np.dstack([colours.round().astype(np.uint8), np.where(finite, 255, 0).astype(np.uint8)]))


def mask(labels: NDArray[Any]) -> Image:
    """Paint the numbers of classes, each in a colour of its own; 0 is clear, and 255 (undecided) grey.

    >>> mask(np.array([[0, 1]], np.uint8)).getpixel((0, 0))
    (0, 0, 0, 0)
    """
    from PIL import Image

    if labels.ndim == 3:  # colours already
        alpha = np.where(labels[..., :3].any(axis=-1), 255, 0).astype(np.uint8)
        return Image.fromarray(np.dstack([labels[..., :3].astype(np.uint8), alpha]))
    found, places = np.unique(labels, return_inverse=True)
    two_tone = set(found.tolist()) <= {0, _VOID} or found.dtype == bool
    palette = np.array([_label_colour(int(label), two_tone) for label in found.tolist()], np.uint8)
    return Image.fromarray(palette[places.reshape(labels.shape)])


def _label_colour(label: int, two_tone: bool) -> tuple[int, int, int, int]:
    if label == 0:
        return 0, 0, 0, 0
    if label == _VOID and not two_tone:
        return 128, 128, 128, 160
    red, green, blue = colorsys.hsv_to_rgb((_FIRST + (label - 1) * _GOLDEN) % 1.0, 0.68, 0.95)
    return round(red * 255), round(green * 255), round(blue * 255), 255


def decimated(values: NDArray[Any], points: int) -> list[list[float | None]]:
    """Give the least and the greatest number of each piece of a row of numbers, so that no peak is lost.

    >>> decimated(np.array([1, 5, 2, 0]), 2)
    [[1.0, 5.0], [0.0, 2.0]]
    """
    numbers = values.astype(np.float64)
    if len(numbers) <= points:
        return [[_number(value), _number(value)] for value in numbers.tolist()]
    cuts = np.linspace(0, len(numbers), points + 1).astype(np.int64)
    with np.errstate(all="ignore"):
        lows = np.fmin.reduceat(numbers, cuts[:-1]).tolist()
        highs = np.fmax.reduceat(numbers, cuts[:-1]).tolist()
    return [[_number(low), _number(high)] for low, high in zip(lows, highs, strict=True)]


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None


def rests(array: NDArray[Any], edge: int) -> NDArray[Any]:
    """Give a table of at most so many rows and columns of an array: its first slices, and every so-manieth number."""
    while array.ndim > 2:
        array = array[0]
    steps = [max(-(-size // edge), 1) for size in array.shape]
    return array[:: steps[0], :: steps[1]]
