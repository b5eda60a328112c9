"""One run of one contestant over CSV files, in this process; it prints what it saw as a line of JSON.

``python -m benchmarks.frames_contestant NAME FOLDER``. The start of an engine is not counted: the same is done with a
small file before.
"""

from __future__ import annotations

import glob
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.contestant import tree_cpu

WORKERS = 2
ASKED = {"total": "sum", "price": "mean", "id": "max", "pieces": "count"}


def transformed(frame: Any) -> Any:
    """What each of them does to its rows: a new column of two others, and fewer rows."""
    frame["total"] = frame["price"] * frame["pieces"]
    return frame[frame["pieces"] > 1]


@contextmanager
def shoal() -> Iterator[Callable[[str], Any]]:
    import shoal
    from shoal.data.pandas import read_csv

    with shoal.init("local", workers=WORKERS):

        def work(folder: str) -> Any:
            rows = read_csv(folder).transform_shard(transformed)
            grouped = rows.group_by("place", {"total": "sum", "price": "mean", "id": "max", "*": "count"}).to_pandas()
            return grouped.set_index("place").sort_index().to_numpy()

        yield work


@contextmanager
def pandas() -> Iterator[Callable[[str], Any]]:
    import pandas as pd

    yield lambda folder: _grouped(transformed(pd.concat(map(pd.read_csv, files(folder)), ignore_index=True)))


@contextmanager
def dask_threads() -> Iterator[Callable[[str], Any]]:
    import dask
    import dask.dataframe as dd

    with dask.config.set(scheduler="threads", num_workers=WORKERS):
        yield lambda folder: _dask(dd.read_csv(f"{folder}/*.csv"))


@contextmanager
def dask_processes() -> Iterator[Callable[[str], Any]]:
    import dask.dataframe as dd
    from dask.distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        client.wait_for_workers(WORKERS)
        yield lambda folder: _dask(dd.read_csv(f"{folder}/*.csv"))


@contextmanager
def modin_ray() -> Iterator[Callable[[str], Any]]:
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    import modin.config
    import modin.pandas as pd

    modin.config.Engine.put("ray")
    modin.config.NPartitions.put(WORKERS)
    try:
        yield lambda folder: _grouped(transformed(pd.concat(list(map(pd.read_csv, files(folder))), ignore_index=True)))
    finally:
        ray.shutdown()


def files(folder: str) -> list[str]:
    return sorted(glob.glob(f"{folder}/*.csv"))


def _grouped(frame: Any) -> Any:
    made = frame.groupby("place").agg(ASKED)
    return getattr(made, "_to_pandas", lambda: made)().sort_index().to_numpy()


def _dask(frame: Any) -> Any:
    rows = frame.assign(total=frame["price"] * frame["pieces"])
    rows = rows[rows["pieces"] > 1]
    return rows.groupby("place").agg(ASKED).compute().sort_index().to_numpy()


def _warm_up(work: Callable[[str], Any]) -> None:
    """Do the same with a small file first: what is imported or started for it is there then."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        for number in range(WORKERS):
            Path(folder, f"{number}.csv").write_text("id,place,price,pieces\n1,here,1.5,2\n2,there,2.5,3\n")
        work(folder)


def main() -> None:
    """Run and report."""
    name, folder = sys.argv[1:]
    with globals()[name]() as work:
        _warm_up(work)
        cpu, begun = tree_cpu(), time.perf_counter()
        found = work(folder)
        seconds = time.perf_counter() - begun
        used = tree_cpu() - cpu
    sums = [round(float(column), 3) for column in found.sum(axis=0)]
    print(json.dumps({"seconds": seconds, "cpu": used, "groups": len(found), "sums": sums}), flush=True)


if __name__ == "__main__":
    main()
