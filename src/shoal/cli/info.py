"""``shoal info``: what is in some data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import click

from shoal._kinds import data_files
from shoal.cli._at_once import Stop, at_once
from shoal.cli._fields import human, many, printable
from shoal.cli._samples import trusted
from shoal.cli._summary import FieldSummary, Summary, merged, summary_of
from shoal.cli._tool import main, tool

__all__ = ["command", "run"]

_EXAMPLE = "shoal info 'train-{0000..0147}.tar'"
_TOP = 20


@tool("info", example=_EXAMPLE)
@click.option("--classes", default="cls", show_default=True, metavar="FIELD", help="The field that holds the class.")
@click.option(
    "-p", "--workers", type=click.IntRange(min=1), help="Shards read at once.  [default: as many as processors]"
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.option("-v", "--verbose", is_flag=True, help="List the shards, too.")
@trusted
@click.argument("urls", nargs=-1)
def command(
    urls: tuple[str, ...], classes: str, workers: int | None, as_json: bool, verbose: bool, trust: bool
) -> None:
    """Tell what is in tars, Parquet, Arrow, TFRecord, CSV and JSON files: samples, fields, sizes, classes.

    URLS are files, braces, globs and folders; - is a tar on standard input, which is also what is read without any. All
    of it is read once. Sizes are bytes of values as they are kept; numbers in tables have none.
    """
    whole = merged(at_once(partial(_summary, classes, trust), data_files(urls), workers))
    if as_json:
        click.echo(json.dumps(_described(whole, classes), indent=2))
        return
    for line in _lines(whole, classes, verbose):
        click.echo(line)


def _summary(class_field: str, trust: bool, url: str, stop: Stop) -> Summary:
    return summary_of(url, class_field, trust=trust, stop=stop)


def _lines(whole: Summary, class_field: str, verbose: bool) -> Iterator[str]:
    size = "" if whole.bytes is None else f", {human(whole.bytes)}"
    yield f"{many(whole.samples, 'sample')} in {many(len(whole.shards), 'shard')}{size}"
    if verbose:
        shards = [(url, str(samples), "" if size is None else human(size)) for url, samples, size in whole.shards]
        yield from ("", *_aligned([("shard", "samples", "bytes"), *shards]))
    if whole.fields:
        fields = [_row(name, found) for name, found in sorted(whole.fields.items())]
        yield from ("", *_aligned([("field", "type", "samples", "min", "median", "max", "total"), *fields]))
    if whole.classes:
        number = f"{'' if whole.all_classes else 'more than '}{many(len(whole.classes), 'class')}"
        top = whole.classes.most_common(_TOP)
        yield from (
            "",
            f"{number} in {printable(class_field)}{', the most frequent' if len(top) < len(whole.classes) else ''}:",
        )
        yield from _aligned([(printable(name), str(count)) for name, count in top])


def _row(name: str, found: FieldSummary) -> tuple[str, ...]:
    sizes = found.sizes
    shown = ("" if size is None else human(size) for size in (sizes.smallest, sizes.median, sizes.largest))
    total = "" if sizes.smallest is None else human(sizes.total)
    return name, ", ".join(sorted(found.types)), str(found.samples), *shown, total


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Write rows with their columns one below the other, numbers to the right."""
    safe = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*safe, strict=True)]
    for row in safe:
        cells = (
            cell.rjust(width) if place and _is_number(rows, place) else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def _is_number(rows: Sequence[tuple[str, ...]], place: int) -> bool:
    return all(row[place][:1].isdigit() or not row[place] for row in rows[1:] or rows)


def _described(whole: Summary, class_field: str) -> dict[str, Any]:
    return {
        "samples": whole.samples,
        "bytes": whole.bytes,
        "shards": [{"url": url, "samples": samples, "bytes": size} for url, samples, size in whole.shards],
        "fields": {name: _field(found) for name, found in sorted(whole.fields.items())},
        "classes": {
            "field": class_field,
            "different": len(whole.classes),
            "complete": whole.all_classes,
            "counts": dict(whole.classes.most_common(_TOP)),
        },
    }


def _field(found: FieldSummary) -> dict[str, Any]:
    sizes = found.sizes
    total = None if sizes.smallest is None else sizes.total
    bounds = {"min": sizes.smallest, "median": sizes.median, "max": sizes.largest, "total": total}
    return {"samples": found.samples, "types": dict(found.types), **bounds}


def run() -> None:
    """Be the command ``shoal info``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["shoal info", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: shoal info ...
    """
    main(command)
