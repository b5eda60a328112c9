"""Samples out of text: one for each line, page or key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import BinaryIO, cast

from shoal.abc import Sample
from shoal.cli._samples import Input
from shoal.errors import PlanError, SampleError
from shoal.files import open_read
from shoal.shards import split_name

__all__ = ["TEXTS", "text_samples"]

_PAGE_END = b"\f"


def text_samples(inputs: Iterable[Input], mode: str, *, trust: bool) -> Iterator[Sample]:
    """Make samples of texts, one text after the other; those that have no key of their own are numbered through."""
    number = 0
    for found in inputs:
        if found.first or found.stop is not None:
            raise PlanError(f"{found.url}#{found.first}: samples of a text are not picked by number; use --count")
        with closing(open_read(found.url, trust=trust)) as file:
            for sample in TEXTS[mode](cast(BinaryIO, file), found.url):
                yield {"__key__": str(number), "__source__": found.url, **sample}
                number += 1


def _lines(file: BinaryIO, url: str) -> Iterator[Sample]:
    return ({"txt": line} for line in file)


def _pages(file: BinaryIO, url: str) -> Iterator[Sample]:
    """A page ends with a line that is a form feed, or with the text; the line is of no page."""
    page: list[bytes] = []
    for line in file:
        if line.rstrip(b"\r\n") == _PAGE_END:
            yield {"txt": b"".join(page)}
            page = []
        else:
            page.append(line)
    if page:
        yield {"txt": b"".join(page)}


def _keys(file: BinaryIO, url: str) -> Iterator[Sample]:
    """A key is a line, of which no field is known yet; empty lines are none."""
    for number, line in enumerate(file, 1):
        key = line.rstrip(b"\r\n").decode(errors="surrogateescape")
        if not key:
            continue
        if split_name(f"{key}.txt") != (key, "txt"):
            raise SampleError(f"line {number} cannot be a key: a name in a tar is a key up to its first dot", shard=url)
        yield {"__key__": key}


TEXTS: dict[str, Callable[[BinaryIO, str], Iterator[Sample]]] = {"lines": _lines, "pages": _pages, "keys": _keys}
"""What makes samples of a text, by the name of the mode."""
