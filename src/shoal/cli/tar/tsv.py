"""``tar2tsv``: fields of samples as a table of text."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from shoal.abc import Sample
from shoal.cli._samples import inputs_of, read_samples, trusted
from shoal.cli._tool import main, tool

__all__ = ["command", "run"]

_EXAMPLE = "tar2tsv -f 'cls txt;text' small.tar > labels.tsv"


@tool("tar2tsv", example=_EXAMPLE)
@click.option("-f", "--fields", default="cls", show_default=True, help="Fields, with spaces between; a;b is the first.")
@click.option("-c", "--count", type=int, help="Stop after so many samples.")
@click.option("--nokey", is_flag=True, help="Leave the keys out.")
@click.option("--noheader", is_flag=True, help="Leave the line with the names of the columns out.")
@trusted
@click.argument("inputs", nargs=-1)
def command(inputs: tuple[str, ...], fields: str, count: int | None, nokey: bool, noheader: bool, trust: bool) -> None:
    """Write fields of samples as tab-separated values.

    INPUTS are tars: files, URLs, braces, - for standard input, which is also what is read without any. A field that a
    sample does not have is None. Tabs, newlines and backslashes in values are written as \\t, \\n and \\\\.
    """
    columns = [names.split(";") for names in fields.split()]
    key = [] if nokey else ["__key__"]
    if not noheader:
        click.echo("\t".join([*key, *("|".join(names) if len(names) > 1 else names[0] for names in columns)]))
    for sample in islice(read_samples(inputs_of(inputs), trust=trust), count):
        click.echo("\t".join([*(sample[name] for name in key), *(_cell(sample, names) for names in columns)]))


def _cell(sample: Sample, names: list[str]) -> str:
    value: Any = next((sample[name] for name in names if name in sample), None)
    if value is None:
        return "None"
    text = bytes(value).decode("utf-8", "backslashreplace").rstrip("\r\n")
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def run() -> None:
    """Be the command ``tar2tsv``."""
    main(command)
