"""JPEG by the fast way: straight between bytes and an array, without the interpreter lock."""

from __future__ import annotations

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from shoal.shards.codecs._codec import Data
from shoal.shards.codecs._pillow import check_size

__all__ = ["is_jpeg", "read", "write"]

_SPACES = {"L": "GRAY", "RGB": "RGB", "RGBA": "RGBA"}


def is_jpeg(data: Data) -> bool:
    """Tell by the first bytes."""
    return bytes(data[:3]) == b"\xff\xd8\xff"


def read(data: Data, mode: str, max_pixels: int) -> NDArray[np.uint8] | None:
    """Decode, or give None where the file is for Pillow to judge: CMYK, odd sampling, or damage.

    The slow and exact transforms are used, so the pixels equal Pillow's; grey is the file's own luma.
    """
    try:
        height, width, space, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError:
        return None
    check_size(width, height, max_pixels)
    if space in ("CMYK", "YCCK"):
        return None
    try:
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, _SPACES[mode], fastdct=False, fastupsample=False)
    except ValueError:
        return None
    return pixels[:, :, 0] if mode == "L" else pixels


def write(pixels: NDArray[np.uint8], quality: int) -> bytes:
    """Encode a grey or RGB array with 4:2:0 colours."""
    if pixels.ndim == 2:
        pixels, space, sampling = pixels[:, :, None], "GRAY", "Gray"
    else:
        space, sampling = "RGB", "420"
    data: bytes = simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), quality, space, sampling)
    return data
