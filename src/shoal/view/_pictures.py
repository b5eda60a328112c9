"""Pictures for the page: small ones, whole ones, masks, heat-maps; made when they are looked at."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal._array_picture import picture_of
from shoal.errors import DecodeError
from shoal.shards.codecs import open_picture
from shoal.view._cells import heat, mask

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["File", "header", "is_picture_file", "labels_of", "painted", "small", "written"]

_MAGIC = (
    (0, b"\x89PNG\r\n\x1a\n"), (0, b"\xff\xd8\xff"), (0, b"GIF8"), (8, b"WEBP"), (0, b"II*\0"), (0, b"MM\0*"),
    (4, b"ftypavif"), (4, b"jP  "),
)  # fmt: skip
#: Modes that a browser shows as they are.
_PLAIN = ("L", "RGB", "RGBA")
_QUALITY = 82
_WIDE = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")


class File(NamedTuple):
    """The bytes of a file, and its type."""

    data: bytes
    type: str


def is_picture_file(data: bytes | memoryview) -> bool:
    """Tell by its first bytes whether a file is a picture.

    >>> is_picture_file(b"GIF89a"), is_picture_file(b"text")
    (True, False)
    """
    head = bytes(data[:16])
    return any(head.startswith(magic, offset) for offset, magic in _MAGIC)


def header(name: str, data: bytes | memoryview) -> tuple[int, int, str, str]:
    """Read width, height, format and mode; no pixel is decoded."""
    image = open_picture(name, data)
    return image.width, image.height, image.format or "", image.mode


def small(name: str, data: bytes | memoryview, edge: int) -> Image:
    """Decode a picture no larger than needed: a JPEG at the smallest of its own scales that is large enough."""
    image = open_picture(name, data)
    image.draft("RGB", (edge, edge))
    return painted(name, image, edge)


def painted(name: str, image: Image, edge: int | None = None) -> Image:
    """Bring a picture into a mode that a browser shows, and into a size, turned as it was held."""
    from PIL import ImageOps

    try:
        image.load()
        image = ImageOps.exif_transpose(image)
        if image.mode in _WIDE:
            image = picture_of(np.asarray(image).astype(np.float64))
        elif image.mode not in _PLAIN:
            clear = image.mode in ("LA", "PA") or "transparency" in image.info
            image = image.convert("RGBA" if clear else "RGB")
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise DecodeError(f"the picture cannot be decoded: {error}", field=name) from error
    if edge is not None:
        image.thumbnail((edge, edge))
    return image


def labels_of(name: str, value: Any) -> Image:
    """Paint a mask: a picture of labels, or an array of them."""
    if isinstance(value, bytes | memoryview):
        image = open_picture(name, value)
        try:
            image.load()
        except (OSError, ValueError, SyntaxError) as error:
            raise DecodeError(f"the picture cannot be decoded: {error}", field=name) from error
        value = np.asarray(image if image.mode in ("P", "L", "1", *_WIDE) else image.convert("RGB"))
    array = np.asarray(value)
    return mask(array if array.ndim == 3 else array.astype(np.int64)) if array.ndim in (2, 3) else heat(array)


def written(image: Image) -> File:
    """Write a picture for a browser: small ones and clear ones without loss, others as JPEG.

    >>> from PIL import Image
    >>> written(Image.new("RGB", (8, 8))).type, written(Image.new("RGB", (800, 800))).type
    ('image/png', 'image/jpeg')
    """
    file, tiny = io.BytesIO(), image.width * image.height <= 64 * 64
    if tiny or image.mode == "RGBA":
        image.save(file, "PNG", compress_level=1)
        return File(file.getvalue(), "image/png")
    image.save(file, "JPEG", quality=_QUALITY)
    return File(file.getvalue(), "image/jpeg")
