"""``tensorshow``: the pictures in messages of Tensorcom."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from shoal._array_picture import picture_of
from shoal.cli._fields import many, printable
from shoal.cli._tensors import messages, opened, silence
from shoal.cli._tool import main, say, tool
from shoal.cli.tar._pictures import PROTOCOLS, drawer
from shoal.errors import DecodeError, PlanError
from shoal.files import open_read, open_write

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

__all__ = ["command", "run"]

_EXAMPLE = "tensorshow -B 4 --png sheet.png zsub://127.0.0.1:7880"
_DEFAULT = "zsub://127.0.0.1:788{0..3}"
_TILES = 100
_GAP = 4  # pixels between two pictures that belong together


@tool("tensorshow", example=_EXAMPLE)
@click.option("-b", "--unbatched", is_flag=True, help="Messages are samples, not batches of them.")
@click.option(
    "-m", "--mode", type=click.Choice(["imgclass", "img2img"]), default="imgclass", show_default=True,
    help="What messages are: pictures and classes, or pictures and pictures.",
)  # fmt: skip
@click.option(
    "-B", "--perbatch", type=click.IntRange(1), default=1, show_default=True, help="Show so many of each message."
)
@click.option("-C", "--classes", metavar="FILE", help="Names of classes: JSON, a list or an object.")
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after so many messages.")
@click.option(
    "--protocol", type=click.Choice(["auto", *PROTOCOLS]), default="auto", help="How the terminal takes pictures."
)
@click.option("--png", metavar="FILE", help="Write the pictures into one, a contact sheet of at most 100.")
@silence
@click.argument("urls", nargs=-1)
def command(
    urls: tuple[str, ...],
    unbatched: bool,
    mode: str,
    perbatch: int,
    classes: str | None,
    count: int | None,
    protocol: str,
    png: str | None,
    timeout: float | None,
) -> None:
    """Show the pictures in messages, in the terminal or as a contact sheet.

    URLS are those of Tensorcom, such as zsub://host:7880 or zpull://*:7880, and may have braces; without any it is
    zsub://127.0.0.1:7880 to 7883. It ends when all who send have ended.
    """
    names = {} if classes is None else _class_names(classes)
    with opened(urls, timeout, _DEFAULT) as connection:
        found = messages(connection, count)
        if png is None:
            draw = drawer(protocol)
            for message in found:
                for array in message:
                    click.echo(_described(array))
                for picture, caption in _pictures(message, mode, perbatch, names, unbatched):
                    click.echo(draw(picture) + caption, color=True)
            return
        shown = (pair for message in found for pair in _pictures(message, mode, perbatch, names, unbatched))
        _write_sheet(islice(shown, _TILES), png)


def _pictures(
    message: Sequence[NDArray[Any]], mode: str, most: int, names: Mapping[str, str], unbatched: bool
) -> Iterator[tuple[Image, str]]:
    """Give pictures, each with what is said of it."""
    first = message[0][None] if unbatched else message[0]
    second = message[1] if len(message) > 1 else None
    if mode == "img2img" and second is None:
        raise DecodeError("a message has one array, and img2img shows two pictures beside each other; use -m imgclass")
    if second is not None and (unbatched or second.ndim == 0):
        second = second[None]
    for place in range(min(len(first), most) if first.ndim else 0):
        other = None if second is None or place >= len(second) else second[place]
        if mode == "img2img" and other is not None:
            yield _beside(picture_of(first[place]), picture_of(other)), f"[{place}]"
        else:
            yield picture_of(first[place]), f"[{place}]" + _class(other, names)


def _class(value: Any, names: Mapping[str, str]) -> str:
    if value is None:
        return ""
    number = str(value.tolist() if np.size(value) < 10 else f"{value.dtype} {value.shape}")
    return f" class = {printable(names.get(number, number))}"


def _beside(left: Image, right: Image) -> Image:
    from PIL import Image

    both = Image.new("RGB", (left.width + _GAP + right.width, max(left.height, right.height)), "white")
    both.paste(left, (0, 0))
    both.paste(right, (left.width + _GAP, 0))
    return both


def _described(array: NDArray[Any]) -> str:
    span = f" {array.min():.4g} {array.max():.4g}" if array.size else ""
    return f"{array.dtype} {array.shape}{span}"


def _class_names(url: str) -> dict[str, str]:
    with closing(open_read(url)) as file:
        try:
            found = json.loads(file.read())
        except ValueError as error:
            raise PlanError(f"{url} is not JSON: {error}") from error
    if not isinstance(found, list | dict):
        raise PlanError(f"{url} has to be a list of names, or an object of names by class")
    pairs = enumerate(found) if isinstance(found, list) else found.items()
    return {str(number): str(name) for number, name in pairs}


def _write_sheet(pictures: Iterator[tuple[Image, str]], url: str) -> None:
    from shoal.cli.tar._sheet import Tile, contact_sheet

    tiles = [Tile.of(picture, (caption,)) for picture, caption in pictures]
    if not tiles:
        raise PlanError("no message came with a picture in it")
    with open_write(url) as target:
        target.write(contact_sheet(tiles))
    say(f"# {many(len(tiles), 'picture')} in {url}")


def run() -> None:
    """Be the command ``tensorshow``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["tensorshow", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: tensorshow ...
    """
    main(command)
