"""A map over many shards on Ray, beside the same work as bare tasks: ``python -m benchmarks.ray_tasks``.

Both put the same arrays into Ray's store, call the same function with each, and fetch what it gives.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import ray

import shoal
from benchmarks.measure import compare, table
from shoal.engines import current

SHARDS, SIZE, ROUNDS = 1000, 2**20, 5


def work(array: np.ndarray) -> float:
    """Look at all of it."""
    return float(array.sum())


def run(shards: int = SHARDS, rounds: int = ROUNDS) -> Iterator[str]:
    """Yield the table."""
    arrays = [np.full(SIZE // 8, number, np.float64) for number in range(shards)]
    expected = [float(number) * (SIZE // 8) for number in range(shards)]
    with shoal.init("ray", workers=2, memory="3GB"):
        task = ray.remote(work)

        def ours() -> None:
            engine = current()
            assert list(engine.gather(engine.map(work, engine.scatter(arrays)))) == expected

        def theirs() -> None:
            references = [task.remote(reference) for reference in list(map(ray.put, arrays))]
            assert ray.get(references) == expected

        results = compare({"shoal": ours, "bare Ray tasks": theirs}, rounds)
    title = f"A map over {shards:,} shards of 1 MB on Ray"
    yield table(title, results, work=shards, unit="shards/s", against="bare Ray tasks")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=SHARDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    for part in run(given.shards, given.rounds):
        print(part)


if __name__ == "__main__":
    main()
