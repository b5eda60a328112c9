"""The samples that somebody looks for: by a part of their key, by a condition, or by both."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal._kept import Kept
from shoal.abc import Sample
from shoal.shards import ShardIndex
from shoal.shards.codecs import DecodeOptions
from shoal.sources import TarSource
from shoal.view._catalogue import Catalogue, Piece
from shoal.view._expression import Condition, parse
from shoal.view._jobs import Job, Pace
from shoal.view._looks import fields_of, look_of, values_of
from shoal.view._pictures import header

__all__ = ["Query", "Search", "Searches", "matching_keys"]

#: Words that a condition may use beside the names of fields.
_SIDES = ("width", "height")
_TOLD = 0.1
_KEPT = 8


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for; nothing means all."""

    key: str = ""
    where: str = ""

    def __bool__(self) -> bool:
        return bool(self.key.strip() or self.where.strip())


class Search:
    """Goes through all samples in the background; what it found is there at once."""

    def __init__(self, catalogue: Catalogue, query: Query, options: DecodeOptions) -> None:
        self._catalogue, self._options = catalogue, options
        self._key = query.key.strip().lower()
        self._condition = parse(query.where) if query.where.strip() else None
        self.found = array("q")
        """The numbers of samples, in order."""
        self.seen = 0
        self.job = Job(self._run)
        self.job.start()

    def numbers(self, start: int, count: int) -> list[int]:
        """Give some of the samples that were found."""
        return self.found[start : start + count].tolist()

    def _run(self, job: Job) -> None:
        if self._condition is None and isinstance(self._catalogue.source, TarSource):
            self._search_indexes(job, self._catalogue.source)
            return
        self._look_through(job, self._catalogue.scan(self._needed()))

    def _look_through(self, job: Job, pieces: Iterable[Piece]) -> None:
        pace = Pace(_TOLD)
        for piece in pieces:
            for number, sample in enumerate(piece.samples, piece.first):
                self.seen = number + 1
                if self._holds(number, sample):
                    self.found.append(number)
                if pace.due():
                    job.tick()

    def _search_indexes(self, job: Job, source: TarSource) -> None:
        """Look through the keys alone, of which an index has all in one piece."""
        for at, shard in enumerate(self._catalogue.shards):
            if self._catalogue.failed(at):
                self._look_through(job, self._catalogue.scan_shard(at))
                continue
            index = source.index(shard)
            self.found.extend((matching_keys(index, self._key) + self.seen).tolist())
            self.seen += len(index)
            job.tick()

    def _needed(self) -> set[str] | None:
        """Name the fields to read; None for all, because a picture has to be found for its sides."""
        if self._condition is None or any(name in _SIDES for name in self._condition.names):
            return None
        first = self._catalogue.samples([0])[0] if self._catalogue.count_some(60.0).samples else {}
        asked = self._condition.names
        return {name for name in fields_of(first) if any(a == name or a.startswith(f"{name}.") for a in asked)} | {
            name.partition(".")[0] for name in asked
        }

    def _holds(self, number: int, sample: Sample) -> bool:
        if self._key and self._key not in str(sample["__key__"]).lower():
            return False
        return self._condition is None or self._condition(self._values(number, sample, self._condition))

    def _values(self, number: int, sample: Sample, condition: Condition) -> dict[str, Any]:
        values = values_of(sample, condition.names, self._options)
        values.setdefault("key", sample["__key__"])
        values.setdefault("number", number)
        if any(side in condition.names and side not in values for side in _SIDES):
            values = {**dict(zip(_SIDES, _sides(sample, self._options), strict=False)), **values}
        return values


def _sides(sample: Sample, options: DecodeOptions) -> tuple[int, ...]:
    """Give width and height of the first picture, from its header."""
    for name in fields_of(sample):
        look = look_of(name, sample[name], options)
        if look.kind == "picture":
            try:
                return header(name, look.value)[:2]
            except ValueError:
                return ()
    return ()


class Searches:
    """The last few searches, so that coming back to one costs nothing."""

    def __init__(self, catalogue: Catalogue, options: DecodeOptions) -> None:
        self._catalogue, self._options = catalogue, options
        self._kept: Kept[Search] = Kept(_KEPT, lambda _: 1)
        self._current: Search | None = None

    def get(self, query: Query) -> Search:
        """Give the search for a query, begun if it is new; the one before is given up."""
        search = self._kept.get(query, lambda: Search(self._catalogue, query, self._options))
        if search.job.stopped:
            self._kept = Kept(_KEPT, lambda _: 1)
            search = self._kept.get(query, lambda: Search(self._catalogue, query, self._options))
        if self._current is not search:
            self.stop()
        self._current = search
        return search

    def stop(self) -> None:
        """Give up the search that goes on, if there is one."""
        if self._current is not None:
            self._current.job.stop()


def matching_keys(index: ShardIndex, text: str) -> NDArray[np.int64]:
    """Find the samples of an index whose key has a text in it; large and small letters are the same.

    >>> from shoal.shards import Entry, IndexBuilder
    >>> builder = IndexBuilder()
    >>> for key in ("dog/1", "cat/1", "Dog/2"):
    ...     builder.add(Entry(key, 0, {}))
    >>> matching_keys(builder.build(shard_size=0, version=""), "dog").tolist()
    [0, 2]
    """
    wanted = text.lower().encode("utf-8", "surrogateescape")
    keys = index.keys.tobytes().lower()
    if not wanted:
        return np.arange(len(index))
    found, at = [], keys.find(wanted)
    while at >= 0:
        number = int(np.searchsorted(index.key_ends, at, side="right"))
        inside = at + len(wanted) <= int(index.key_ends[number])  # not of two keys that lie end to end
        if inside:
            found.append(number)
        at = keys.find(wanted, int(index.key_ends[number]) if inside else at + 1)
    return np.array(found, np.int64)
