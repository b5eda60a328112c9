"""``tarcat``, also ``tarscat``: tars one after the other as one tar."""

from __future__ import annotations

import sys
from itertools import islice
from random import Random

import click

from shoal.cli._samples import inputs_of, open_output, size, trusted
from shoal.cli._tool import main, say, tool
from shoal.cli.tar._apart import Apart
from shoal.cli.tar._shuffling import shuffled
from shoal.cli.tar._spans import spans_of, widen_pipes
from shoal.errors import ShoalError

__all__ = ["command", "run"]

_EXAMPLE = "curl -s https://example.org/train-0000.tgz | tarscat -c 10 > small.tar"

_HOLD = 4 * 2**20  # bytes of a sample that wait for the rest of it; few enough for the processor's cache


@tool("tarcat", example=_EXAMPLE)
@click.option("-s", "--skip", type=size, default=0, metavar="N", help="Begin with sample N of all, counted from 0.")
@click.option(
    "-c",
    "--count",
    type=size,
    default=sys.maxsize,
    metavar="N",
    help="End before sample N of all: -s 2 -c 4 is samples 2 and 3.",
)
@click.option("--shuffle", type=size, default=0, metavar="N", help="Mix the tars, and the samples in a buffer of N.")
@click.option("--seed", type=int, default=0, show_default=True, help="Which of the orders --shuffle gives.")
@click.option("-o", "--output", default="-", show_default=True, help="Where the tar goes: a file or URL, - for stdout.")
@click.option("-T", "--files-from", "lists", multiple=True, metavar="FILE", help="Read URLs from a file, one a line.")
@click.option("-b", "--braces", is_flag=True, hidden=True, help="Braces are expanded anyway.")
@click.option("-v", "--verbose", is_flag=True, help="Name each tar on stderr when it is opened.")
@trusted
@click.argument("inputs", nargs=-1)
def command(
    inputs: tuple[str, ...],
    skip: int,
    count: int,
    shuffle: int,
    seed: int,
    output: str,
    lists: tuple[str, ...],
    braces: bool,
    verbose: bool,
    trust: bool,
) -> None:
    """Write the samples of tars into one tar, as they are.

    INPUTS are tars: files, URLs, braces, x.tar#3,5 for samples 3 to 5, - for standard input, which is also what is
    read without any. Reading stops with the last sample that is wanted. Damage ends it after what comes before.
    Where one tar ends with the key with which the next begins, both would be read as one sample: the later gets a
    number (a, a-1).
    """
    widen_pipes()
    found, random = inputs_of(inputs, lists), Random(seed)  # noqa: S311 - an order, no secret
    if shuffle:
        random.shuffle(found)
    spans = spans_of(found, trust=trust, verbose=verbose, hold=_HOLD)
    if shuffle:
        spans = shuffled((span.held() for span in spans), shuffle, random)
    apart = Apart()
    with open_output(output, trust=trust) as writer:
        try:
            for span in islice(spans, skip, min(max(skip, count), sys.maxsize)):
                writer.write_span(apart.span(span))
        except ShoalError:
            writer.flush()
            raise
    if words := apart.words():
        say(f"tarcat: {words}")


def run() -> None:
    """Be the command ``tarcat``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["tarcat", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: tarcat ...
    """
    main(command)
