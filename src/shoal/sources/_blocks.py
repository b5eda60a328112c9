"""Streams of samples, cut into blocks."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.abc import Block, Sample, Shard

__all__ = ["blocks"]

_BLOCK_SAMPLES = 64
_BLOCK_BYTES = 16 * 2**20


def blocks(shard: Shard, samples: Iterator[Sample]) -> Iterator[Block]:
    """Cut a stream of samples into blocks that are neither long nor heavy.

    >>> [len(block.samples) for block in blocks(Shard("a"), ({"__key__": str(n)} for n in range(100)))]
    [64, 36]
    """
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
