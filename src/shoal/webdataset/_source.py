"""Which shards a dataset reads in this process, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

from shoal import settings
from shoal.errors import SettingsError
from shoal.webdataset._random import generator
from shoal.webdataset._shardlists import ResampledShards
from shoal.webdataset._split import Piece, deal, single_node_only, split_by_worker, worker
from shoal.webdataset._stream import mixed
from shoal.webdataset._urls import Urls, shard_urls

__all__ = ["ShardOptions", "ShardSource", "Splitter"]

Splitter: TypeAlias = Callable[[Iterable[Any]], Iterable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOptions:
    """How shards are dealt out and ordered."""

    resampled: bool = False
    """Whether shards are drawn with replacement, without end."""
    repeat: bool = False
    """Whether the shards are gone through without end."""
    epochs: int = 1
    """How often they are gone through otherwise."""
    shardshuffle: bool | int | None = None
    """The size of the buffer in which shards are mixed; True mixes all of them, None and 0 none."""
    detshuffle: bool = False
    """Whether the order follows from seed and epoch, instead of being the same in every epoch."""
    nodesplitter: Splitter | None = single_node_only
    workersplitter: Splitter | None = split_by_worker
    seed: int | None = None
    """By default ``WDS_SEED`` of the environment, or a new order each time."""


class ShardSource:
    """The shards of a dataset: listed, split by node and worker, shuffled or drawn.

    >>> [piece.url for piece in ShardSource("a-{0..2}.tar", ShardOptions())()]
    ['a-0.tar', 'a-1.tar', 'a-2.tar']
    """

    def __init__(self, urls: Urls, options: ShardOptions) -> None:
        self._given, self._options = urls if isinstance(urls, str) else _fixed(urls), options
        self._listed: list[str] | None = None
        self._resampled: ResampledShards | None = None
        self._epoch = -1

    @property
    def urls(self) -> list[str]:
        """All shards, in their order; wildcards and folders are looked up the first time."""
        if self._listed is None:
            self._listed = shard_urls(self._given)
        return list(self._listed)

    def __call__(self) -> Iterator[Piece]:
        for _ in count() if self._options.repeat else range(self._options.epochs):
            empty = True
            for piece in self._shards():
                empty = False
                yield piece
            if empty:
                return

    def _shards(self) -> Iterator[Piece]:
        self._epoch += 1
        seed = self._options.seed if self._options.seed is not None else _seed()
        if self._options.resampled:
            return self._drawn(seed)
        size = self._options.shardshuffle
        pieces = self._mine()
        if not size:
            return iter(pieces)
        random = generator(seed, self._epoch) if self._options.detshuffle else generator(seed)
        size = max(len(pieces), 1) if size is True else size
        return mixed(pieces, size, size, random)

    def _drawn(self, seed: int | None) -> Iterator[Piece]:
        if self._resampled is None:
            self._resampled = ResampledShards(self.urls, seed=seed or 0, deterministic=seed is not None)
        return (Piece(shard["url"]) for shard in self._resampled)

    def _mine(self) -> list[Piece]:
        shards: Iterable[Any] = [{"url": url} for url in self.urls]
        options = self._options
        if options.nodesplitter is not None:
            shards = options.nodesplitter(shards)
        if options.workersplitter is split_by_worker:
            return deal([shard["url"] for shard in shards], *worker())
        if options.workersplitter is not None:
            shards = options.workersplitter(shards)
        return [Piece(shard["url"]) for shard in shards]


def _fixed(urls: Urls) -> Urls:
    return list(urls) if isinstance(urls, Iterable) else urls


def _seed() -> int | None:
    text = settings.variable("WDS_SEED")
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise SettingsError(f"WDS_SEED is {text!r}, which is not a whole number") from None
