"""Datasets that feeders of the tests serve, and a trainer: ``python -m support.feed_plans trainer ...``."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from shoal import feed
from shoal.abc import Sample
from shoal.errors import FeedWarning, StallWarning
from shoal.pipeline import Dataset

__all__ = ["COUNT", "digest", "digests", "few", "made", "noted", "other", "pictures"]

COUNT = 2000


def _treated(sample: Sample, rng: np.random.Generator) -> Sample:
    time.sleep(0.0005)
    return {"x": sample["x"].astype(np.float32) + np.float32(rng.normal()), "y": sample["y"]}


def _kept(sample: Sample) -> bool:
    return bool(sample["y"] % 7)


def _rows() -> Dataset:
    x = np.random.default_rng(0).integers(0, 255, (COUNT, 16, 16, 3), np.uint8)
    return shoal.from_arrays({"x": x, "y": np.arange(COUNT)}).shuffle("full", seed=1)


def pictures() -> Dataset:
    """Give rows that keep their number."""
    return _rows().map(_treated, random=True)


def few() -> Dataset:
    """Give rows of which some are left out."""
    return pictures().filter(_kept)


def other() -> Dataset:
    """Give rows in another order."""
    return pictures().shuffle("full", seed=2)


class _Noted:
    """Writes down in a file whatever it is called with."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, sample: Sample) -> Sample:
        with open(self._path, "a") as file:
            file.write(f"{os.getpid()} {sample['y']}\n")
        return {"x": np.zeros(50_000, np.float32), "y": sample["y"]}


def noted() -> Dataset:
    """Give rows, and let it be known who made which."""
    return _rows().map(_Noted, arguments={"path": os.environ["FEED_NOTES"]})


def made(path: Path) -> list[int]:
    """List which rows were made, by whomever."""
    return [int(line.split()[1]) for line in path.read_text().splitlines()]


def digests(batches: Iterable[dict[str, Any]]) -> list[str]:
    """Give a fingerprint of each batch, of all its bytes."""
    found = []
    for batch in batches:
        digest = hashlib.blake2b(digest_size=12)
        for name, values in batch.items():
            digest.update(name.encode())
            digest.update(values.tobytes() if isinstance(values, np.ndarray) else repr(values).encode())
        found.append(digest.hexdigest())
    return found


def digest(texts: Iterable[str]) -> str:
    """Give one fingerprint of several."""
    return hashlib.blake2b(" ".join(texts).encode(), digest_size=12).hexdigest()


def trainer(options: dict[str, Any]) -> None:
    """Go through the first epoch again and again, for some seconds; print what came, and what was warned of."""
    seconds, urls, size = options.pop("seconds"), options.pop("urls"), options.pop("batch_size")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FeedWarning)
        warnings.simplefilter("always", StallWarning)
        loader = feed.connect(urls, size, **options)
        until, epochs = time.monotonic() + seconds, []
        while not epochs or time.monotonic() < until:
            loader.epoch = 0
            epochs.append(digest(digests(loader)))
    known = [info.url for info in loader.feeders() if info.at_work]
    print(json.dumps({"epochs": epochs, "warnings": [str(each.message) for each in caught], "at_work": known}))


if __name__ == "__main__":
    trainer(json.loads(sys.argv[1]))
