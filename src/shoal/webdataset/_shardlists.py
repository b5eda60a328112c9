"""Streams of shards: each is a dict with a ``url``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

from shoal.errors import PlanError
from shoal.webdataset._random import generator
from shoal.webdataset._split import node, worker
from shoal.webdataset._stage import Stage
from shoal.webdataset._torch import IterableDataset
from shoal.webdataset._urls import Urls, shard_urls

__all__ = ["ResampledShards", "SimpleShardList", "resampled"]

Shards: TypeAlias = Iterator[dict[str, Any]]


class SimpleShardList(IterableDataset[dict[str, Any]]):
    """All shards in their order, or, with a seed, in a shuffled one, the same each time.

    >>> [shard["url"] for shard in SimpleShardList("a-{0..2}.tar")]
    ['a-0.tar', 'a-1.tar', 'a-2.tar']
    """

    def __init__(self, urls: Urls, seed: int | None = None) -> None:
        self._given, self._seed = urls if isinstance(urls, str) else list(_listed(urls)), seed

    @property
    def urls(self) -> list[str]:
        """The shards in their order."""
        return shard_urls(self._given)

    def __len__(self) -> int:
        return len(self.urls)

    def __iter__(self) -> Shards:
        urls = self.urls
        if self._seed is not None:
            generator(self._seed).shuffle(urls)
        return ({"url": url} for url in urls)


class ResampledShards(IterableDataset[dict[str, Any]]):
    """Shards drawn with replacement, without end unless ``nshards`` is given.

    Each node and worker draws its own row. With ``deterministic`` the row follows from seed, node, worker and the
    number of times it was begun; ``worker_seed`` is a function that takes the place of node and worker.

    >>> shards = ResampledShards("a-{0..2}.tar", nshards=5, deterministic=True)
    >>> len(list(shards))
    5
    """

    def __init__(
        self,
        urls: Urls,
        nshards: int | None = None,
        seed: int = 0,
        worker_seed: Any = None,
        deterministic: bool = False,
    ) -> None:
        self._list = SimpleShardList(urls)
        self._nshards, self._seed, self._worker_seed = nshards, seed, worker_seed
        self._deterministic = deterministic
        self._epoch = -1

    def __iter__(self) -> Shards:
        self._epoch += 1
        place = (node(), worker()) if self._worker_seed is None else self._worker_seed()
        moment = "" if self._deterministic else (os.getpid(), time.time_ns())
        random = generator(self._seed, place, self._epoch, moment)
        return _drawn([{"url": url} for url in self._list.urls], self._nshards, random)


def resampled(n: int | None = None) -> Stage:
    """Draw ``n`` shards, or shards without end, with replacement from those that come in.

    >>> len(list(resampled(27)(SimpleShardList("a-{0..9}.tar"))))
    27
    """
    return partial(_resampled, n=n)


def _resampled(shards: Iterable[Any], n: int | None) -> Iterator[Any]:
    return _drawn(list(shards), n, generator())


def _drawn(shards: list[Any], count: int | None, random: Any) -> Iterator[Any]:
    if not shards:
        raise PlanError("there are no shards to draw from")
    return islice(iter(lambda: random.choice(shards), None), count)


def _listed(urls: Urls) -> list[str | os.PathLike[str]]:
    return [urls] if isinstance(urls, str | os.PathLike) else list(urls)
