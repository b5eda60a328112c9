"""``tarsort``: samples in another order, by their keys, by a field, or shuffled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import click

from shoal.abc import Sample
from shoal.cli._progress import watched
from shoal.cli._samples import Input, inputs_of, open_output, put, read_input, size, trusted
from shoal.cli._tool import main, say, tool
from shoal.cli.tar._apart import Apart
from shoal.cli.tar._order import KINDS, Order
from shoal.cli.tar._sorting import Sorter
from shoal.errors import SampleError, ShardError

__all__ = ["command", "run"]

_EXAMPLE = "tarsort -s cls -S int train.tar -o by-class.tar"


@tool("tarsort", example=_EXAMPLE)
@click.option("-s", "--sortkey", default="__key__", show_default=True, help="The field to sort by, or __key__.")
@click.option("-S", "--sorttype", type=click.Choice(KINDS), default="text", show_default=True, help="How to compare.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the shuffle.")
@click.option("-r", "--reverse", is_flag=True, help="The largest first; what is equal stays in its order.")
@click.option("--update", is_flag=True, help="Keep only the LAST of samples that compare equal; the others are lost.")
@click.option("-c", "--count", metavar="N", help="Write only the first N samples of the new order.")
@click.option("--memory", default="256MB", show_default=True, help="Use the disk beyond so many bytes.")
@click.option("--tmpdir", type=click.Path(exists=True, file_okay=False), help="Where to put them.  [default: $TMPDIR]")
@click.option("--tolerate", is_flag=True, help="Of a damaged tar, take what can be read before the damage.")
@click.option("-o", "--output", default="-", show_default=True, help="The tar to write.")
@click.option("-v", "--verbose", is_flag=True, help="Say how many samples were sorted, and where.")
@trusted
@click.argument("inputs", nargs=-1)
def command(
    inputs: tuple[str, ...],
    sortkey: str,
    sorttype: str,
    seed: int,
    reverse: bool,
    update: bool,
    count: str | None,
    memory: str,
    tmpdir: str | None,
    tolerate: bool,
    output: str,
    verbose: bool,
    trust: bool,
) -> None:
    """Sort samples, on the disk if they are more than the memory holds.

    INPUTS are tars: files, URLs, braces, - for standard input, which is also what is read without any; all of them
    are sorted together. Samples that compare equal stay as they came. Two samples of one key cannot stand side by side
    in a tar, where they would be read as one: the later gets a number (a, a-1, a-2).

    Values are compared byte by byte (text), as numbers (int, float), or by a hash of value and seed (shuffle), which
    gives the same order each time. A sample without the field, or with a value that is no number, is an error.
    """
    order, found = Order(sortkey, sorttype, seed), inputs_of(inputs)
    with (
        open_output(output, trust=trust) as writer,
        Sorter(order.rank, memory=size(memory), folder=tmpdir, reverse=reverse) as sort,
    ):
        for sample in watched(_read(found, trust=trust, tolerate=tolerate), "read"):
            sort.add(sample)
        apart = Apart()
        ranked = _last(sort.sorted()) if update else (sample for _, sample in sort.sorted())
        for sample in watched(islice(ranked, None if count is None else size(count)), "written"):
            put(writer, apart.sample(sample))
    if words := apart.words():
        say(f"tarsort: {words}")
    if verbose:
        say(f"# {writer.count} samples, put on the disk in {sort.runs} parts")


def _read(inputs: Iterable[Input], *, trust: bool, tolerate: bool) -> Iterator[Sample]:
    for found in inputs:
        try:
            yield from read_input(found, trust=trust)
        except (ShardError, SampleError) as error:
            if not tolerate:
                raise
            say(f"tarsort: {error}; what came before is sorted")


def _last(ranked: Iterable[tuple[bytes, Sample]]) -> Iterator[Sample]:
    """Keep the last of neighbours that compare equal."""
    held: tuple[bytes, Sample] | None = None
    for rank, sample in ranked:
        if held is not None and held[0] != rank:
            yield held[1]
        held = rank, sample
    if held is not None:
        yield held[1]


def run() -> None:
    """Be the command ``tarsort``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["tarsort", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: tarsort ...
    """
    main(command)
