"""One end of a feed, in this process: ``python -m benchmarks.feed_contestant ROLE ...``.

A server prints where it is and serves until its standard input ends. A trainer takes batches from there and prints what
it saw as a line of JSON: batches, bytes and seconds, and the seconds of CPU of its process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.constants import BATCH, SIDE

SHAPE = (3, SIDE, SIDE)
WARM_UP = 8
TOKEN = "for this benchmark alone"


def ready() -> Any:
    """Give a dataset whose batches are there already: memory gets its numbers once, and is used as it is then."""
    import shoal
    from shoal.pipeline.stages import FillStage

    numbers = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)

    @dataclass(frozen=True, slots=True)
    class Ready(FillStage):
        @property
        def row(self) -> Any:
            return SHAPE, np.dtype(np.float32)

        def fill(self, block: Any, rows: Any) -> Any:
            for row in rows:
                if row[-1, -1, -1] != numbers[-1, -1, -1]:
                    row[...] = numbers
            return block.with_samples([{**s, "x": row} for s, row in zip(block.samples, rows, strict=True)])

    return shoal.from_arrays({"cls": np.arange(BATCH * 100_000)}).apply(Ready())


def pictures(folder: Path, kind: str) -> Any:
    """Give pictures that are shuffled, cropped and flipped, and normalised unless they are to be bytes."""
    from shoal import image, read_tar

    tars = sorted(str(path) for path in folder.glob("*.tar"))
    stages = image.random_resized_crop(SIDE), image.flip(), image.normalize()
    return read_tar(tars).shuffle("shards", seed=0).decode().apply(*(stages[:2] if kind == "bytes" else stages))


def serve_shoal(folder: str = "", kind: str = "float32") -> None:
    """Be a feeder, of ready batches or of pictures."""
    from shoal import feed

    dataset = pictures(Path(folder), kind) if folder else ready()
    with feed.serve(dataset, workers=2 if folder else 1, token=TOKEN) as feeder:
        begun = time.process_time()
        print(feeder.url, flush=True)
        sys.stdin.read()
        print(json.dumps({"cpu": time.process_time() - begun}), flush=True)


def shoal_batches(url: str, shared: bool) -> Iterator[Any]:
    """Load from a feeder, epoch after epoch."""
    from shoal import feed

    loader = feed.connect(url, BATCH, token=TOKEN, shared_memory=shared)
    while True:
        for batch in loader:
            yield batch.get("x", batch.get("jpg"))


def local_batches(folder: str, kind: str) -> Iterator[Any]:
    """Load without a feeder."""
    loader = pictures(Path(folder), kind).loader(BATCH, workers=2)
    while True:
        for batch in loader:
            yield batch["jpg"]


def serve_tfdata() -> None:
    """Be dispatcher and worker of tf.data service."""
    import tensorflow as tf

    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
    print(dispatcher.target, flush=True)
    sys.stdin.read()
    del worker


def tfdata_batches(url: str, compression: str | None) -> Iterator[Any]:
    """Read from tf.data service, in its own compression or without."""
    import tensorflow as tf

    ready_batch = tf.random.stateless_normal((BATCH, *SHAPE), (0, 0))
    dataset = tf.data.Dataset.from_tensors(ready_batch).repeat()
    options = {"processing_mode": "parallel_epochs", "service": url, "compression": compression}
    dataset = dataset.apply(tf.data.experimental.service.distribute(**options))
    yield from dataset.as_numpy_iterator()


def trained(batches: Iterator[Any], count: int, kind: str) -> dict[str, Any]:
    """Take batches, and look at a number of each."""
    wanted = (BATCH, *SHAPE) if kind == "float32" else (BATCH, SIDE, SIDE, 3)
    for _ in range(WARM_UP):
        next(batches)
    seen, size, cpu, begin = 0.0, 0, time.process_time(), time.perf_counter()
    for _ in range(count):
        batch = np.asarray(next(batches))
        assert batch.shape == wanted, batch.shape
        assert batch.dtype == (np.float32 if kind == "float32" else np.uint8)
        seen += float(batch[-1, -1, -1, -1])
        size += batch.nbytes
        del batch
    seconds, used = time.perf_counter() - begin, time.process_time() - cpu
    return {"batches": count, "bytes": size, "seconds": seconds, "cpu": used, "seen": bool(np.isfinite(seen))}


def main() -> None:
    """Play a role."""
    role, *arguments = sys.argv[1:]
    match role:
        case "serve-shoal":
            serve_shoal(*arguments)
        case "serve-tfdata":
            serve_tfdata()
        case "flight" | "shared":
            url, count, kind = arguments
            print(json.dumps(trained(shoal_batches(url, role == "shared"), int(count), kind)), flush=True)
        case "local":
            folder, count, kind = arguments
            print(json.dumps(trained(local_batches(folder, kind), int(count), kind)), flush=True)
        case "tfdata" | "tfdata-plain":
            url, count, _ = arguments
            batches = tfdata_batches(url, "AUTO" if role == "tfdata" else None)
            print(json.dumps(trained(batches, int(count), "float32")), flush=True)
    os._exit(0)  # servers and readers of other libraries take their time to end


if __name__ == "__main__":
    main()
