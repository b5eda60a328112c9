"""Order and position: planning at scale, going on in the middle of an epoch, the size of a state."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import webdataset

import shoal
from benchmarks.measure import compare
from shoal.abc import Block, Sample, Shard, Source
from shoal.order import ElementOrder, Shuffle, Walk

SHARDS, SAMPLES_A_SHARD, RANKS = 100_000, 100_000, 1024
SMALL, SMALL_SHARDS, BATCH = 100_000, 16, 256
COMPONENTS, COMPONENT_SHARDS = 100, 100


def run() -> Iterator[str]:
    """Yield one table after the other."""
    yield _planning()
    yield _state_size()
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name:
        os.environ["SHOAL_CACHE"] = f"{name}/cache"
        folder = Path(name)
        with shoal.shards.ShardWriter(folder / "%04d.tar", maxcount=SMALL // SMALL_SHARDS, index=True) as writer:
            for number in range(SMALL):
                writer.write({"__key__": f"{number:08d}", "bin": number.to_bytes(200, "little")})
        yield _resuming([shard.url for shard in writer.shards])


def _planning() -> str:
    """Plan an epoch on one rank: the order, the steps, the first thousand samples and a thousand in the middle."""
    lengths = np.full(SHARDS, SAMPLES_A_SHARD)

    def plan(mode: str) -> None:
        order = ElementOrder(Walk(Shuffle(mode), 0, SHARDS, RANKS), lambda numbers: lengths[numbers])
        total = int(lengths.sum())
        for first in (0, total // 2 // RANKS):
            found = order.locate(np.arange(first, first + 1000) * RANKS + RANKS // 2)
            assert (found.shards >= 0).all()

    results = compare({mode: lambda mode=mode: plan(mode) for mode in ("shards", "full")})  # type: ignore[misc]
    rows = [f"| {result.name} | {result.best * 1000:.0f} | {result.median * 1000:.0f} |" for result in results]
    title = f"Planning an epoch of {SHARDS:,} shards and {SHARDS * SAMPLES_A_SHARD:,} samples for {RANKS:,} ranks"
    return "\n".join([f"### {title}", "", "| shuffle | ms a rank, best | ms, median |", "|---|---|---|", *rows, ""])


class _Numbers(Source):
    """Shards of numbers that nobody stored."""

    def __init__(self, name: str) -> None:
        self._shards = [Shard(f"{name}-{number:06d}") for number in range(COMPONENT_SHARDS)]

    def shards(self) -> Sequence[Shard]:
        return self._shards

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        yield Block(self.take(shard, range(start, 1000)), (shard,))

    def length(self, shard: Shard) -> int:
        return 1000

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        return [{"__key__": f"{shard.url}/{index}", "tokens": np.zeros(index % 90 + 1)} for index in indices]


def _state_size() -> str:
    """Measure the state of one rank in the middle of an epoch over a large mixture."""
    components = [shoal.Dataset(_Numbers(f"c{number}")).shuffle("shards") for number in range(COMPONENTS)]
    mixed = shoal.mix(components, [1 + number % 7 for number in range(COMPONENTS)])
    rows = []
    for name, dataset in (("mixed", mixed), ("mixed and packed", mixed.pack(256, bins=8))):
        loader = dataset.loader(64)
        batches = iter(loader)
        for _ in range(100):
            next(batches)
        start = time.perf_counter()
        state = loader.state_dict()
        seconds = time.perf_counter() - start
        size = len(json.dumps(state))
        again = dataset.loader(64)
        start = time.perf_counter()
        again.load_state_dict(state)
        assert list(next(iter(again))["__key__"]) == list(next(batches)["__key__"])
        restored = time.perf_counter() - start
        rows.append(f"| {name} | {size / 1024:.1f} | {seconds * 1000:.0f} | {restored * 1000:.0f} |")
    title = f"State of a rank with 64 lanes: {COMPONENTS} components, {COMPONENTS * COMPONENT_SHARDS:,} shards"
    head = "| | KiB as JSON | ms to make | ms to load, to the next batch |"
    return "\n".join([f"### {title}", "", head, "|---|---|---|---|", *rows, ""])


def _resuming(urls: list[str]) -> str:
    """Go on at nine tenths of an epoch, up to the first batch."""
    dataset = shoal.read_tar(urls).shuffle("shards", seed=1)
    skipped = SMALL * 9 // 10 // BATCH
    loader = dataset.loader(BATCH)
    for _ in itertools.islice(loader, skipped):
        pass
    state = loader.state_dict()

    def ours() -> None:
        again = dataset.loader(BATCH)
        again.load_state_dict(state)
        next(iter(again))

    def theirs() -> None:
        stream = webdataset.WebDataset(urls, shardshuffle=len(urls), seed=1).shuffle(1000).batched(BATCH)
        next(itertools.islice(stream, skipped, None))

    results = compare({"shoal, from its state": ours, "webdataset, reading up to there": theirs})
    title = f"Going on at nine tenths of an epoch of {SMALL:,} small samples, to the first batch"
    rows = [f"| {result.name} | {result.best * 1000:,.0f} | {result.median * 1000:,.0f} |" for result in results]
    return "\n".join([f"### {title}", "", "| | ms, best of 7 | ms, median |", "|---|---|---|", *rows, ""])
