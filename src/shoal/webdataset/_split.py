"""Who reads which shards: the parts of nodes and of the workers inside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from shoal import settings
from shoal.webdataset import _torch

__all__ = ["Piece", "deal", "node", "single_node_only", "split_by_node", "split_by_worker", "worker"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Piece:
    """A shard, or one of several parts of it."""

    url: str
    part: int = 0
    parts: int = 1


def node(group: Any = None) -> tuple[int, int]:
    """Tell rank and world size: what a launcher says in the environment, else what torch's process group says.

    >>> node()
    (0, 1)
    """
    given = settings.process()
    if given.rank is not None and given.world_size is not None:
        return given.rank, given.world_size
    return _torch.node(group) or (0, 1)


def worker() -> tuple[int, int]:
    """Tell the worker's number and how many there are: from the environment, else from the DataLoader around.

    >>> worker()
    (0, 1)
    """
    given = settings.process()
    if given.worker is not None and given.num_workers is not None:
        return given.worker, given.num_workers
    return _torch.worker() or (0, 1)


def split_by_node(shards: Iterable[T], group: Any = None) -> Iterator[T]:
    """Keep every n-th shard, n being the number of nodes.

    >>> list(split_by_node(["a.tar", "b.tar"]))
    ['a.tar', 'b.tar']
    """
    rank, world_size = node(group)
    return islice(shards, rank, None, world_size)


def split_by_worker(shards: Iterable[T]) -> Iterator[T]:
    """Keep every n-th shard, n being the number of workers of this node.

    >>> list(split_by_worker(["a.tar", "b.tar"]))
    ['a.tar', 'b.tar']
    """
    number, count = worker()
    return islice(shards, number, None, count)


def single_node_only(shards: Iterable[T], group: Any = None) -> Iterator[T]:
    """Keep all shards, and refuse to run on several nodes, which would all read the same.

    >>> list(single_node_only(["a.tar", "b.tar"]))
    ['a.tar', 'b.tar']
    """
    _, world_size = node(group)
    if world_size > 1:
        raise ValueError(
            f"you need to add an explicit nodesplitter: this is one of {world_size} nodes, and each would read all "
            "shards; pass nodesplitter=split_by_node, or resampled=True to let each node draw shards of its own"
        )
    return iter(shards)


def deal(urls: Sequence[str], number: int, count: int) -> list[Piece]:
    """Give a worker its part of the shards: whole ones in turn, or pieces where there are fewer than workers.

    >>> deal(["a.tar", "b.tar", "c.tar"], 0, 2)
    [Piece(url='a.tar', part=0, parts=1), Piece(url='c.tar', part=0, parts=1)]
    >>> deal(["a.tar"], 1, 2)
    [Piece(url='a.tar', part=1, parts=2)]
    """
    if len(urls) >= count or not urls:
        return [Piece(url) for url in urls[number::count]]
    mine = number % len(urls)
    sharers = range(mine, count, len(urls))
    return [Piece(urls[mine], sharers.index(number), len(sharers))]
