"""Which part of a picture is seen, as pure functions of its size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from shoal.shards.codecs.regions import Region

__all__ = ["DRAWS", "Window", "centred", "drawn", "region_of", "seen_from"]

_TRIES = 10
#: Numbers that `drawn` wants: an area and a ratio for each try, and a place.
DRAWS = 2 * _TRIES + 2
_SCALES = (8, 4, 2)


class Window(NamedTuple):
    """A box of a picture, in pixels of it, and the height and width that it is shown in."""

    left: float
    top: float
    width: float
    height: float
    size: tuple[int, int]
    """The height and width that the box becomes."""
    place: tuple[int, int] | None = None
    """Where that lies in the result (top, left), if it does not fill it."""


def drawn(
    width: int,
    height: int,
    size: tuple[int, int],
    scale: tuple[float, float],
    ratio: tuple[float, float],
    numbers: Sequence[float],
) -> Window:
    """Draw a box by area and ratio, as torchvision does: up to ten tries, else the middle with its ratio clamped.

    >>> drawn(40, 30, (8, 8), (1, 1), (4 / 3, 4 / 3), [0.5] * DRAWS)[:4]
    (0, 0, 40, 30)
    """
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for number in range(_TRIES):
        area = width * height * (scale[0] + (scale[1] - scale[0]) * numbers[2 * number])
        shape = math.exp(low + (high - low) * numbers[2 * number + 1])
        wide, tall = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < wide <= width and 0 < tall <= height:
            left, top = int(numbers[-2] * (width - wide + 1)), int(numbers[-1] * (height - tall + 1))
            return Window(left, top, wide, tall, size)
    wide, tall = width, height
    if width / height < ratio[0]:
        tall = max(1, round(width / ratio[0]))
    elif width / height > ratio[1]:
        wide = max(1, round(height * ratio[1]))
    return Window((width - wide) // 2, (height - tall) // 2, wide, tall, size)


def centred(width: int, height: int, size: tuple[int, int], resize: int | None) -> Window:
    """Find the box that is left of the middle after the shorter side was made ``resize`` long.

    >>> centred(500, 400, (224, 224), 256)[:4]
    (75.0, 25.0, 350.0, 350.0)
    """
    wide, tall = width, height
    if resize is not None:
        shorter = min(width, height)
        wide, tall = int(resize * width / shorter), int(resize * height / shorter)
    across, down = _middle(wide, size[1]), _middle(tall, size[0])
    place = None if (down[1], across[1]) == size else (down[2], across[2])
    step_x, step_y = width / wide, height / tall
    box = across[0] * step_x, down[0] * step_y, across[1] * step_x, down[1] * step_y
    return Window(*box, (down[1], across[1]), place)


def _middle(length: int, wanted: int) -> tuple[int, int, int]:
    """Say where the middle begins, how long it is, and where it lies in what was wanted if that is longer."""
    if length < wanted:
        return 0, length, (wanted - length) // 2
    return round((length - wanted) / 2), wanted, 0


def region_of(window: Window, width: int, height: int) -> Region:
    """Give the pixels that a window needs, at the smallest scale that still has as many as it shows.

    >>> region_of(Window(10, 20, 500, 460, (224, 224)), 640, 480)
    Region(left=5, top=10, width=250, height=230, scale=2)
    """
    tall, wide = window.size
    scale = next((scale for scale in _SCALES if window.width >= scale * wide and window.height >= scale * tall), 1)
    left, right = _reach(window.left / scale, window.width / scale, -(-width // scale))
    top, bottom = _reach(window.top / scale, window.height / scale, -(-height // scale))
    return Region(left, top, right - left, bottom - top, scale)


def _reach(begin: float, length: float, limit: int) -> tuple[int, int]:
    """Give whole pixels; where the window cuts some, one more on each side, so that there is no edge there."""
    first, last = math.floor(begin), math.ceil(begin + length)
    if first == begin and last == begin + length:
        return first, last
    return max(0, first - 1), min(limit, last + 1)


def seen_from(region: Region, window: Window) -> tuple[float, float, float, float]:
    """Give the box of a window in pixels of its region.

    >>> seen_from(Region(5, 10, 250, 230, scale=2), Window(10, 20, 500, 460, (224, 224)))
    (0.0, 0.0, 250.0, 230.0)
    """
    scale = region.scale
    left, top = window.left / scale - region.left, window.top / scale - region.top
    return left, top, window.width / scale, window.height / scale
