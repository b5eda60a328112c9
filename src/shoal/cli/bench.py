"""``shoal bench``: how fast this machine reads, decodes and delivers some data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from shoal.cli._samples import trusted
from shoal.cli._tool import main, say, tool
from shoal.errors import PlanError

if TYPE_CHECKING:
    from shoal.cli._bench import Measured
    from shoal.pipeline import Dataset

__all__ = ["command", "run"]

_EXAMPLE = "shoal bench --seconds 10 -f 'jpg cls' train-{0000..0009}.tar"

_READ = ["tar", "parquet", "arrow", "tfrecord", "csv", "json"]
_ROWS = {"read": "read", "decode": "and decode", "deliver": "and shuffle, batch"}


@tool("bench", example=_EXAMPLE)
@click.option("--from", "kind", type=click.Choice(_READ), help="The format of URLS.")
@click.option("-f", "--fields", default="", help="Look at these alone, with spaces between; a;b is the first.")
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(0.01), help="For each stage at most.")
@click.option("-p", "--workers", type=click.IntRange(0), help="Threads that read and decode.  [default: processors]")
@click.option("-b", "--batch-size", default=64, show_default=True, type=click.IntRange(1), help="Samples of a batch.")
@click.option("--images", default="rgb8", show_default=True, help="What pictures are decoded to.")
@click.option("--json", "as_json", is_flag=True, help="Write all numbers as JSON.")
@trusted
@click.argument("urls", nargs=-1, required=True)
def command(urls: tuple[str, ...], kind: str | None, fields: str, as_json: bool, trust: bool, **options: Any) -> None:
    """Measure how fast the samples of URLS come, and say what holds them up.

    They are read; then read and decoded; then shuffled and put into batches, as a training gets them. Each of this goes
    on until all samples were seen or the seconds are over. What was read a while ago may be in the memory of the
    machine, and comes faster than from its disk.
    """
    from shoal.cli._bench import Trial, measured

    workers = "auto" if options["workers"] is None else options["workers"]
    trial = Trial(options["seconds"], workers, options["batch_size"], options["images"])
    found = []
    for result in measured(_dataset(urls, kind, fields.split(), trust), trial):
        if not result.statistics.samples:
            seen = "there are no samples" if result.complete else f"nothing came in {trial.seconds:g} seconds"
            raise PlanError(f"{seen} in {', '.join(urls)}; name others, or give it more --seconds")
        found.append(result)
    if as_json:
        described = {"urls": list(urls), "seconds": trial.seconds, "stages": [each.as_dict() for each in found]}
        click.echo(json.dumps({**described, "bottleneck": _verdict(found)}, indent=1))
    else:
        _show(found)


def _dataset(urls: Sequence[str], kind: str | None, fields: Sequence[str], trust: bool) -> Dataset:
    from shoal._kinds import source_of
    from shoal.cli._convert._formats import format_of
    from shoal.pipeline import Dataset
    from shoal.readers import read_tar

    if "-" in urls:
        raise PlanError("standard input comes only once, and the data is read several times; name a file")
    kinds = sorted({format_of(url, kind) for url in urls})
    if len(kinds) > 1:
        raise PlanError(f"the data is {' and '.join(kinds)}; look at one format at a time")
    if kinds[0] in ("tar", "folder"):  # a folder stands for the shards in it
        return read_tar(urls, fields or None, trust=trust)
    dataset = Dataset(source_of(urls, kind=kinds[0], trust=trust))
    return dataset.select(*fields) if fields else dataset


def _show(found: Sequence[Measured]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("")
    for column in ("samples", "samples/s", "MB/s", "CPU ms each", "processors"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in found:
        seen = each.statistics
        table.add_row(
            _ROWS[each.stage],
            f"{seen.samples:,}{'' if each.complete else '+'}",
            f"{seen.samples_per_second:,.0f}",
            f"{each.megabytes_per_second:,.1f}",
            f"{1000 * each.cpu_per_sample:.3g}",
            f"{each.processors:.1f}",
        )
    Console().print(table)
    click.echo(f"bottleneck: {_verdict(found)}")
    if not all(each.complete for each in found):
        say("+ there are more samples, which the time did not suffice for")


def _verdict(found: Sequence[Measured]) -> str:
    """Say what holds up the whole of it."""
    last = found[-1].statistics
    return f"{last.bottleneck}; {last.advice}"


def run() -> None:
    """Be the command ``shoal bench``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["shoal bench", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: shoal bench ...
    """
    main(command)
