"""``shoal verify``: whether data is sound."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import click

from shoal._kinds import data_files
from shoal.cli._at_once import at_once
from shoal.cli._checking import Checks, checked
from shoal.cli._fields import alternatives, many, printable
from shoal.cli._problems import FieldSets, Problem, Report
from shoal.cli._samples import trusted
from shoal.cli._tool import FAILED, main, say, tool

__all__ = ["command", "run"]

_EXAMPLE = "shoal verify --decode -f 'jpg;png cls' 'train-{0000..0147}.tar'"
_USUAL = 0.9  # a field that so many samples have is missed in the others


@tool("verify", example=_EXAMPLE)
@click.option("-f", "--fields", help="What each sample must have.  [default: what nine of ten samples have]")
@click.option("--decode", is_flag=True, help="Decode all fields, by their extensions.")
@click.option(
    "-p", "--workers", type=click.IntRange(min=1), help="Shards read at once.  [default: as many as processors]"
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@trusted
@click.argument("urls", nargs=-1)
def command(
    urls: tuple[str, ...], fields: str | None, decode: bool, workers: int | None, as_json: bool, trust: bool
) -> None:
    """Check tars: headers and checksums, duplicates, files of a sample that lie apart, missing fields, indexes.

    URLS are files, braces, globs and folders; - is a tar on standard input, which is also what is read without any.
    Parquet, Arrow, TFRecord, CSV and JSON files are read to their end. Each problem is a line with its place; the exit
    code is 1 if there is any. In a plain local tar reading goes on behind damage.
    """
    reports = at_once(partial(checked, Checks(decode, trust)), data_files(urls), workers)
    problems = [problem for report in reports for problem in report.problems]
    problems += _lacking(reports, fields)
    unnamed = sum(report.unnamed for report in reports)
    if as_json:
        click.echo(json.dumps(_described(reports, problems, unnamed), indent=2))
    else:
        for problem in problems:
            click.echo(printable(str(problem)))
    _sum_up(reports, problems, unnamed)
    if problems:
        raise click.exceptions.Exit(FAILED)


def _lacking(reports: list[Report], fields: str | None) -> list[Problem]:
    sets = FieldSets()
    for report in reports:
        sets.merge(report.field_sets)
    return sets.lacking(sets.usual(_USUAL) if fields is None else alternatives(fields))


def _sum_up(reports: list[Report], problems: list[Problem], unnamed: int) -> None:
    for text in sorted({text for report in reports for text in report.unchecked}):
        say(printable(f"# {text}"))
    samples, wrong = sum(report.samples for report in reports), len({problem.shard for problem in problems})
    found = f"{many(len(problems) + unnamed, 'problem')} in {wrong} of them" if problems else "all sound"
    more = f", {unnamed} of which are not shown" if unnamed else ""
    say(f"# {many(samples, 'sample')} in {many(len(reports), 'shard')}: {found}{more}")


def _described(reports: list[Report], problems: list[Problem], unnamed: int) -> dict[str, Any]:
    return {
        "sound": not problems,
        "shards": [{"url": report.shard, "samples": report.samples} for report in reports],
        "problems": [problem.described() for problem in problems],
        "not_shown": unnamed,
        "not_decoded": sorted({text for report in reports for text in report.unchecked}),
    }


def run() -> None:
    """Be the command ``shoal verify``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["shoal verify", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: shoal verify ...
    """
    main(command)
