"""What the cells read: the same 480 samples in every kind of source, and the plans over them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from shoal.abc import Sample
from shoal.pipeline import Dataset, mix
from shoal.shards import ShardWriter
from shoal.store import connect

__all__ = ["BALLAST", "BATCH", "COUNT", "STEPS", "Place", "dataset_of", "made", "numbers_of", "served", "stored"]

COUNT, BATCH = 480, 24
BALLAST = "KILL_MATRIX_BALLAST"
STEPS = 40  # more than any plan here has: lanes that end at different times leave holes
_SHARD = 40


@dataclass(frozen=True)
class Place:
    """Where the data is, as ranks see it."""

    folder: str
    http: str = ""
    bucket: str = ""
    feeders: tuple[str, ...] = ()
    shelf: str = ""
    """The folder of the object store."""
    stored: int = 0
    cache: str | None = None
    slow: str = ""
    """The same folder on a slow disk."""


def x_of(number: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(number).integers(0, 255, 3000, np.uint8)


def made(folder: Path) -> None:
    """Write all files of all sources."""
    import pandas as pd  # here, because ranks import this module, and most need none of them
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, suffix, index in (("tar", "tar", True), ("gz", "tar.gz", False)):
        (folder / name).mkdir(parents=True)
        with ShardWriter(str(folder / name / f"%02d.{suffix}"), maxcount=_SHARD, index=index) as writer:
            for number in range(COUNT):
                writer.write({"__key__": f"{number:04d}", "npy": x_of(number), "cls": number})
    (folder / "parquet").mkdir()
    (folder / "csv").mkdir()
    for begin in range(0, COUNT, 120):
        rows = range(begin, begin + 120)
        table = pa.table({"npy": [x_of(number).tobytes() for number in rows], "cls": list(rows)})
        pq.write_table(table, folder / "parquet" / f"{begin:04d}.parquet", row_group_size=_SHARD)
        frame = pd.DataFrame({"text": [x_of(number)[:40].tobytes().hex() for number in rows], "cls": list(rows)})
        frame.to_csv(folder / "csv" / f"{begin:04d}.csv", index=False)


def stored(folder: Path) -> int:
    """Put the rows into a store of their own, and give their id."""
    shelf = connect(str(folder), memory="10MB", spill=False)
    rows = {"npy": np.stack([x_of(number) for number in range(COUNT)]), "cls": np.arange(COUNT)}
    return int(shelf.put(rows, persist=True))


def _arrays() -> Dataset:
    return shoal.from_arrays(npy=np.stack([x_of(number) for number in range(COUNT)]), cls=np.arange(COUNT))


def _tar(root: str, place: Place, suffix: str = "tar") -> Dataset:
    urls = [f"{root}/{number:02d}.{suffix}" for number in range(COUNT // _SHARD)]
    return shoal.read_tar(urls, cache=place.cache).decode()


def _parquet(root: str) -> Dataset:
    return shoal.read_parquet([f"{root}/{begin:04d}.parquet" for begin in range(0, COUNT, 120)])


def _source(source: str, place: Place) -> Dataset:
    files = place.slow or place.folder
    match source:
        case "tar" | "filter":
            return _tar(f"{files}/tar", place)
        case "tar-http":
            return _tar(f"{place.http}/tar", place)
        case "gz-http":
            return _tar(f"{place.http}/gz", place, "tar.gz")
        case "tar-s3":
            return _tar(f"{place.bucket}/tar", place)
        case "parquet":
            return _parquet(f"{files}/parquet")
        case "parquet-http":
            return _parquet(f"{place.http}/parquet")
        case "csv":
            return shoal.read_csv(f"{files}/csv/*.csv", part_size="4kB")
        case "arrays" | "feed":
            return _arrays()
        case "store":
            return shoal.from_store(place.stored, connect(place.shelf))
    raise ValueError(source)


class Treated:
    """Does something with a sample that takes a moment, and draws at random."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        time.sleep(self._seconds)
        ballast = int(os.environ.get(BALLAST, "0"))
        more = {"ballast": np.zeros(ballast, np.uint8)} if ballast else {}
        return {**sample, "noise": rng.normal(), **more}


def _kept(sample: Sample) -> bool:
    return bool(int(sample["cls"]) % 7)


def _twice(sample: Sample) -> list[Sample]:
    again = [{**sample, "again": 1}] if int(sample["cls"]) % 5 == 0 else []
    return [{**sample, "again": 0}, *again]


def dataset_of(source: str, place: Place, *, seconds: float = 0.0, **stage: Any) -> Dataset:
    """Make the plan of a source; the stage at its end has the workers that are asked for."""
    if source == "mix":
        parts = [_source(name, place).shuffle("full", seed=2) for name in ("tar", "parquet", "arrays")]
        parts = [part.map(_Tagged(number)) for number, part in enumerate(parts)]
        begun = mix([parts[0].take(160), parts[1].take(200), parts[2].take(120)], [3, 2, 1], exhausted="drop")
    else:
        begun = _source(source, place).shuffle("shards" if source != "arrays" else "full", seed=3)
    if source == "filter":
        begun = begun.filter(_kept).flat_map(_twice)
    return begun.map(Treated, random=True, arguments={"seconds": seconds}, **stage)


class _Tagged:
    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, sample: Sample) -> Sample:
        raw = sample["npy"]
        x = np.frombuffer(raw, np.uint8) if isinstance(raw, bytes) else np.asarray(raw)
        return {"npy": x, "cls": int(sample["cls"]), "part": self._number}


def numbers_of(source: str) -> list[tuple[int, ...]]:
    """List what an epoch has to have, each sample once, worked out by hand; empty where it is a matter of the order."""
    if source == "filter":
        kept = [number for number in range(COUNT) if number % 7]
        return [(number, again) for number in kept for again in range(1 + (number % 5 == 0))]
    return [] if source == "mix" else [(number, 0) for number in range(COUNT)]


def served() -> Dataset:
    """Make what feeders serve, in their processes."""
    return dataset_of("feed", Place(os.environ["KILL_MATRIX_FOLDER"]), seconds=0.002)
