"""Pictures, to and from any of the forms in `SPECS`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shoal.shards.codecs import _jpeg, _pillow
from shoal.shards.codecs._codec import Data
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions
from shoal.shards.codecs._pixels import to_image
from shoal.shards.codecs._spec import SPECS, ImageSpec
from shoal.shards.codecs._torch import channels_first

__all__ = ["ImageCodec"]


@dataclass(frozen=True, slots=True)
class ImageCodec:
    """Read a picture by what its bytes say, and write it in the format that its extension names.

    >>> data = ImageCodec("png").encode(np.zeros((2, 3, 3), np.uint8), EncodeOptions())
    >>> ImageCodec("png").decode(data, DecodeOptions(images="l8")).shape
    (2, 3)
    """

    extension: str
    kind = "a picture"

    def decode(self, data: Data, options: DecodeOptions) -> Any:
        """Decode into the form that ``options.images`` names; a jpeg goes the fast way whatever it is called."""
        spec = SPECS[options.images]
        if spec is None:
            return bytes(data)
        read = _read_image if spec.container == "pil" else _read_array
        return read(data, spec, options.max_pixels)

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Write a PIL image, an array with its channels last, or a tensor with its channels first."""
        image = to_image(value)
        if _pillow.format_of(self.extension) == "JPEG":
            return _jpeg.write(np.asarray(_pillow.fit(image, self.extension)), options.jpeg_quality)
        return _pillow.write(image, self.extension)


def _read_array(data: Data, spec: ImageSpec, max_pixels: int) -> Any:
    pixels = _jpeg.read(data, spec.mode, max_pixels) if _jpeg.is_jpeg(data) else None
    if pixels is None:
        pixels = np.array(_pillow.convert(_pillow.open_(data, max_pixels), spec.mode))
    array: NDArray[Any] = np.divide(pixels, np.float32(255), dtype=np.float32) if spec.floating else pixels
    return channels_first(array) if spec.container == "torch" else array


def _read_image(data: Data, spec: ImageSpec, max_pixels: int) -> Image.Image:
    opened = _pillow.open_(data, max_pixels)
    if spec.mode == "raw":
        return opened.copy()
    pixels = _jpeg.read(data, spec.mode, max_pixels) if _jpeg.is_jpeg(data) else None
    if pixels is None:
        return _pillow.convert(opened, spec.mode)
    image = Image.fromarray(pixels)
    image.info = opened.info  # keeps EXIF and colour profile, as a conversion by Pillow does
    return image
