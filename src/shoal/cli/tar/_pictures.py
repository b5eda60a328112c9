"""Pictures on a terminal: kitty's protocol, iTerm2's, sixel, or two coloured pixels in each character.

What a terminal is sent is made of pixels alone, never of the bytes of a file.
"""

from __future__ import annotations

import base64
import io
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from shoal import settings

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["PROTOCOLS", "Draw", "drawer", "protocol_of", "small"]

#: What makes the characters of a picture.
Draw: TypeAlias = "Callable[[Image], str]"

_KITTY_TERMS = ("kitty", "ghostty")
_SIXEL_TERMS = ("foot", "mlterm", "sixel", "yaft", "contour")
_PROGRAMS = {"ghostty": "kitty", "iTerm.app": "iterm2", "WezTerm": "iterm2", "mintty": "iterm2"}
_PIECE = 4096  # kitty takes no longer one
_COLOURS = 64
_PIXELS = 480, 320


def protocol_of(term: str, program: str) -> str:
    """Tell from ``TERM`` and ``TERM_PROGRAM`` how a terminal takes pictures.

    >>> protocol_of("xterm-kitty", ""), protocol_of("xterm-256color", "iTerm.app"), protocol_of("linux", "")
    ('kitty', 'iterm2', 'blocks')
    """
    if any(name in term for name in _KITTY_TERMS):
        return "kitty"
    if program in _PROGRAMS:
        return _PROGRAMS[program]
    return "sixel" if any(name in term for name in _SIXEL_TERMS) else "blocks"


def drawer(protocol: str) -> Draw:
    """Make what draws pictures by a protocol; ``auto`` is the one that this terminal is known to take."""
    if protocol == "auto":
        term, program = (settings.variable(name) or "" for name in ("TERM", "TERM_PROGRAM"))
        protocol = protocol_of(term, program) if sys.stdout.isatty() else "blocks"
    width, height = _PIXELS if protocol != "blocks" else (min(shutil.get_terminal_size().columns, 64), 48)
    return lambda picture: PROTOCOLS[protocol](small(picture, width, height))


def small(image: Image, width: int, height: int) -> Image:
    """Make a picture fit into so many pixels, and never larger than it is."""
    scale = min(width / image.width, height / image.height, 1.0)
    return image.resize((max(round(image.width * scale), 1), max(round(image.height * scale), 1)))


def _kitty(image: Image) -> str:
    text = base64.b64encode(_png(image)).decode("ascii")
    pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    return "".join(_kitty_piece(piece, number, len(pieces)) for number, piece in enumerate(pieces)) + "\n"


def _kitty_piece(piece: str, number: int, count: int) -> str:
    first = "a=T,f=100," if number == 0 else ""
    return f"\x1b_G{first}m={int(number < count - 1)};{piece}\x1b\\"


def _iterm2(image: Image) -> str:
    data = _png(image)
    return f"\x1b]1337;File=inline=1;size={len(data)}:{base64.b64encode(data).decode('ascii')}\x07\n"


def _blocks(image: Image) -> str:
    """Put the upper pixel into the colour of the upper half of a block, and the lower one into its background."""
    rows = np.asarray(image.convert("RGB")).tolist()
    lines = []
    for upper, lower in zip_longest(rows[::2], rows[1::2]):
        pairs = zip_longest(upper, lower or [])
        lines.append("".join(f"{_colour(38, above)}{_colour(48, below)}▀" for above, below in pairs) + "\x1b[0m\n")
    return "".join(lines)


def _colour(which: int, pixel: Sequence[int] | None) -> str:
    return f"\x1b[{which + 1}m" if pixel is None else f"\x1b[{which};2;{pixel[0]};{pixel[1]};{pixel[2]}m"


def _sixel(image: Image) -> str:
    """Write six rows of pixels at a time, for each colour in them a line that is laid over the others."""
    few = image.convert("RGB").quantize(_COLOURS)
    palette = few.getpalette() or []
    colours = [palette[at : at + 3] for at in range(0, 3 * _COLOURS, 3)]
    registers = (
        f"#{number};2;" + ";".join(str(round(part / 2.55)) for part in colour)
        for number, colour in enumerate(colours)
        if colour
    )
    bands = (_band(few, top) for top in range(0, few.height, 6))
    return f'\x1bPq"1;1;{few.width};{few.height}' + "".join(registers) + "-".join(bands) + "\x1b\\\n"


def _band(image: Image, top: int) -> str:
    rows = [image.crop((0, row, image.width, row + 1)).tobytes() for row in range(top, min(top + 6, image.height))]
    used = sorted({colour for row in rows for colour in row})
    return "$".join(f"#{colour}" + "".join(_runs(_bits(rows, colour))) for colour in used)


def _bits(rows: list[bytes], colour: int) -> Iterator[str]:
    for column in zip(*rows, strict=True):
        yield chr(63 + sum((pixel == colour) << place for place, pixel in enumerate(column)))


def _runs(letters: Iterator[str]) -> Iterator[str]:
    """Shorten what repeats."""
    for letter, group in groupby(letters):
        count = len(list(group))
        yield f"!{count}{letter}" if count > 3 else letter * count


def _png(image: Image) -> bytes:
    file = io.BytesIO()
    image.convert("RGB").save(file, "PNG")
    return file.getvalue()


#: Name -> what makes the characters of a picture.
PROTOCOLS: dict[str, Draw] = {
    "kitty": _kitty,
    "iterm2": _iterm2,
    "sixel": _sixel,
    "blocks": _blocks,
}
