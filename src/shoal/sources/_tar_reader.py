"""One tar shard, open: as a memory map where it is a plain local file, as a stream where it is anything else.

Both can give samples in order from any position, an index, and picked samples; the map does it without copying or
reading ahead, a stream by going forward (or, behind a URL that can seek and with an index, by starting in the middle).
"""

from __future__ import annotations

import io
import os
import stat as stat_modes
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shoal.abc import Columns, Sample
from shoal.errors import CacheError, IndexFileError, PlanError, UrlError
from shoal.files import ShardCache, UrlInfo, local_path, open_read, scheme, stat, stat_open
from shoal.shards import (
    Entry,
    Extent,
    IndexBuilder,
    Lookup,
    MappedTar,
    Payload,
    Rename,
    ShardIndex,
    StreamedTar,
    beside,
    detect_compression,
    find_index,
    keep_index,
    load_index,
)

__all__ = ["MappedReader", "TarOptions", "TarReader", "near_runs", "open_tar", "shard_version"]


#: Bytes that are rather read than left out by another connection.
_NEAR = 256 * 2**10


@dataclass(frozen=True, slots=True)
class TarOptions:
    """How shards are read."""

    keep: frozenset[str] | None = None
    """The fields to read; None for all."""
    rename: Rename | None = None
    """Rewrites member names before they are grouped; indexes on disk do not apply then."""
    cache: ShardCache | None = None
    """Keeps remote shards on the local disk."""
    trust: bool = False


class TarReader(ABC):
    """An open shard."""

    _compares: ClassVar[bool] = False
    """Whether what is read by an index is compared with what the index says."""
    mapped: ClassVar[bool] = False
    """Whether samples are views into a map."""

    def __init__(self, url: str, options: TarOptions, resources: ExitStack) -> None:
        self.url = url
        self._options = options
        self._resources = resources
        self._known_index: ShardIndex | None = None

    @property
    @abstractmethod
    def seekable(self) -> bool:
        """Whether starting in the middle is cheap."""

    @abstractmethod
    def samples(self, first: int) -> Iterator[Sample]:
        """Yield the samples from position ``first`` on."""

    @abstractmethod
    def take(self, positions: Sequence[int]) -> list[Sample]:
        """Read the samples at these positions, in this order."""

    @abstractmethod
    def lets_seek(self) -> bool:
        """Tell whether picking samples is cheap for everyone who reads this shard, on whatever host."""

    def index(self, *, anew: bool = False) -> ShardIndex:
        """Find the shard's index, or read the shard once to build it, or to build it ``anew``."""
        if anew or self._find_index() is None:
            for _ in self._entries_for_index():
                pass
        assert self._known_index is not None
        return self._known_index

    def close(self) -> None:
        """Let go of files and locks; samples handed out stay valid."""
        self._resources.close()

    @abstractmethod
    def _entries_for_index(self) -> Iterator[object]:
        """Go through the whole shard, taking note of what is in it."""

    def _find_index(self) -> ShardIndex | None:
        if self._known_index is None and (info := self._identity()) is not None:
            self._known_index = find_index(self.url, info, verified_by_reads=self._compares)
        return self._known_index

    def _identity(self) -> UrlInfo | None:
        """Tell which shard this is, if an index of it may be kept."""
        return None if self._options.rename is not None or not _is_lasting(self.url) else stat(self.url)

    def _remember(self, builder: IndexBuilder, info: UrlInfo | None, *, seekable: bool) -> None:
        """Keep the index of a shard that has been read to its end, unless it is a file that changed meanwhile.

        A remote object that changes is an error of the read itself.
        """
        size, version = (0, "") if info is None else (info.size or 0, info.version or "")
        self._known_index = builder.build(shard_size=size, version=version, seekable=seekable)
        if version and (local_path(self.url) is None or stat(self.url) == info):
            keep_index(self.url, self._known_index)


class MappedReader(TarReader):
    """A plain local file."""

    mapped = True

    def __init__(self, url: str, options: TarOptions, resources: ExitStack, file: io.BufferedReader) -> None:
        super().__init__(url, options, resources)
        self._tar = MappedTar(file, url, options.rename)
        self._mapped = stat_open(file)
        self._lookup: Lookup | None = None

    @property
    def seekable(self) -> bool:
        return True

    def lets_seek(self) -> bool:
        return True

    def samples(self, first: int) -> Iterator[Sample]:
        index, keep = self._find_index(), self._options.keep
        if index is not None:
            return self._tar.indexed_samples(index, min(first, len(index)), keep)
        return (self._tar.sample(entry, keep) for entry in islice(self._walk(), first, None))

    def take(self, positions: Sequence[int]) -> list[Sample]:
        return self._tar.picked_samples(self._looked_up(), positions, self._options.keep)

    def take_columns(self, positions: NDArray[np.int64]) -> Columns | None:
        """Read the samples at these positions, in this order, as columns; None where they differ in their fields."""
        return self._tar.picked_columns(self._looked_up(), positions, self._options.keep)

    def _looked_up(self) -> Lookup:
        if self._lookup is None:
            self._lookup = Lookup(self.index())
        return self._lookup

    def _entries_for_index(self) -> Iterator[object]:
        return self._walk()

    def _identity(self) -> UrlInfo | None:
        # The file that is mapped, which need not be the one that has its name by now.
        asked = super()._identity()
        return asked if asked is None or local_path(self.url) is None else self._mapped

    def _walk(self) -> Iterator[Entry[Extent]]:
        builder, info = IndexBuilder(), self._identity()
        for entry in self._tar.entries():
            builder.add(entry)
            yield entry
        self._remember(builder, info, seekable=True)


