"""Where samples come from.

A source lists its shards and opens one of them as a stream of blocks. A shard is a description, small and picklable:
opening it is the source's job, wherever that happens to run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

__all__ = ["Block", "Sample", "Shard", "Source", "SupportsRandomAccess", "SupportsSplit"]

#: A dict of fields plus ``"__key__"``.
Sample: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shard:
    """A lazy piece of a source: samples ``start``, ``start + step``, ... below ``stop`` of what ``url`` names.

    A step above 1 shares out a stream whose length nobody knows and in which nobody can seek.
    """

    url: str
    start: int = 0
    stop: int | None = None
    step: int = 1


@dataclass(frozen=True, slots=True)
class Block:
    """Some samples in their order; what crosses queues, processes and hosts.

    Fields that no stage has decoded are bytes, or read-only views into a mapped shard.
    """

    samples: list[Sample]
    origins: Sequence[Shard]
    """The shard each sample came from; one entry if it is the same for all, none if it is not known."""

    def origin(self, key: str) -> str | None:
        """Find the URL of the shard that a sample came from, for the text of an error.

        Shards that have the same keys cannot be told apart by them, so all that it may be are named.
        """
        if len(self.origins) < 2:
            return self.origins[0].url if self.origins else None
        pairs = zip(self.samples, self.origins, strict=True)
        urls = dict.fromkeys(shard.url for sample, shard in pairs if sample["__key__"] == key)
        return " or ".join(urls) or None


class Source(ABC):
    """A list of shards and a way to open one."""

    @abstractmethod
    def shards(self) -> Sequence[Shard]:
        """List the shards, in storage order."""

    @abstractmethod
    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        """Yield the shard's samples in blocks, from its sample ``start`` on."""


@runtime_checkable
class SupportsRandomAccess(Protocol):
    """A source that knows how long a shard is and can pick samples out of it."""

    def length(self, shard: Shard) -> int:
        """Count the samples of a shard."""
        ...

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        """Read the samples at these positions of a shard, in this order."""
        ...


@runtime_checkable
class SupportsSplit(Protocol):
    """A source that can cut a shard into smaller ones."""

    def split(self, shard: Shard, parts: int) -> list[Shard]:
        """Cut a shard into ``parts`` disjoint shards that together hold all its samples."""
        ...
