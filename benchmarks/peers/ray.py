"""Ray Data with a fast decoder, from Parquet."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.data

from benchmarks.constants import BATCH, WORKERS
from benchmarks.transform import picture_array


def _decode(rows: dict[str, Any]) -> dict[str, Any]:
    return {"picture": np.stack([picture_array(data) for data in rows["jpg"]]), "cls": rows["cls"]}


def images(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Shuffle files and a buffer of four batches; starting Ray is part of the first batch, ending it of the stop."""
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.read_parquet(str(folder), shuffle="files").map_batches(_decode, batch_size=BATCH)
    batches = iter(rows.iter_torch_batches(batch_size=BATCH, local_shuffle_buffer_size=4 * BATCH))
    try:
        for batch in batches:
            yield batch["picture"], batch["cls"]
    finally:
        batches.close()  # its thread must not find Ray gone
        ray.shutdown()
