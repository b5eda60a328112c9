"""Tables beside each other: ``python -m benchmarks.frames --rows 5000000 --rounds 5 --modin ENVIRONMENT``."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.processes import warm_up

ROWS, FILES, ROUNDS = 5_000_000, 20, 5
CONTESTANTS = {
    "shoal": "Shoal, local",
    "dask_threads": "Dask DataFrame, threads",
    "dask_processes": "Dask DataFrame, processes",
    "modin_ray": "Modin on Ray",
    "pandas": "pandas, one thread",
}
HOW = """\
`read_csv` of {files} files, a new column and a filter, and a group-by with sum, mean, max and count, on two workers; \
each run is a new process that has done the same with a small file before, contestants take turns: the best of \
{rounds} rounds. All columns are asked for in the end, because Dask would not read others. Modin has an environment of \
its own, with the pandas that it wants.
"""


def run(rows: int = ROWS, rounds: int = ROUNDS, modin: str | None = None) -> Iterator[str]:
    """Yield the table."""
    names = [name for name in CONTESTANTS if name != "modin_ray" or modin is not None]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name:
        folder = Path(name)
        _write(folder, rows)
        warm_up(folder)
        for _ in range(rounds):
            for contestant in names:
                python = f"{modin}/bin/python" if contestant == "modin_ray" else sys.executable
                results[contestant].append(_once(python, contestant, folder))
    _agree(results)
    yield "\n".join(_table(results, rows, rounds))


def _write(folder: Path, rows: int) -> None:
    random = np.random.default_rng(0)
    places = np.array([f"place {number:03d}" for number in range(200)])
    each = rows // FILES
    for number in range(FILES):
        frame = pd.DataFrame(
            {
                "id": np.arange(number * each, (number + 1) * each),
                "place": random.choice(places, each),
                "price": random.random(each).round(4) * 100,
                "pieces": random.integers(1, 10, each),
            }
        )
        frame.to_csv(folder / f"part-{number:03d}.csv", index=False)


def _once(python: str, contestant: str, folder: Path) -> dict[str, Any]:
    command = [python, "-m", "benchmarks.frames_contestant", contestant, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{contestant}: {done.stderr.strip()[-1500:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _agree(results: dict[str, list[dict[str, Any]]]) -> None:
    found = {name: (runs[0]["groups"], runs[0]["sums"]) for name, runs in results.items()}
    groups, sums = found["pandas"]
    for name, (other, theirs) in found.items():
        assert other == groups, f"{name} found {other} groups, pandas {groups}"
        assert np.allclose(sorted(theirs), sorted(sums), rtol=1e-9), f"{name} found {theirs}, pandas {sums}"


def _table(results: dict[str, list[dict[str, Any]]], rows: int, rounds: int) -> Iterator[str]:
    best = {name: min(run["seconds"] for run in runs) for name, runs in results.items()}
    middle = {name: median(run["seconds"] for run in runs) for name, runs in results.items()}
    cpu = {name: min(run["cpu"] for run in runs) for name, runs in results.items()}
    yield f"### {rows:,} rows of CSV: read, transform, group\n"
    yield "| | seconds | Shoal is faster by | of medians | CPU seconds | of pandas' |"
    yield "|---|---|---|---|---|---|"
    for name in results:
        ratios = f"{best[name] / best['shoal']:.2f} | {middle[name] / middle['shoal']:.2f}"
        used = f"{cpu[name]:.2f} | {cpu[name] / cpu['pandas']:.2f}"
        yield f"| {CONTESTANTS[name]} | {best[name]:.2f} | {ratios} | {used} |"
    yield "\n" + HOW.format(files=FILES, rounds=rounds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--modin", default=None, help="an environment that has Modin and Ray")
    given = parser.parse_args()
    for part in run(given.rows, given.rounds, given.modin):
        print(part)


if __name__ == "__main__":
    main()
