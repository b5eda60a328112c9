"""Tar shards: reading bytes, writing, indexing, beside webdataset on the same files in the same run."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import webdataset

import shoal
from benchmarks.measure import compare, table
from benchmarks.photos import photos
from shoal.shards import IndexBuilder, MappedTar, ShardIndex, load_index, save_index

SAMPLES = 4000
SHARDS = 8
MEMBERS = 100_000


def run() -> Iterator[str]:
    """Yield one table after the other."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name:
        folder = Path(name)
        os.environ["SHOAL_CACHE"] = str(folder / "cache")
        samples = [
            {"__key__": f"{number:06d}", "jpg": data, "cls": number % 1000}
            for number, data in enumerate(photos(SAMPLES))
        ]
        yield _writing(folder, samples)
        yield _reading(folder, samples)
        yield _indexing(folder)


def _writing(folder: Path, samples: list[dict[str, object]]) -> str:
    def write(name: str, make: Callable[[str], contextlib.AbstractContextManager[object]]) -> None:
        target = folder / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        with make(f"{target}/%04d.tar") as writer:
            for sample in samples:
                writer.write(sample)  # type: ignore[attr-defined]

    count = SAMPLES // SHARDS
    results = compare(
        {
            "shoal": lambda: write("ours", lambda pattern: shoal.shards.ShardWriter(pattern, maxcount=count)),
            "webdataset": lambda: write(
                "theirs", lambda pattern: webdataset.ShardWriter(pattern, maxcount=count, verbose=0)
            ),
        }
    )
    return table(f"Writing {SAMPLES:,} JPEG samples", results, work=SAMPLES, unit="samples/s", against="webdataset")


def _reading(folder: Path, samples: list[dict[str, object]]) -> str:
    urls = [f"{folder}/ours/{number:04d}.tar" for number in range(SHARDS)]
    expected = sum(len(sample["jpg"]) for sample in samples)  # type: ignore[arg-type]

    def check(read: Callable[[], Iterator[dict[str, bytes]]]) -> None:
        total = 0
        for sample in read():
            total += len(sample["jpg"])
            _ = sample["jpg"][0], sample["jpg"][-1]
        assert total == expected

    def ours_without_index() -> float:
        shutil.rmtree(folder / "cache", ignore_errors=True)
        start = time.perf_counter()
        check(lambda: iter(shoal.read_tar(urls)))
        return time.perf_counter() - start

    results = compare(
        {
            "shoal, bytes, index built on the way": ours_without_index,
            "shoal, bytes": lambda: check(lambda: iter(shoal.read_tar(urls))),
            "shoal, views": lambda: check(lambda: iter(shoal.read_tar(urls).views())),
            "shoal.webdataset": lambda: check(lambda: iter(shoal.webdataset.WebDataset(urls))),
            "webdataset": lambda: check(lambda: iter(webdataset.WebDataset(urls, shardshuffle=False))),
        },
        rounds=11,
    )
    size = expected / SAMPLES / 1000
    title = f"Reading {SAMPLES:,} JPEG samples of {size:.0f} KB from {SHARDS} tars, bytes only, one process"
    return table(title, results, work=SAMPLES, unit="samples/s", against="webdataset")


def _indexing(folder: Path) -> str:
    path = folder / "small.tar"
    with tarfile.open(path, "w") as tar:
        for number in range(MEMBERS):
            member = tarfile.TarInfo(f"train/{number // 2:08d}.{'cls' if number % 2 else 'jpg'}")
            member.size = 3 if number % 2 else 200
            tar.addfile(member, io.BytesIO(bytes(member.size)))

    def build() -> ShardIndex:
        builder = IndexBuilder()
        with path.open("rb") as file:
            for entry in MappedTar(file, str(path)).entries():
                builder.add(entry)
        return builder.build(shard_size=path.stat().st_size, version="benchmark")

    save_index(build(), f"{path}.index")
    results = compare(
        {"build with checksums": lambda: void(build()), "load": lambda: void(load_index(f"{path}.index"))}
    )
    rows = "\n".join(f"| {result.name} | {result.best * 1000:.1f} | {result.median * 1000:.1f} |" for result in results)
    return f"### Index of {MEMBERS:,} small members\n\n| | ms, best | ms, median |\n|---|---|---|\n{rows}\n"


def void(_: object) -> None:
    """Use a value without returning it."""