class StreamReader(TarReader):
    """A compressed file, a URL, a pipe."""

    _compares = True

    def __init__(self, url: str, options: TarOptions, resources: ExitStack, path: str) -> None:
        super().__init__(url, options, resources)
        self._path = path  # where the bytes are: at the shard's own URL, or in its cached copy

    @property
    def seekable(self) -> bool:
        index = self._find_index()
        return index is not None and index.seekable

    def lets_seek(self) -> bool:
        if not _is_lasting(self.url) or local_path(self.url) is not None:
            return False  # a pipe, or a compressed file
        try:
            return load_index(beside(self.url)).seekable
        except (UrlError, IndexFileError):
            return False

    def samples(self, first: int) -> Iterator[Sample]:
        index = self._find_index() if first else None
        if index is not None and index.seekable:
            entries = self._entries_from(index, first)
        else:
            entries = islice(self._all_entries(self._options.keep), first, None)
        return map(StreamedTar.sample, entries)

    def take(self, positions: Sequence[int]) -> list[Sample]:
        index, wanted = self.index(), set(positions)
        found = self._near(index, wanted) if index.seekable else enumerate(self._all_entries(self._options.keep))
        picked = {position: entry for position, entry in found if position in wanted}
        return [StreamedTar.sample(picked[position]) for position in positions]

    def _near(self, index: ShardIndex, positions: set[int]) -> Iterator[tuple[int, Entry[Payload]]]:
        """Read the samples at some positions, and those between them that are not worth another connection."""
        for first, stop in near_runs(index, positions):
            yield from enumerate(islice(self._entries_from(index, first), stop - first), first)

    def _entries_for_index(self) -> Iterator[object]:
        if not _is_lasting(self.url):
            raise PlanError(f"{self.url!r} can be read only once: it has no length and no random access")
        return self._all_entries(frozenset())

    def _all_entries(self, keep: frozenset[str] | None) -> Iterator[Entry[Payload]]:
        builder, info = IndexBuilder(), self._identity()
        lasting = _is_lasting(self.url)  # a pipe may never end, and nobody can go back in it
        with closing(open_read(self._path, trust=self._options.trust, expect=info)) as stream:
            tar = StreamedTar(stream, self.url, self._options.rename)
            for entry in tar.entries(keep):
                if lasting:
                    extents = {name: (payload.offset, payload.size) for name, payload in entry.fields.items()}
                    builder.add(Entry(entry.key, entry.begin, extents))
                yield entry
        if lasting:
            self._remember(builder, info, seekable=tar.is_plain)

    def _entries_from(self, index: ShardIndex, first: int) -> Iterator[Entry[Payload]]:
        """Start at a known header; what is found there must be what the index says."""
        if first >= len(index):
            return
        begin = int(index.begins[first])
        with closing(open_read(self._path, offset=begin, trust=self._options.trust)) as stream:
            tar = StreamedTar(stream, self.url, self._options.rename, begin=begin)
            expected = index.entries(first)
            for position, entry in enumerate(tar.entries(self._options.keep), first):
                known = next(expected, None)
                if known is None or entry.key != known.key:
                    raise IndexFileError(f"sample {position} of {self.url} is {entry.key!r}, not what its index says")
                yield entry
            if (lost := next(expected, None)) is not None:
                raise IndexFileError(f"{self.url} ends before sample {lost.key!r}, which its index says is there")


def near_runs(index: ShardIndex, positions: Iterable[int]) -> list[tuple[int, int]]:
    """Join positions that lie near each other into ranges, each of which is read at once.

    >>> builder = IndexBuilder()
    >>> for number in range(100):
    ...     builder.add(Entry(f"{number}", number * 65536, {"bin": (number * 65536 + 512, 65000)}))
    >>> near_runs(builder.build(shard_size=6554624, version="v1"), [70, 3, 6, 4])
    [(3, 7), (70, 71)]
    """
    runs: list[tuple[int, int]] = []
    for position in sorted(set(positions)):
        if runs and int(index.begins[position] - index.begins[runs[-1][1]]) <= _NEAR:
            runs[-1] = runs[-1][0], position + 1
        else:
            runs.append((position, position + 1))
    return runs


def open_tar(url: str, options: TarOptions) -> TarReader:
    """Open a shard in the way that suits it, through the cache if there is one."""
    path = url
    with ExitStack() as resources:
        if options.cache is not None and local_path(url) is None and _is_lasting(url):
            try:
                path = resources.enter_context(options.cache.open(url, trust=options.trust)).path
            except CacheError as error:
                warnings.warn(f"{error}; the shard is streamed instead", stacklevel=2)
        if _is_lasting(path) and local_path(path) is not None:
            with closing(open_read(path)) as file:
                if detect_compression(file)[0] is None:
                    return MappedReader(url, options, resources.pop_all(), file)
        return StreamReader(url, options, resources.pop_all(), path)


def shard_version(url: str) -> str:
    """Give a text that changes when a shard does: the size of a file, the version of a remote object."""
    if not _is_lasting(url):
        return ""
    info = stat(url)
    return str(info.size) if local_path(url) is not None else info.version or str(info.size)


def _is_lasting(url: str) -> bool:
    """Tell whether a URL can be read a second time: pipes cannot."""
    if scheme(url) in ("-", "pipe"):
        return False
    path = local_path(url)
    return path is None or not os.path.exists(path) or stat_modes.S_ISREG(os.stat(path).st_mode)
