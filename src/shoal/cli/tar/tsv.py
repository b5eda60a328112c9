"""``tar2tsv``: fields of samples as a table of text."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

import click

from shoal.abc import Sample
from shoal.cli._fields import alternatives, first_field
from shoal.cli._progress import watched
from shoal.cli._samples import inputs_of, read_samples, trusted
from shoal.cli._tool import main, tool
from shoal.cli.tar._rows import FORMATS
from shoal.errors import PlanError
from shoal.files import open_write

__all__ = ["command", "run"]

_EXAMPLE = "tar2tsv -f 'cls txt;text' small.tar > labels.tsv"


@tool("tar2tsv", example=_EXAMPLE)
@click.option("-f", "--fields", default="cls", show_default=True, help="Fields, with spaces between; a;b is the first.")
@click.option("-c", "--count", type=int, help="Stop after so many samples.")
@click.option("-o", "--output", default="-", help="Write to this file or URL, where it appears when it is complete.")
@click.option(
    "--format", "form", type=click.Choice(list(FORMATS)), default="tsv", show_default=True, help="Of the table."
)
@click.option("--nokey", is_flag=True, help="Leave the keys out.")
@click.option("--noheader", is_flag=True, help="Leave the line with the names of the columns out.")
@trusted
@click.argument("inputs", nargs=-1)
def command(
    inputs: tuple[str, ...],
    fields: str,
    count: int | None,
    output: str,
    form: str,
    nokey: bool,
    noheader: bool,
    trust: bool,
) -> None:
    """Write fields of samples as a table: tab-separated, or as CSV, JSON or YAML.

    INPUTS are tars: files, URLs, braces, - for standard input, which is also what is read without any. Bytes that are
    no UTF-8 are written as \\xNN. A field that a sample does not have is None in TSV, empty in CSV, else null. In TSV a
    newline at the end of a value is left out, and tabs, newlines and backslashes in it are \\t, \\n and \\\\.
    """
    columns = [*([] if nokey else [["__key__"]]), *alternatives(fields)]
    if not columns:
        raise PlanError("there is nothing to write: name fields with -f, or leave --nokey out")
    names, rows = ["|".join(group) for group in columns], FORMATS[form]()
    keep = {name for group in columns for name in group}
    samples = read_samples(inputs_of(inputs), trust=trust, keep=keep)
    with open_write(output, trust=trust) as target:
        if not noheader:
            target.write(_utf8(rows.head(names)))
        seen = output == "-" and sys.stdout.isatty()
        for sample in islice(samples if seen else watched(samples, "written"), count):
            target.write(_utf8(rows.row(names, [_cell(sample, group) for group in columns])))
            if seen:
                target.flush()
        target.write(_utf8(rows.tail()))


def _cell(sample: Sample, names: list[str]) -> str | None:
    found = first_field(sample, names)
    if found is None:
        return None
    value: Any = found[1]
    return value if isinstance(value, str) else bytes(value).decode("utf-8", "backslashreplace")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")  # a key may hold what was no text in the tar


def run() -> None:
    """Be the command ``tar2tsv``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["tar2tsv", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: tar2tsv ...
    """
    main(command)
