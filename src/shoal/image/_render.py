"""One pass over one picture: from its bytes, or what was decoded, to its row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.image._find import pixels_of
from shoal.image._pixels import SCRATCH, mirrored, normalised, sample_box
from shoal.image._windows import Window, region_of, seen_from
from shoal.shards.codecs.regions import Region, cut_region, read_region

__all__ = ["Job"]

Pixels = NDArray[np.uint8]


class Job:
    """What is to be done to the pictures of one block; each stage puts in its share."""

    def __init__(self, row: tuple[tuple[int, ...], np.dtype[Any]] | None) -> None:
        self._row = row
        self.max_pixels = 0
        self.window: Callable[[int, int, int], Window] | None = None
        """The window for a sample of the block, by its place there, and its width and height."""
        self.flips: Sequence[bool] | None = None
        self.factors: tuple[Sequence[float], Sequence[float]] | None = None
        """What each colour is multiplied with, and what is added then."""

    def render(self, field: str, value: Any, at: int, row: NDArray[Any] | None) -> NDArray[Any]:
        """Treat the picture of sample ``at``, into the row if there is one."""
        flipped = self.flips is not None and self.flips[at]
        if self.factors is None:
            return self._coloured(field, value, at, row, flipped)
        seen = self._whole(field, value) if self.window is None else self._seen(field, value, at, None)
        shape = (3, *seen.shape[:2])
        target = np.empty(shape, np.float32) if row is None else row
        normalised(seen, *self.factors, target, flipped=flipped)
        return target

    def _coloured(self, field: str, value: Any, at: int, row: Pixels | None, flipped: bool) -> Pixels:
        """Give uint8 (height, width, 3), in memory that nobody uses again."""
        if self.window is None:
            seen = self._whole(field, value)
            target = np.empty(seen.shape, np.uint8)
            if flipped:
                mirrored(seen, target)
            else:
                np.copyto(target, seen)
            return target
        assert self._row is not None
        direct = row if row is not None and row.flags.c_contiguous else np.empty(*self._row)
        self._seen(field, value, at, direct)
        if flipped:
            mirrored(direct, direct)
        if row is None or direct is row:
            return direct
        np.copyto(row, direct)
        return row

    def _whole(self, field: str, value: Any) -> Pixels:
        return self._read(field, value, lambda width, height: Region(0, 0, width, height))

    def _seen(self, field: str, value: Any, at: int, target: Pixels | None) -> Pixels:
        """Fill the target, or memory of this thread, with what the window shows."""
        assert self.window is not None
        assert self._row is not None
        window: Any = self.window
        chosen: list[Any] = []

        def choose(width: int, height: int) -> Region:
            found = window(at, width, height)
            region = region_of(found, width, height)
            chosen[:] = found, region
            return region

        source = self._read(field, value, choose)
        found, region = chosen
        if target is None:
            high, wide = self._row[0][1:]
            target = SCRATCH.take("seen", 3 * high * wide).reshape(high, wide, 3)
        if found.place is None:
            sample_box(source, seen_from(region, found), target)
        else:
            _sample_inside(source, seen_from(region, found), found, target)
        return target

    def _read(self, field: str, value: Any, choose: Callable[[int, int], Region]) -> Pixels:
        if isinstance(value, bytes | memoryview | bytearray):
            data = bytes(value) if isinstance(value, bytearray) else value
            return read_region(field, data, choose, max_pixels=self.max_pixels, memory=SCRATCH.source)
        pixels = pixels_of(value, field)
        return cut_region(pixels, choose(pixels.shape[1], pixels.shape[0]))


def _sample_inside(source: Pixels, box: tuple[float, float, float, float], window: Window, target: Pixels) -> None:
    """Fill a part of the target, and the rest with black."""
    assert window.place is not None
    (high, wide), (top, left) = window.size, window.place
    part = np.empty((high, wide, 3), np.uint8)
    sample_box(source, box, part)
    target[:] = 0
    target[top : top + high, left : left + wide] = part
