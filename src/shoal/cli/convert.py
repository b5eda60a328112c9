"""``shoal convert``: the same samples in another format."""

from __future__ import annotations

import sys
from typing import Any

import click

from shoal.cli._progress import watched
from shoal.cli._samples import size, trusted
from shoal.cli._tool import main, say, tool
from shoal.errors import PlanError

__all__ = ["command", "run"]

_EXAMPLE = """shoal convert train-{0000..0146}.tar train-%05d.parquet --maxsize 1e9
shoal convert --decode photos.tar photos.arrow"""

_WRITTEN = ["tar", "parquet", "arrow", "tfrecord", "folder"]
_READ = [*_WRITTEN, "csv", "json"]


@tool("convert", example=_EXAMPLE)
@click.option("--from", "source", type=click.Choice(_READ), help="The format of INPUTS.  [default: as their names end]")
@click.option("--to", "target", type=click.Choice(_WRITTEN), help="The format of OUTPUT.  [default: as its name ends]")
@click.option("-f", "--fields", default="", help="Keep these, with spaces or commas between.  [default: all]")
@click.option("--key", help="The column or feature that holds the keys.  [default: __key__, or numbers]")
@click.option("--decode", is_flag=True, help="Make values of bytes, as their fields are called: numbers, text, arrays.")
@click.option("--maxcount", type=size, help="Samples in each file; OUTPUT numbers files, as in a-%06d.tar.")
@click.option("--maxsize", type=size, help="Bytes of samples, as in 1e9 or 500MB, after which a file is full.")
@click.option("--overwrite", is_flag=True, help="Replace files that are in a folder already.")
@click.option("-v", "--verbose", is_flag=True, help="Say how many samples and files there were.")
@trusted
@click.argument("inputs", nargs=-1, required=True)
@click.argument("output")
def command(inputs: tuple[str, ...], output: str, **options: Any) -> None:
    """Write the samples of INPUTS to OUTPUT, in the format that its name tells.

    Formats are tar, Parquet, Arrow (a stream, as Hugging Face's datasets keeps it), TFRecord, and folders of files,
    whose names end in /; CSV and JSON can be read, too. Keys and fields are kept, and bytes stay bytes unless --decode
    is given: what goes from tar to another format and back is the same to the last byte. On the way to a tar, columns
    that hold no bytes get the extension of their kind: cls, txt, npy or json.
    """
    from shoal.cli._convert._formats import Reading, Writing, format_of
    from shoal.cli._convert._writer import Limits, Rolling

    kinds = sorted({format_of(url, options["source"]) for url in inputs})
    if len(kinds) > 1:
        raise PlanError(f"the inputs are {' and '.join(kinds)}; convert one format at a time, or name one with --from")
    target = format_of(output, options["target"])
    if target not in _WRITTEN:
        raise PlanError(f"{output} would be {target}, which is only read; written are {', '.join(_WRITTEN)}")
    if output == "-" and sys.stdout.isatty():
        raise PlanError("samples are not written to a terminal; name a file, or send them on with |")
    left_out: list[str] = []
    reading = Reading(kinds[0], inputs, options["key"], trust=options["trust"])
    schema = reading.schema() if target in ("parquet", "arrow") and not options["decode"] else None
    fields = tuple(options["fields"].replace(",", " ").split())
    writing = Writing(target, fields, options["decode"], options["overwrite"], schema, options["trust"])
    with Rolling(output, writing.begin, Limits(options["maxcount"], options["maxsize"])) as files:
        for sample in watched(writing.treated(reading.samples(left_out)), "converted"):
            files.write(sample)
    if left_out:
        say(f"shoal convert: {len(left_out)} files belong to no sample and were left out, such as {left_out[0]}")
    if options["verbose"]:
        say(f"{files.samples} samples in {len(files.urls)} {'files' if len(files.urls) > 1 else 'file'}")


def run() -> None:
    """Be the command ``shoal convert``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["shoal convert", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: shoal convert ...
    """
    main(command)
