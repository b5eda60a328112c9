"""Tar shards as a source: files on a disk, in a cache, behind a URL, in a pipe."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal._kept import Kept
from shoal.abc import Block, Columns, Sample, Shard, Source
from shoal.files import expand, stat
from shoal.shards import Rename, ShardIndex
from shoal.sources._blocks import blocks
from shoal.sources._cache import Cache, shard_cache
from shoal.sources._tar_reader import MappedReader, TarOptions, TarReader, open_tar, shard_version

__all__ = ["TarSource", "Urls"]

Urls: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"

_OPEN_READERS = 128


class TarSource(Source):
    """Tar shards by URL: braces, lists, globs, folders; any scheme that fsspec knows, ``pipe:``, ``-``.

    A plain local file is mapped, and its samples are views into the map. Everything else is read as a stream; a remote
    shard may be kept in a local cache first. The index of a shard is built on the way when it is read to its end, and
    kept; whatever needs lengths or random access uses it.

    >>> import tempfile
    >>> from shoal.shards import TarWriter
    >>> path = f"{tempfile.mkdtemp()}/a.tar"
    >>> with TarWriter(path) as writer:
    ...     for number in range(3):
    ...         _ = writer.write({"__key__": str(number), "cls": number})
    >>> source = TarSource(path)
    >>> (shard,) = source.shards()
    >>> source.length(shard), [bytes(sample["cls"]) for sample in source.take(shard, [2, 0])]
    (3, [b'2', b'0'])
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
        self._options = TarOptions(None if keep is None else frozenset(keep), rename, shard_cache(cache), trust)
        self._shards: tuple[Shard, ...] | None = None
        self._readers: Kept[TarReader] = Kept(_OPEN_READERS, _one)

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
            yield from blocks(shard, islice(reader.samples(first), 0, count, shard.step))

    def length(self, shard: Shard) -> int:
        """Count the samples of a shard, reading it once if it has no index yet."""
        return self._length(shard, self._reader(shard))

    def index(self, shard: Shard, *, anew: bool = False) -> ShardIndex:
        """Give the index of the whole tar that a shard is of, reading it once if it has none, or to make it anew."""
        return self._reader(shard).index(anew=anew)

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        """Read the samples at these positions of a shard, in this order."""
        if not indices:
            return []
        reader = self._reader(shard)
        length = self._length(shard, reader)
        if min(indices) < 0 or max(indices) >= length:
            wrong = next(index for index in indices if not 0 <= index < length)
            raise _no_such_sample(shard, wrong, length)
        whole = shard.start == 0 and shard.step == 1
        return reader.take(indices if whole else [shard.start + index * shard.step for index in indices])

    def take_columns(self, shard: Shard, indices: NDArray[np.int64]) -> Columns | None:
        """Read the samples at these positions, in this order, as columns of bytes.

        None where samples differ in their fields, and for a shard that is not a plain local file.
        """
        reader = self._reader(shard)
        if not len(indices) or not isinstance(reader, MappedReader):
            return None
        length = self._length(shard, reader)
        if int(indices.min()) < 0 or int(indices.max()) >= length:
            raise _no_such_sample(shard, int(indices[(indices < 0) | (indices >= length)][0]), length)
        return reader.take_columns(shard.start + indices * shard.step)

    @property
    def seekable(self) -> bool:
        """Whether samples can be picked, as the first shard tells: plain and local or cached, or with an index beside.

        Every rank has to come to the same answer, so an index that this host happens to have does not count.
        """
        first = next(iter(self.shards()), None)
        return first is None or self._reader(first).lets_seek()

    @property
    def waits(self) -> bool:
        """Whether there is more to it than looking at a map, as the first shard tells."""
        first = next(iter(self.shards()), None)
        return first is not None and not self._reader(first).mapped

    def fingerprint(self, shard: Shard) -> str:
        """Give the size of a local shard, or the version of a remote one."""
        return shard_version(shard.url)

    def size(self, shard: Shard) -> int | None:
        """Give the bytes of a whole shard; those of a range of its samples are not known, nor those of a pipe."""
        return stat(shard.url).size if shard == Shard(shard.url) else None

    def split(self, shard: Shard, parts: int) -> list[Shard]:
        """Cut a shard into ranges where one can seek in it, else deal its samples out in turn."""
        known = self._reader(shard).seekable and shard.step == 1
        return shard.split(parts, self.length(shard) if known else None)

    def _length(self, shard: Shard, reader: TarReader) -> int:
        stop = len(reader.index()) if shard.stop is None else shard.stop
        return len(range(shard.start, stop, shard.step))

    def _reader(self, shard: Shard) -> TarReader:
        return self._readers.get(shard.url, lambda: open_tar(shard.url, self._options))


def _no_such_sample(shard: Shard, index: int, length: int) -> IndexError:
    return IndexError(f"there is no sample {index} in shard {shard.url}, which has {length}")


def _one(reader: TarReader) -> int:
    return 1
