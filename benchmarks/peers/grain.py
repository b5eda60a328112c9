"""Grain in threads with a fast decoder, from ArrayRecord."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import torch

from benchmarks.constants import BATCH, WORKERS
from benchmarks.transform import picture_array


def _decode(record: bytes) -> tuple[Any, int]:
    return picture_array(record[8:]), int.from_bytes(record[:8], "little")


def images(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Shuffle all records, decode in two threads, batch in the consumer."""
    options = grain.ReadOptions(num_threads=WORKERS, prefetch_buffer_size=2 * BATCH)
    rows = _shuffled(folder).map(_decode).to_iter_dataset(options).batch(BATCH)
    for pictures, labels in rows:
        yield torch.from_numpy(pictures), torch.from_numpy(labels)


def small(folder: Path) -> Iterator[Any]:
    """Batch in the threads, which then have a batch to do and not a record."""
    options = grain.ReadOptions(num_threads=WORKERS, prefetch_buffer_size=8)
    yield from _shuffled(folder).batch(256, batch_fn=list).to_iter_dataset(options)


def _shuffled(folder: Path) -> grain.MapDataset[bytes]:
    source = grain.sources.ArrayRecordDataSource(sorted(str(path) for path in folder.glob("*.arrayrecord")))
    return grain.MapDataset.source(source).shuffle(seed=0)
