"""``tarshow``: samples as text, as a table, as pictures."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import click

from shoal.abc import Sample
from shoal.cli._fields import alternatives, first_field, human, many, printable
from shoal.cli._samples import inputs_of, read_samples, trusted
from shoal.cli._tool import main, say, tool
from shoal.cli.tar._pictures import PROTOCOLS, Draw, drawer
from shoal.errors import DecodeError, PlanError
from shoal.files import open_write
from shoal.shards import split_name

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["command", "run"]

_EXAMPLE = "tarshow -c 2 small.tar"
_VALUE = 60  # characters of a value
_UTF8 = codecs.getincrementaldecoder("utf-8")  # which does not mind that a letter is cut
_ROWS, _TILES = 20, 100  # as many as fit a table or a sheet that somebody looks at


@tool("tarshow", example=_EXAMPLE)
@click.option("-f", "--fields", help="Show only these; 'jpg;png cls' is the first of jpg and png, and cls.")
@click.option("-c", "--count", type=int, help="Stop after so many samples.  [default: 20 in a table, 100 on a sheet]")
@click.option("--table", is_flag=True, help="Show a table.")
@click.option("--images", is_flag=True, help="Show pictures, too.")
@click.option(
    "--protocol", type=click.Choice(["auto", *PROTOCOLS]), default="auto", help="How the terminal takes them."
)
@click.option("--png", metavar="FILE", help="Write the pictures of all samples into one, a contact sheet.")
@click.option("--verbatim-keys", is_flag=True, help="Show the names of fields as they are in the tar, not lower-cased.")
@trusted
@click.argument("inputs", nargs=-1)
def command(
    inputs: tuple[str, ...],
    fields: str | None,
    count: int | None,
    table: bool,
    images: bool,
    protocol: str,
    png: str | None,
    verbatim_keys: bool,
    trust: bool,
) -> None:
    """Show samples: a block of lines for each, with the name of a field and the beginning of its value.

    INPUTS are tars: files, URLs, braces, - for standard input, which is also what is read without any; x.tar#3,5 is
    samples 3 to 5. Control characters in the data are shown as escapes and do nothing to the terminal.
    """
    if png is not None and (table or images):
        raise PlanError("--png writes a file and shows nothing; leave --table and --images out, or run it twice")
    names = _Verbatim() if verbatim_keys else None
    samples: Iterable[Sample] = read_samples(inputs_of(inputs), trust=trust, rename=names)
    chosen = None if fields is None else alternatives(fields)
    if png is not None:
        _write_sheet(islice(samples, _TILES if count is None else count), chosen, png, trust)
        return
    samples = (_chosen(sample, chosen) for sample in samples)
    if names is not None:
        samples = map(names.restored, samples)
    if table:
        _show_table(islice(samples, _ROWS if count is None else count))
        return
    draw = drawer(protocol) if images else None
    for sample in islice(samples, count):
        for text in _block(sample, draw):
            click.echo(text, nl=False, color=True)


class _Verbatim:
    """Takes note of the names of members on their way, because a sample has its fields in lower case."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, str]] = {}

    def __call__(self, member: str) -> str:
        parts = split_name(member)
        if parts is not None and (written := member[len(parts[0]) + 1 :]) != parts[1]:
            self._names.setdefault(parts[0], {})[parts[1]] = written
        return member

    def restored(self, sample: Sample) -> Sample:
        """Give a sample the names back."""
        names = self._names.pop(sample["__key__"], {})
        return {names.get(name, name): value for name, value in sample.items()}


def _chosen(sample: Sample, fields: list[list[str]] | None) -> Sample:
    if fields is None:
        return sample
    found = (first_field(sample, names) for names in [["__key__"], ["__source__"], *fields])
    return dict(pair for pair in found if pair is not None)


def _block(sample: Sample, draw: Draw | None) -> Iterator[str]:
    for name in sorted(sample):
        yield f"{printable(name):20}\t{printable(str(sample[name][:_VALUE])[:_VALUE])}\n"
        if draw is not None and (picture := _picture(sample, name)) is not None:
            yield draw(picture)
    yield "\n"


def _picture(sample: Sample, name: str) -> Image | None:
    """Decode a field that promises a picture; one that is none is no reason to stop showing."""
    from shoal.shards.codecs import DecodeOptions, decode, is_picture

    if not is_picture(name):
        return None
    try:
        image: Image = decode(name, sample[name], DecodeOptions(images="pilrgb"))
    except DecodeError as error:
        say(f"tarshow: {sample['__key__']!r}: {error}")
        return None
    return image


def _show_table(samples: Iterable[Sample]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [{name: _described(value) for name, value in sample.items()} for sample in samples]
    fields = dict.fromkeys(name for row in rows for name in sorted(row) if not name.startswith("__"))
    table = Table("key")
    for name in fields:
        table.add_column(Text(printable(name)))
    for row in rows:
        table.add_row(*(Text(row.get(name, "")) for name in ("__key__", *fields)))
    Console(highlight=False).print(table)


def _described(value: bytes | str) -> str:
    """Show text as it is, and of anything else how much there is."""
    try:
        text = value if isinstance(value, str) else _UTF8().decode(value[: 4 * _VALUE])
    except UnicodeDecodeError:
        return human(len(value))
    return human(len(value)) if "\0" in text else printable(text.strip()[:_VALUE])


def _write_sheet(samples: Iterable[Sample], fields: list[list[str]] | None, url: str, trust: bool) -> None:
    from shoal.cli.tar._sheet import Tile, contact_sheet

    tiles = []
    for sample in samples:
        shown = _chosen(sample, fields)
        pictures = (_picture(shown, name) for name in sorted(shown) if not name.startswith("__"))
        tiles += [Tile.of(picture, _captions(sample)) for picture in pictures if picture is not None]
    if not tiles:
        raise PlanError("there is no picture in these samples; name the field that holds one with -f")
    with open_write(url, trust=trust) as target:
        target.write(contact_sheet(tiles))
    say(f"# {many(len(tiles), 'picture')} in {url}")


def _captions(sample: Sample) -> tuple[str, ...]:
    label = (sample["cls"].decode("utf-8", "replace").strip(),) if "cls" in sample else ()
    return tuple(map(printable, (sample["__key__"], *label)))


def run() -> None:
    """Be the command ``tarshow``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["tarshow", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: tarshow ...
    """
    main(command)
