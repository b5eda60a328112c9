"""The cells of the matrix: plain data."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import cycle, product
from typing import Any

__all__ = ["CELLS", "ENGINES", "FAULTS", "SAMPLE", "SOURCES", "Cell"]

SOURCES = {
    "tar": "tar shards on a disk",
    "tar-http": "tar shards and their indexes behind a web server",
    "gz-http": "compressed tar shards behind a web server, in which nobody can seek",
    "tar-s3": "tar shards and their indexes in S3, with a cache on the disk",
    "parquet": "Parquet on a disk",
    "parquet-http": "Parquet behind a web server",
    "csv": "CSV on a disk",
    "arrays": "arrays in memory",
    "store": "a frame in the object store",
    "filter": "tar shards of which a stage drops samples and another one makes two of one",
    "mix": "a mixture of tar shards, Parquet and arrays",
    "feed": "two feeders (`shoal serve`)",
}

FAULTS = {
    "rank-kill": "SIGKILL of a rank from outside; the gang begins again from its last states",
    "rank-stop": "SIGSTOP of a rank for a second",
    "worker-kill": "SIGKILL of stage processes of every rank, three of each in a second",
    "worker-stop": "SIGSTOP of stage processes of every rank, again and again",
    "lag": "one rank lags behind the others",
    "clock": "the wall clock of every rank jumps by up to a day, twenty times a second",
    "cut": "the server hangs up in the middle of every second answer",
    "refuse": "the server answers every second request with 503 and Retry-After",
    "stall": "the server falls silent in the middle of an answer",
    "lie": "the server tells lengths that are not true: an error, and exact after it",
    "truncate": "a shard is cut short in the middle of the run: an error that names it, and exact after it",
    "flip": 'a bit of a sample is turned over: this sample is missing (`on_error="skip"`), and no other',
    "full-disk": "the disk of the cache is full",
    "slow-disk": "the disk gives 2 MB a second",
    "full-memory": "shared memory for stage processes is full: an error, and exact after it",
    "full-store": "another program fills the object store until it is refused",
    "feeder-kill": "SIGKILL of one of two feeders",
    "feeder-stop": "SIGSTOP of one of two feeders, which then sends nothing",
}

ENGINES = ("local", "ray", "spark", "dask")

_WORLDS = ((2, 1), (1, 3), (2, 4), (4, 2), (3, 2), (1, 2), (4, 1), (3, 4))


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: a source, what goes wrong, who runs it, and how many ranks there are before and after."""

    source: str
    fault: str
    engine: str
    before: int
    after: int

    @property
    def name(self) -> str:
        return f"{self.source}-{self.fault}-{self.engine}-{self.before}-{self.after}"

    @property
    def seed(self) -> int:
        """The number that its faults follow from."""
        return zlib.crc32(self.name.encode()) % 10_000

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "seed": self.seed}


def _combinations() -> Iterator[tuple[str, str, str]]:
    everywhere = ("rank-kill", "lag", "clock")
    staged = [source for source in SOURCES if source != "feed"]
    yield from product(SOURCES, everywhere, ["local"])
    yield from product(staged, ("worker-kill", "worker-stop"), ["local"])
    yield from product(("tar", "csv", "store", "feed"), ["rank-stop"], ["local"])
    yield from product(("tar-http", "gz-http", "tar-s3", "parquet-http"), ("cut", "refuse", "stall", "lie"), ["local"])
    yield from product(("tar", "parquet"), ("truncate", "slow-disk"), ["local"])
    yield from product(("tar", "tar-http"), ["flip"], ["local"])
    yield from product(("tar-http", "tar-s3"), ["full-disk"], ["local"])
    yield from product(("tar", "arrays"), ["full-memory"], ["local"])
    yield ("store", "full-store", "local")
    yield from product(["feed"], ("cut", "feeder-kill", "feeder-stop"), ["local"])
    for engine in ENGINES[1:]:
        yield from product(SOURCES, ["rank-kill"], [engine])
        yield from (("tar", fault, engine) for fault in ("worker-kill", "worker-stop", "lag", "clock", "rank-stop"))
        yield from product(("tar-http", "tar-s3"), ["cut"], [engine])
        yield ("feed", "feeder-kill", engine)


CELLS = tuple(Cell(*three, *worlds) for three, worlds in zip(_combinations(), cycle(_WORLDS), strict=False))

#: A few of them, one of most kinds, for whoever has no half hour.
_FEW = {
    ("tar", "rank-kill"), ("arrays", "worker-kill"), ("filter", "lag"), ("tar-http", "cut"), ("parquet-http", "lie"),
    ("tar", "flip"), ("feed", "feeder-kill"),
}  # fmt: skip
SAMPLE = tuple(cell for cell in CELLS if cell.engine == "local" and (cell.source, cell.fault) in _FEW)
