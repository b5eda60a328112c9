"""Every picture format that Pillow reads and writes safely.

Files are opened by the class of their format, chosen by the first bytes. So nothing but these formats is ever parsed
(Pillow's list has some that start other programs), and the one limit on pixels is ours, not a number kept in Pillow.
"""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np
from PIL import Image

from shoal.errors import DecodeError, EncodeError
from shoal.shards.codecs._codec import Data

__all__ = ["check_size", "convert", "fit", "format_of", "open_", "write"]

#: first bytes, at an offset -> Pillow's plugin
_MAGIC = (
    (0, b"\x89PNG\r\n\x1a\n", "Png"),
    (0, b"\xff\xd8\xff", "Jpeg"),
    (0, b"GIF8", "Gif"),
    (0, b"BM", "Bmp"),
    (8, b"WEBP", "WebP"),
    (0, b"II*\0", "Tiff"),
    (0, b"MM\0*", "Tiff"),
    (0, b"II+\0", "Tiff"),
    (0, b"MM\0+", "Tiff"),
    *((0, b"P%d" % number, "Ppm") for number in range(1, 7)),
    (4, b"jP  \r\n\x87\n", "Jpeg2K"),
    (0, b"\xffO\xffQ", "Jpeg2K"),
    (4, b"ftypavif", "Avif"),
    (4, b"ftypavis", "Avif"),
)

#: extension -> Pillow's format, the modes it holds, and how to save without loss
_WRITERS: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "png": ("PNG", ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"), {}),
    "webp": ("WEBP", ("RGB", "RGBA"), {"lossless": True, "exact": True}),
    "tif": ("TIFF", ("1", "L", "LA", "P", "RGB", "RGBA", "I;16", "F", "CMYK"), {}),
    "bmp": ("BMP", ("1", "L", "P", "RGB"), {}),
    "gif": ("GIF", ("1", "L", "P", "RGB", "RGBA"), {}),
    "ppm": ("PPM", ("RGB",), {}),
    "pgm": ("PPM", ("L", "I;16"), {}),
    "pbm": ("PPM", ("1",), {}),
    "pnm": ("PPM", ("1", "L", "RGB", "I;16"), {}),
    "jp2": ("JPEG2000", ("L", "LA", "RGB", "RGBA", "I;16"), {}),
    "jpg": ("JPEG", ("L", "RGB"), {}),
}
_WRITERS |= {"tiff": _WRITERS["tif"], **dict.fromkeys(("jpeg", "jpe", "img", "image"), _WRITERS["jpg"])}
_WIDER = {"1": "L", "L": "RGB", "LA": "RGBA", "P": "RGB", "PA": "RGBA"}
_PLAIN = ("RGB", "L", "1")
_HIGH_BYTE = ("I;16", "I;16L", "I;16B", "I;16N")


def check_size(width: int, height: int, max_pixels: int) -> None:
    """Refuse a picture that its header says is too large, before memory is taken for it."""
    if width * height > max_pixels:
        raise DecodeError(
            f"the picture is {width} x {height} pixels, more than the limit of {max_pixels}; "
            "raise max_pixels (SHOAL_MAX_PIXELS) if it is meant to be that large"
        )


def open_(data: Data, max_pixels: int) -> Image.Image:
    """Read the header of a file: its size, which is checked, its mode and its notes, but no pixels yet."""
    image: Image.Image = _factory(bytes(data[:16]))(io.BytesIO(data))
    check_size(image.width, image.height, max_pixels)
    return image


def convert(image: Image.Image, mode: str) -> Image.Image:
    """Give an image of 8-bit samples in the mode, on its own: not tied to the file it came from."""
    image.load()
    if image.mode in _HIGH_BYTE or (image.mode == "I" and image.format in ("PNG", "PPM")):
        samples = np.asarray(image).astype(np.uint16)
        image = Image.fromarray((samples >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise DecodeError(
            f"the picture has 32-bit samples (mode {image.mode}), which have no meaning in 8 bits; "
            "use images='bytes' and open it yourself"
        )
    elif image.mode in ("P", "PA") and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert(mode)


def format_of(extension: str) -> str:
    """Give Pillow's name of the format that an extension is written in."""
    return _writer(extension)[0]


def fit(image: Image.Image, extension: str) -> Image.Image:
    """Widen an image, without loss, to a mode that the extension's format holds."""
    given = image.mode
    modes = _writer(extension)[1]
    while image.mode not in modes:
        wider = "RGBA" if image.mode == "P" and "transparency" in image.info else _WIDER.get(image.mode)
        if wider is None:
            raise EncodeError(
                f"{extension} holds images of mode {', '.join(modes)}, not {given}; "
                f"convert it first: image.convert({next(mode for mode in _PLAIN if mode in modes)!r})"
            )
        image = image.convert(wider)
    return image


def write(image: Image.Image, extension: str) -> bytes:
    """Encode an image."""
    format_, _, options = _writer(extension)
    file = io.BytesIO()
    fit(image, extension).save(file, format_, **options)
    return file.getvalue()


def _factory(head: bytes) -> Any:
    for offset, magic, plugin in _MAGIC:
        if head.startswith(magic, offset):
            module = importlib.import_module(f"PIL.{plugin}ImagePlugin")
            return getattr(module, f"{plugin}ImageFile")
    raise ValueError("the first bytes are of no known picture format")


def _writer(extension: str) -> tuple[str, tuple[str, ...], dict[str, Any]]:
    try:
        return _WRITERS[extension]
    except KeyError:
        raise EncodeError(f"{extension} is only read; write one of: {' '.join(_WRITERS)}") from None
