"""Sources in memory, which say what was asked of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shoal.abc import Block, Sample, Shard, Source

__all__ = ["ForwardSource", "LengthSource", "MemorySource", "StreamSource"]

_BLOCK = 7


class StreamSource(Source):
    """Shards that can only be read from their beginnings, and whose lengths nobody knows."""

    def __init__(self, shards: Sequence[Sequence[Sample]], name: str = "memory") -> None:
        self.contents = [list(shard) for shard in shards]
        self._shards = tuple(Shard(f"{name}-{number}", start=0) for number in range(len(shards)))
        self._numbers = {shard: number for number, shard in enumerate(self._shards)}
        self.opened: list[tuple[int, int]] = []
        """Which shards were opened, and where."""
        self.read = 0
        """Samples that were read."""
        self.measured = 0
        """Lengths that were asked for."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(map(len, self.contents))})"

    def shards(self) -> Sequence[Shard]:
        return self._shards

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        samples = self._samples(shard)
        self.opened.append((self._numbers[shard], start))
        for at in range(start, len(samples), _BLOCK):
            block = [dict(sample) for sample in samples[at : at + _BLOCK]]
            self.read += len(block)
            yield Block(block, (shard,))

    def _samples(self, shard: Shard) -> Sequence[Sample]:
        return self.contents[self._numbers[shard]]


class MemorySource(StreamSource):
    """Shards whose samples can be picked."""

    def length(self, shard: Shard) -> int:
        self.measured += 1
        return len(self._samples(shard))

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        samples = self._samples(shard)
        self.read += len(indices)
        return [dict(samples[index]) for index in indices]


class ForwardSource(MemorySource):
    """Shards that have lengths and are better read forward, as compressed ones are."""

    seekable = False


class LengthSource(Source):
    """Shards of given lengths whose samples are made when they are read."""

    def __init__(self, lengths: Sequence[int], name: str = "made") -> None:
        self._lengths = list(lengths)
        self._shards = tuple(Shard(f"{name}-{number}") for number in range(len(lengths)))
        self._numbers = {shard: number for number, shard in enumerate(self._shards)}
        self.read = 0
        self.measured = 0

    def shards(self) -> Sequence[Shard]:
        return self._shards

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        for index in range(start, self._lengths[self._numbers[shard]]):
            yield Block([self._sample(shard, index)], (shard,))

    def length(self, shard: Shard) -> int:
        self.measured += 1
        return self._lengths[self._numbers[shard]]

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        return [self._sample(shard, index) for index in indices]

    def _sample(self, shard: Shard, index: int) -> Sample:
        self.read += 1
        return {"__key__": f"{shard.url}/{index}", "cls": index}
