"""Which parts files are read in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, runtime_checkable

from shoal import files
from shoal.data._csv_cuts import Cut, PartLook, cuts, look_at
from shoal.data._file_parts import FilePart, Form, part_bytes

__all__ = ["Cuttable", "Mapped", "all_parts", "cut_text"]

#: Calls a function with each of some things, wherever that is: on an engine, in threads.
Mapped: TypeAlias = "Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]"


@runtime_checkable
class Cuttable(Protocol):
    """A form that has to look through large files to find where they can be cut."""

    def cut(self, urls: list[str], mapped: Mapped) -> list[list[FilePart]]:
        """Give the parts of each file."""


def all_parts(urls: list[str], form: Form, mapped: Mapped) -> list[FilePart]:
    """Cut files that are large, all at the same time; the others are a part each."""
    known = [form.parts(url) for url in urls]
    large = list(dict.fromkeys(url for url, parts in zip(urls, known, strict=True) if parts is None))
    found: dict[str, list[FilePart]] = {}
    if large:
        assert isinstance(form, Cuttable)  # only these leave anything open
        found = dict(zip(large, form.cut(large, mapped), strict=True))
    return [part for url, parts in zip(urls, known, strict=True) for part in (found[url] if parts is None else parts)]


def cut_text(urls: list[str], size: int, quote: bytes, mapped: Mapped) -> list[list[FilePart]]:
    """Cut files of text, each named once, at ends of records that are about so many bytes apart."""
    blocks = [FilePart(url, start, start + size) for url in urls for start in range(0, files.stat(url).size or 0, size)]
    looked: dict[str, list[tuple[FilePart, PartLook]]] = {url: [] for url in urls}
    for block, look in zip(blocks, mapped(partial(_looked, quote=quote), blocks), strict=True):
        looked[block.url].append((block, look))
    return [_joined(url, some) for url, some in looked.items()]


def _looked(block: FilePart, quote: bytes) -> PartLook:
    return look_at(part_bytes(block), quote)


def _joined(url: str, looked: list[tuple[FilePart, PartLook]]) -> list[FilePart]:
    places = cuts([block.start for block, _ in looked], [look for _, look in looked])
    ends: list[Cut | None] = [*places[1:], None]
    size = files.stat(url).size
    pairs = zip(places, ends, strict=True)
    found = [FilePart(url, cut.place, end.place if end else None, cut.line) for cut, end in pairs]
    return [part for part in found if part.stop is not None or size is None or part.start < size]
