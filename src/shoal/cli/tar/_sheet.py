"""A contact sheet: the pictures of many samples in one, each with its key and class below."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from shoal.cli.tar._pictures import small

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Tile", "contact_sheet"]

_SIDE, _GAP, _LINE, _LETTER = 128, 8, 12, 6


class Tile(NamedTuple):
    """A picture, already small, and the lines below it."""

    picture: Image
    captions: tuple[str, ...]

    @classmethod
    def of(cls, picture: Image, captions: tuple[str, ...]) -> Tile:
        """Make a tile, which needs little memory however large the picture is."""
        return cls(small(picture, _SIDE, _SIDE).convert("RGB"), captions)


def contact_sheet(tiles: Sequence[Tile]) -> bytes:
    """Draw a sheet that is about as wide as it is high, as a PNG file."""
    from PIL import Image, ImageDraw, ImageFont

    columns = max(math.ceil(math.sqrt(len(tiles))), 1)
    lines = max((len(tile.captions) for tile in tiles), default=0)
    width, height = _SIDE + _GAP, _SIDE + _GAP + lines * _LINE
    rows = max(math.ceil(len(tiles) / columns), 1)
    sheet = Image.new("RGB", (columns * width + _GAP, rows * height + _GAP), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default()
    for number, tile in enumerate(tiles):
        left, top = _GAP + number % columns * width, _GAP + number // columns * height
        indent = (_SIDE - tile.picture.width) // 2, (_SIDE - tile.picture.height) // 2
        sheet.paste(tile.picture, (left + indent[0], top + indent[1]))
        for line, caption in enumerate(tile.captions):
            draw.text((left, top + _SIDE + line * _LINE), _fitting(caption), fill="black", font=font)
    file = io.BytesIO()
    sheet.save(file, "PNG")
    return file.getvalue()


def _fitting(caption: str) -> str:
    """Keep the end, where keys differ; the font that is always there has the letters of ASCII."""
    text = caption.encode("ascii", "replace").decode("ascii")
    most = _SIDE // _LETTER
    return text if len(text) <= most else "..." + text[3 - most :]
