"""Pictures, to and from any of the forms in `SPECS`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        if spec.container == "pil":
            return _pillow.convert(_pillow.read(data, options.max_pixels), spec.mode)
        return _shape(_pixels(data, spec.mode, options.max_pixels), spec)

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Write a PIL image, an array with its channels last, or a tensor with its channels first."""
        image = to_image(value)
        if _pillow.format_of(self.extension) == "JPEG":
            return _jpeg.write(np.asarray(_pillow.fit(image, self.extension)), options.jpeg_quality)
        return _pillow.write(image, self.extension)


def _pixels(data: Data, mode: str, limit: int) -> NDArray[np.uint8]:
    if _jpeg.is_jpeg(data):
        pixels = _jpeg.read(data, mode, limit)
        if pixels is not None:
            return pixels
    return np.array(_pillow.convert(_pillow.read(data, limit), mode))


def _shape(pixels: NDArray[np.uint8], spec: ImageSpec) -> Any:
    array: NDArray[Any] = np.divide(pixels, np.float32(255), dtype=np.float32) if spec.floating else pixels
    return channels_first(array) if spec.container == "torch" else array
