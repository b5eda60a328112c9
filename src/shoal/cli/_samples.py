"""Samples in and out of commands: tars by URL, some of their samples, and one tar to write to."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click

from shoal.abc import Sample
from shoal.errors import PlanError
from shoal.files import expand
from shoal.shards import Rename, TarWriter, owned

__all__ = ["Input", "inputs_of", "open_output", "put", "read_input", "read_samples", "size", "trusted", "written"]

_FRAGMENT = re.compile(r"(?P<url>.*)#(?P<first>\d+)(?:,(?P<last>\d+))?")


@dataclass(frozen=True, slots=True)
class Input:
    """A tar, and which of its samples are wanted."""

    url: str
    first: int = 0
    stop: int | None = None


def inputs_of(urls: Sequence[str], lists: Iterable[str] = ()) -> list[Input]:
    """List the tars that arguments stand for: braces, globs and folders are expanded, none is standard input.

    ``x.tar#3,5`` is samples 3 to 5, both included, and ``x.tar#3`` only that one. ``lists`` are files that hold one
    URL in each line.

    >>> inputs_of(["a.tar", "b.tar#3,5"])
    [Input(url='a.tar', first=0, stop=None), Input(url='b.tar', first=3, stop=6)]
    """
    named = [*urls, *(line for path in lists for line in _lines(path))]
    return [found for url in named or ([] if lists else ["-"]) for found in _expanded(url)]


def read_samples(
    inputs: Iterable[Input],
    *,
    trust: bool = False,
    keep: Collection[str] | None = None,
    rename: Rename | None = None,
) -> Iterator[Sample]:
    """Read undecoded samples, one tar after the other; ``__source__`` says which one a sample is from."""
    for found in inputs:
        yield from read_input(found, trust=trust, keep=keep, rename=rename)


def read_input(
    found: Input, *, trust: bool = False, keep: Collection[str] | None = None, rename: Rename | None = None
) -> Iterator[Sample]:
    """Read the undecoded samples of one tar: all fields, or those to keep."""
    from shoal.sources import TarSource  # not needed by tools that move samples as they are, and not small

    source = TarSource(found.url, keep=keep, rename=rename, trust=trust)
    (shard,) = source.shards()
    samples = (sample for block in source.open(shard, found.first) for sample in block.samples)
    for sample in islice(samples, None if found.stop is None else found.stop - found.first):
        yield {"__source__": found.url, **owned(sample)}


@contextmanager
def open_output(url: str, *, trust: bool = False) -> Iterator[TarWriter]:
    """Write a tar to a URL, where it appears when it is complete, or to standard output (``-``)."""
    if url == "-" and sys.stdout.isatty():
        raise PlanError("a tar is not written to a terminal; name a file with -o, or send it on with |")
    with TarWriter(url, trust=trust) as writer:
        yield writer


def put(writer: TarWriter, sample: Sample) -> None:
    """Append an undecoded sample: all of its fields, also those whose names begin with an underscore."""
    writer.write_fields(
        sample["__key__"], {name: sample[name] for name in sorted(sample) if type(sample[name]) is bytes}
    )


def written(sample: Sample) -> Sample:
    """Give what is written of a sample: its key and its fields, not what is told about it."""
    return {name: value for name, value in sample.items() if name == "__key__" or not name.startswith("__")}


def size(text: str | float) -> int:
    """Read a number of bytes or samples: ``1e9``, ``500MB``."""
    from shoal.settings import parse_bytes

    return parse_bytes(text)


def trusted(command: Any) -> Any:
    """Add the option that lets ``pipe:`` URLs run."""
    return click.option("--trust", is_flag=True, help="Run pipe: URLs, whose commands are yours.")(command)


def _expanded(url: str) -> Iterator[Input]:
    match = _FRAGMENT.fullmatch(url)
    if match is None:
        yield from (Input(each) for each in ([url] if url == "-" or url.startswith("pipe:") else expand(url)))
        return
    first = int(match["first"])
    last = first if match["last"] is None else int(match["last"])
    if last < first:
        raise PlanError(f"{url} asks for samples {first} to {last}, and the last comes before the first")
    yield from (Input(each, first, last + 1) for each in expand(match["url"]))


def _lines(path: str) -> list[str]:
    with click.open_file(path, encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip()]
