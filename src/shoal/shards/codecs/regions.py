"""A part of a picture, without the work and the memory of the rest where the format allows it.

Of a JPEG only the part is decoded, through TurboJPEG 3 if it is there (``pip install "shoal[images]"``), else all of it
through simplejpeg; at a half, a quarter or an eighth of the size if that is asked for. Every other picture is decoded
as `decode` does it, and the part is cut out. Pixels are RGB of 8 bits by the rules of `DecodeOptions.images`: alpha is
dropped, 16-bit samples keep their high byte, an EXIF orientation is not applied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from shoal.errors import DecodeError
from shoal.shards.codecs import _pillow, _turbo
from shoal.shards.codecs._codec import Data
from shoal.shards.codecs._field import decode_with
from shoal.shards.codecs._image import ImageCodec
from shoal.shards.codecs._jpeg import is_jpeg
from shoal.shards.codecs._options import DecodeOptions

__all__ = ["Region", "cut_region", "read_region", "rgb_pixels"]

_CODEC = ImageCodec("image")
_END = b"\xff\xd9"


class Region(NamedTuple):
    """A rectangle of a picture that was made smaller by ``scale``: 1, 2, 4 or 8, sides being rounded up.

    >>> Region(0, 0, 250, 188, scale=2).scale
    2
    """

    left: int
    top: int
    width: int
    height: int
    scale: int = 1


def read_region(
    field: str,
    data: Data,
    choose: Callable[[int, int], Region],
    *,
    max_pixels: int,
    memory: Callable[[int], NDArray[np.uint8]] = lambda size: np.empty(size, np.uint8),
) -> NDArray[np.uint8]:
    """Decode the region that ``choose(width, height)`` names: an array (height, width, 3).

    It may lie in what ``memory(size)`` gave. A file that ends too early is an error even if the region was whole;
    damage in rows that the region does not need may go unseen.

    >>> from shoal.shards.codecs import encode
    >>> data = encode("jpg", np.zeros((30, 40, 3), np.uint8))
    >>> read_region("jpg", data, lambda width, height: Region(5, 6, 7, 8), max_pixels=10_000).shape
    (8, 7, 3)
    """
    # Rows below the region are not looked at, so that a file was cut is told by the mark at its end.
    if is_jpeg(data) and bytes(data[-2:]) == _END:
        try:
            pixels = _read_jpeg(data, choose, max_pixels, memory)
        except DecodeError as error:
            error.field = field
            raise
        if pixels is not None:
            return pixels
    whole = decode_with(_CODEC, field, data, DecodeOptions(max_pixels=max_pixels))
    return cut_region(whole, choose(whole.shape[1], whole.shape[0]))


def cut_region(pixels: NDArray[np.uint8], region: Region) -> NDArray[np.uint8]:
    """Take a region out of decoded pixels; a smaller scale takes the mean of squares, as a JPEG's does nearly.

    >>> cut_region(np.zeros((31, 40, 3), np.uint8), Region(0, 0, 20, 16, scale=2)).shape
    (16, 20, 3)
    """
    left, top, width, height, scale = region
    part = pixels[top * scale : (top + height) * scale, left * scale : (left + width) * scale]
    return part if scale == 1 else np.asarray(Image.fromarray(np.ascontiguousarray(part)).reduce(scale))


def rgb_pixels(image: Image.Image) -> NDArray[np.uint8]:
    """Give the RGB pixels of a PIL image.

    >>> rgb_pixels(Image.new("L", (4, 3))).shape
    (3, 4, 3)
    """
    return np.asarray(_pillow.convert(image, "RGB"))


def _read_jpeg(
    data: Data,
    choose: Callable[[int, int], Region],
    max_pixels: int,
    memory: Callable[[int], NDArray[np.uint8]],
) -> NDArray[np.uint8] | None:
    """Decode the fast way; None where it takes Pillow to judge."""
    decoder = _turbo.decoder(data)
    if decoder is None:
        return _read_all(data, choose, max_pixels, memory)
    header = decoder.header()
    if header is None:
        return None
    _pillow.check_size(header.width, header.height, max_pixels)
    region = choose(header.width, header.height)
    return decoder.read(header, region[:4], region.scale, memory)


def _read_all(
    data: Data,
    choose: Callable[[int, int], Region],
    max_pixels: int,
    memory: Callable[[int], NDArray[np.uint8]],
) -> NDArray[np.uint8] | None:
    try:
        height, width, space, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError:
        return None
    _pillow.check_size(width, height, max_pixels)
    if space in ("CMYK", "YCCK"):
        return None
    left, top, wide, high, scale = choose(width, height)
    least_high, least_wide = -(-height // scale), -(-width // scale)
    try:
        # With a minimum of exactly 1/scale, the fraction that is picked is 1/scale.
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(
            data,
            "RGB",
            min_height=least_high if scale > 1 else 0,
            min_width=least_wide if scale > 1 else 0,
            fastdct=False,
            fastupsample=False,
            buffer=memory(3 * least_high * least_wide),
        )
    except ValueError:
        return None
    return pixels[top : top + high, left : left + wide] if pixels.shape[:2] == (least_high, least_wide) else None
