"""``tarfirst``: a field of the first sample that meets a condition."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click

from shoal.abc import Sample
from shoal.cli._fields import alternatives, first_field, many, printable
from shoal.cli._progress import watched
from shoal.cli._samples import inputs_of, read_samples, trusted
from shoal.cli._tool import FAILED, main, say, tool
from shoal.cli.tar._where import Condition, condition
from shoal.errors import MissingFieldError, PlanError
from shoal.files import open_write

__all__ = ["command", "run"]

_EXAMPLE = """tarfirst -S 'int(_["cls"]) == 180' -f 'jpg;png' train-{0000..0147}.tar > 180.jpg"""
_PICTURES = "img;image;ppm;pgm;pbm;jpeg;jpg;png"


@tool("tarfirst", example=_EXAMPLE)
@click.option("-S", "--select", default="True", help="What a sample must meet, such as 'int(_[\"cls\"]) == 180'.")
@click.option("-f", "--fields", default=_PICTURES, show_default=True, help="The first of these is written.")
@click.option("-o", "--output", default="-", help="Write to this file or URL instead of standard output.")
@click.option("-v", "--verbose", is_flag=True, help="Say how many samples were looked at.")
@trusted
@click.argument("inputs", nargs=-1)
def command(inputs: tuple[str, ...], select: str, fields: str, output: str, verbose: bool, trust: bool) -> None:
    """Write a field of the first sample that meets a condition, and end.

    The field's bytes go to standard output, and <key>.<field> to standard error. The exit code is 1 if there is no
    such sample. In a condition _ is the sample, _["cls"] or _.cls the bytes of a field; there are comparisons, in, and,
    or, not, int(), float(), len() and str(), as in: len(_.jpg) > 100000 or "cat" in _["txt"].
    """
    groups = alternatives(fields)
    if len(groups) != 1:
        raise PlanError(f"one field is written, but -f names {len(groups)}: {fields!r}; put ; between alternatives")
    found, looked_at = _search(read_samples(inputs_of(inputs), trust=trust), condition(select))
    if verbose:
        say(f"# {many(looked_at, 'sample')} looked at")
    if found is None:
        say(f"tarfirst: none of {many(looked_at, 'sample')} meets {select}")
        raise click.exceptions.Exit(FAILED)
    name, data = _field(found, groups[0])
    _write(data, output, trust)
    say(printable(f"{found['__key__']}.{name}"))


def _search(samples: Iterable[Sample], matches: Condition) -> tuple[Sample | None, int]:
    number = 0
    for number, sample in enumerate(watched(samples, "looked at"), 1):
        if matches(sample):
            return sample, number
    return None, number


def _field(sample: Sample, names: list[str]) -> tuple[str, bytes]:
    chosen = first_field(sample, names)
    if chosen is None:
        there = ", ".join(sorted(name for name in sample if not name.startswith("__")))
        text = f"it has none of {';'.join(names)}; name one of its fields with -f: {there}"
        raise MissingFieldError(text, key=sample["__key__"], shard=sample["__source__"])
    name, value = chosen
    return name, value.encode() if isinstance(value, str) else bytes(value)


def _write(data: bytes, output: str, trust: bool) -> None:
    if output == "-" and sys.stdout.isatty() and not _is_text(data):
        raise PlanError("these bytes are no text for a terminal; name a file with -o, or send them on with |")
    with open_write(output, trust=trust) as target:
        target.write(data)


def _is_text(data: bytes) -> bool:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(printable(line) == line for line in text.replace("\t", " ").split("\n"))


def run() -> None:
    """Be the command ``tarfirst``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["tarfirst", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: tarfirst ...
    """
    main(command)
