"""Tar shards as a source: files on a disk, in a cache, behind a URL, in a pipe."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice, pairwise
from threading import Lock
from typing import TypeAlias

from shoal import settings
from shoal.abc import Block, Sample, Shard, Source
from shoal.errors import PlanError
from shoal.files import ShardCache, expand
from shoal.shards import Rename
from shoal.sources._tar_reader import TarOptions, TarReader, open_tar

__all__ = ["TarSource", "Urls"]

Urls: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"
#: A cache, the folder of one, or True for the one of the settings.
Cache: TypeAlias = "ShardCache | bool | str | os.PathLike[str] | None"

_BLOCK_SAMPLES = 64
_BLOCK_BYTES = 16 * 2**20
_OPEN_READERS = 128


class TarSource(Source):
    """Tar shards by URL: braces, lists, globs, folders; any scheme that fsspec knows, ``pipe:``, ``-``.

    A plain local file is mapped, and its samples are views into the map. Everything else is read as a stream; a remote
    shard may be kept in a local cache first. The index of a shard is built on the way when it is read to its end, and
    kept; whatever needs lengths or random access uses it.
    """

    def __init__(
        self,
        urls: Urls,
        *,
        keep: Collection[str] | None = None,
        rename: Rename | None = None,
        cache: Cache = None,
        trust: bool = False,
    ) -> None:
        self.urls = [os.fspath(urls)] if isinstance(urls, str | os.PathLike) else [os.fspath(url) for url in urls]
        self._options = TarOptions(None if keep is None else frozenset(keep), rename, _shard_cache(cache), trust)
        self._shards: tuple[Shard, ...] | None = None
        self._readers = _Readers()

    def __repr__(self) -> str:
        return f"TarSource({', '.join(map(repr, self.urls[:3]))}{', ...' if len(self.urls) > 3 else ''})"

    def shards(self) -> Sequence[Shard]:
        """List the shards; braces, globs and folders are expanded the first time."""
        if self._shards is None:
            self._shards = tuple(Shard(url) for url in expand(self.urls))
        return self._shards

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        """Yield a shard's samples in blocks, from its sample ``start`` on."""
        first = shard.start + start * shard.step
        count = None if shard.stop is None else max(shard.stop - first, 0)
        with closing(open_tar(shard.url, self._options)) as reader:
            yield from _blocks(shard, islice(reader.samples(first), 0, count, shard.step))

    def length(self, shard: Shard) -> int:
        """Count the samples of a shard, reading it once if it has no index yet."""
        stop = len(self._reader(shard).index()) if shard.stop is None else shard.stop
        return len(range(shard.start, stop, shard.step))

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        """Read the samples at these positions of a shard, in this order."""
        positions, length = [shard.start + index * shard.step for index in indices], self.length(shard)
        if not all(0 <= index < length for index in indices):
            wrong = next(index for index in indices if not 0 <= index < length)
            raise IndexError(f"there is no sample {wrong} in shard {shard.url}, which has {length}")
        return self._reader(shard).take(positions)

    def split(self, shard: Shard, parts: int) -> list[Shard]:
        """Cut a shard into ranges where one can seek in it, else deal its samples out in turn."""
        if parts < 1:
            raise PlanError(f"a shard is split into at least 1 part, not {parts}")
        if self._reader(shard).seekable and shard.step == 1:
            total = self.length(shard)
            cuts = [shard.start + total * part // parts for part in range(parts + 1)]
            return [Shard(shard.url, low, high) for low, high in pairwise(cuts)]
        starts = (shard.start + part * shard.step for part in range(parts))
        return [Shard(shard.url, start, shard.stop, shard.step * parts) for start in starts]

    def _reader(self, shard: Shard) -> TarReader:
        return self._readers.get(shard.url, self._options)


class _Readers:
    """The shards that were last asked for single samples, kept open."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, TarReader] = OrderedDict()
        self._lock = Lock()

    def get(self, url: str, options: TarOptions) -> TarReader:
        with self._lock:
            reader = self._open.pop(url, None) or open_tar(url, options)
            self._open[url] = reader
            while len(self._open) > _OPEN_READERS:
                self._open.popitem(last=False)[1].close()
            return reader

    def __reduce__(self) -> tuple[type[_Readers], tuple[()]]:
        return _Readers, ()  # each process opens its own


def _blocks(shard: Shard, samples: Iterator[Sample]) -> Iterator[Block]:
    """Cut a stream of samples into blocks that are neither long nor heavy."""
    held: list[Sample] = []
    weight = 0
    try:
        for sample in samples:
            held.append(sample)
            weight += sum(len(value) for value in sample.values() if type(value) is bytes)
            if len(held) >= _BLOCK_SAMPLES or weight >= _BLOCK_BYTES:
                yield Block(held, (shard,))
                held, weight = [], 0
    except Exception:
        # What was read before the damaged place is delivered before the error.
        if held:
            yield Block(held, (shard,))
        raise
    if held:
        yield Block(held, (shard,))


def _shard_cache(cache: Cache) -> ShardCache | None:
    if cache is None or cache is False:
        return None
    if isinstance(cache, ShardCache):
        return cache
    chosen = settings.current()
    return ShardCache(chosen.cache / "shards" if cache is True else os.fspath(cache), chosen.cache_size)
