"""Shards as streams of samples, through the tar source."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from shoal import settings
from shoal._malloc import keep_freed_memory
from shoal.abc import Sample, Shard
from shoal.errors import ShardError
from shoal.files import ShardCache, display, local_path
from shoal.shards import owned
from shoal.sources import TarSource
from shoal.webdataset._handlers import Handler, goes_on, reraise_exception
from shoal.webdataset._split import Piece
from shoal.webdataset._stage import Stage
from shoal.webdataset._trust import check_url, trusted

__all__ = ["ReadOptions", "ShardReader", "tarfile_to_samples"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How shards are read."""

    handler: Handler = reraise_exception
    select_files: Callable[[str], bool] | None = None
    """Tells of a member's name, after renaming, whether it is read."""
    rename_files: Callable[[str], str] | None = None
    """Rewrites a member's name before grouping."""
    cache_dir: str | None = None
    """Folder for copies of remote shards; by default ``WDS_CACHE`` of the environment, or none."""
    cache_size: int = -1
    """Bytes kept there; by default ``WDS_CACHE_SIZE``, or that of the settings."""
    empty_check: bool = True
    """Whether a stream without any sample is an error."""
    verbose: bool = False
    """Whether each shard is named on standard error when it is opened."""
    trust: bool = False
    """Whether commands and pickles may run."""


class ShardReader:
    """Opens shards, whole or in parts, one after the other.

    >>> import tempfile
    >>> from shoal.shards import TarWriter
    >>> path = tempfile.mkdtemp() + "/a.tar"
    >>> with TarWriter(path) as writer:
    ...     _ = writer.write({"__key__": "1", "cls": 3})
    >>> [sample["cls"] for sample in ShardReader(ReadOptions())([{"url": path}])]
    [b'3']
    """

    def __init__(self, options: ReadOptions, *, keep: Iterable[str] | None = None, origin: bool = True) -> None:
        self.options = options
        self._keep = None if keep is None else frozenset(keep)
        self._origin = origin
        self._opened: TarSource | None = None

    def __call__(self, shards: Iterable[Any]) -> Iterator[Sample]:
        return self.each(shards, self.samples)

    def each(self, shards: Iterable[Any], read: Callable[[Piece], Iterator[Any]]) -> Iterator[Any]:
        """Chain what ``read`` makes of each shard; the handler decides about those that fail."""
        keep_freed_memory()
        found = was_cut = False
        for piece in map(_piece, shards):
            was_cut = was_cut or piece.parts > 1
            try:
                for sample in read(piece):
                    found = True
                    yield sample
            except Exception as error:
                error.add_note(f"while reading {display(piece.url)}")
                if not goes_on(self.options.handler, error):
                    break
        # A worker that was given a part of a small shard may rightly have nothing.
        if self.options.empty_check and not found and not was_cut:
            raise ValueError(
                "No samples found in dataset: its shards are empty, were all skipped, or there are fewer shards than "
                "nodes; pass empty_check=False if that is as it should be"
            )

    def samples(self, piece: Piece) -> Iterator[Sample]:
        """Yield the samples of a shard, with where they are from."""
        url = piece.url
        check_url(url)
        if self.options.verbose:
            sys.stderr.write(f"# reading {display(url)}\n")
        extra = self._extra(url)
        for block in self._source.open(self._shard(piece)):
            for sample in block.samples:
                owned(sample).update(extra)
                yield sample

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}  # each process opens its own files

    def close(self) -> None:
        """Let go of what is open; reading again opens it anew."""
        self._opened = None

    @property
    def _source(self) -> TarSource:
        if self._opened is None:
            options = self.options
            rename = _Names(options.select_files, options.rename_files)
            self._opened = TarSource(
                [],
                keep=self._keep,
                rename=None if rename == _Names() else rename,
                cache=_cache(options),
                trust=trusted(options.trust),
            )
        return self._opened

    def _extra(self, url: str) -> Sample:
        if not self._origin:
            return {}
        path = local_path(url)
        return {"__url__": url} if path is None else {"__url__": url, "__local_path__": path}

    def _shard(self, piece: Piece) -> Shard:
        """Find which samples a part is: a range of a local file, every n-th sample of anything else.

        All parts must be cut alike, in processes that do not know of each other. Whether one can seek in a remote
        shard depends on an index that another worker may be making just now, so that is never asked.
        """
        whole = Shard(piece.url)
        if piece.parts == 1:
            return whole
        dealt = replace(whole, start=piece.part, step=piece.parts)
        if local_path(piece.url) is None:
            return dealt
        try:
            return self._source.split(whole, piece.parts)[piece.part]
        except ShardError:
            return dealt  # it is damaged: each worker reads up to that place


def tarfile_to_samples(
    handler: Handler = reraise_exception,
    select_files: Callable[[str], bool] | None = None,
    rename_files: Callable[[str], str] | None = None,
    *,
    trust: bool = False,
) -> Stage:
    """Turn a stream of shards (dicts with a ``url``, or URLs) into one of samples.

    >>> import tempfile
    >>> from shoal.shards import TarWriter
    >>> path = tempfile.mkdtemp() + "/a.tar"
    >>> with TarWriter(path) as writer:
    ...     _ = writer.write({"__key__": "1", "cls": 3})
    >>> [sample["__key__"] for sample in tarfile_to_samples()([path])]
    ['1']
    """
    options = ReadOptions(
        handler=handler, select_files=select_files, rename_files=rename_files, empty_check=False, trust=trust
    )
    return partial(_read_all, options=options)


def _read_all(shards: Iterable[Any], options: ReadOptions) -> Iterator[Sample]:
    return ShardReader(options)(shards)


@dataclass(frozen=True, slots=True)
class _Names:
    """Renames and selects members in one go, as the source wants it."""

    select: Callable[[str], bool] | None = None
    rename: Callable[[str], str] | None = None

    def __call__(self, name: str) -> str | None:
        name = name if self.rename is None else self.rename(name)
        return name if self.select is None or self.select(name) else None


def _piece(shard: Any) -> Piece:
    if isinstance(shard, Piece):
        return shard
    return Piece(shard["url"] if isinstance(shard, dict) else shard)


def _cache(options: ReadOptions) -> ShardCache | None:
    folder = options.cache_dir or settings.variable("WDS_CACHE")
    if not folder:
        return None
    size: int | str = options.cache_size if options.cache_size >= 0 else settings.variable("WDS_CACHE_SIZE") or -1
    if size == -1:
        return ShardCache(folder, settings.current().cache_size)
    return ShardCache(folder, settings.parse_bytes(size))
