"""``tarpcat``: several tars at once into one."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple

import click

from shoal.cli._fields import printable
from shoal.cli._progress import watched
from shoal.cli._samples import Input, inputs_of, open_output, size, trusted
from shoal.cli._tool import main, say, tool
from shoal.cli.tar._apart import Apart
from shoal.cli.tar._gathering import ARRIVAL, INPUTS, TURNS, gathered
from shoal.cli.tar._shuffling import shuffled
from shoal.cli.tar._spans import spans_of
from shoal.errors import SampleError, ShardError
from shoal.shards import Span

__all__ = ["command", "run"]

_EXAMPLE = "tarpcat -p 8 --shuffle 1000 'train-{000..099}.tar' | tarsplit -n 10000 -o mixed"


@tool("tarpcat", example=_EXAMPLE)
@click.option(
    "-p", "--workers", type=click.IntRange(1), default=8, show_default=True, help="How many tars to read at once."
)
@click.option("--ordered", is_flag=True, help="Write one tar after the other, as they are named.")
@click.option(
    "--shuffle", type=click.IntRange(0), default=0, help="Shuffle the list of tars, and samples in a buffer of so many."
)
@click.option("--seed", type=int, help="The same order each time: tars are read in turns, and shuffled alike.")
@click.option("-c", "--count", metavar="N", help="Stop after N samples.")
@click.option("-T", "--files-from", "lists", multiple=True, metavar="FILE", help="Read URLs from a file, one a line.")
@click.option("-b", "--braces", is_flag=True, hidden=True, help="Braces are expanded anyway.")
@click.option("--dummy", is_flag=True, help="Print keys and sources, and write no tar.")
@click.option("-o", "--output", default="-", show_default=True, help="The tar to write.")
@click.option("-v", "--verbose", is_flag=True, help="Say how many samples were written.")
@trusted
@click.argument("inputs", nargs=-1)
def command(
    inputs: tuple[str, ...],
    workers: int,
    ordered: bool,
    shuffle: int,
    seed: int | None,
    count: str | None,
    lists: tuple[str, ...],
    braces: bool,
    dummy: bool,
    output: str,
    verbose: bool,
    trust: bool,
) -> None:
    """Put the samples of several tars into one, reading some of the tars at the same time.

    INPUTS are tars: files, URLs, braces, - for standard input, which is also what is read without any. Every sample of
    every tar is written once. Samples of different tars are mixed as they arrive, unless --ordered or --seed is given;
    those of one tar stay in their order, unless there is a --shuffle. Two samples of one key that come to stand side by
    side would be read as one: the later gets a number (a, a-1).
    """
    chosen = inputs_of(inputs, lists)
    order = INPUTS if ordered else ARRIVAL if seed is None else TURNS
    chance = random.Random(seed)  # noqa: S311 - an order, not a secret
    if shuffle:
        chance.shuffle(chosen)
    with closing(_samples(chosen, workers, order, trust=trust)) as samples:
        mixed = shuffled(_kept(samples), shuffle, chance) if shuffle else samples
        wanted = islice(mixed, None if count is None else size(count))
        if dummy:
            for source, span in wanted:
                click.echo(f"{printable(span.key)}\t{printable(source)}")
        else:
            _write((span for _, span in wanted), output, verbose=verbose, trust=trust)


class _Found(NamedTuple):
    """A sample, and where it is from."""

    source: str
    span: Span

    def size(self) -> int:
        return self.span.size


def _samples(inputs: list[Input], workers: int, order: str, *, trust: bool) -> Generator[_Found, None, None]:
    if min(workers, len(inputs)) < 2:
        yield from (_Found(one.url, span) for one in inputs for span in spans_of([one], trust=trust))
        return
    apart, read = [_apart_from_stdin(one) for one in inputs], partial(_held, trust=trust)
    with closing(gathered(apart, read, _Found.size, workers=workers, order=order)) as samples:
        yield from samples


def _held(one: Input, *, trust: bool) -> Iterator[_Found]:
    return (_Found(one.url, span.held()) for span in spans_of([one], trust=trust))


def _kept(samples: Iterable[_Found]) -> Iterator[_Found]:
    return (_Found(source, span.held()) for source, span in samples)


def _apart_from_stdin(one: Input) -> Input:
    """Open standard input as a file of its own: a thread that waits for Python's would keep Python from ending."""
    return replace(one, url="/dev/stdin") if one.url == "-" else one


def _write(spans: Iterable[Span], output: str, *, verbose: bool, trust: bool) -> None:
    with open_output(output, trust=trust) as writer:
        apart = Apart()
        try:
            for span in watched(spans, "written"):
                writer.write_span(apart.span(span))
        except (SampleError, ShardError):
            writer.flush()  # what came before the damage
            raise
    if words := apart.words():
        say(f"tarpcat: {words}")
    if verbose:
        say(f"# {writer.count} samples")


def run() -> None:
    """Be the command ``tarpcat``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["tarpcat", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: tarpcat ...
    """
    main(command)
