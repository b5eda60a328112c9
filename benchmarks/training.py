"""Trainings beside each other: ``make bench-learn``. Writes benchmarks/RESULTS-learn.md."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import keras_training, openvino_predicting
from benchmarks.prepare import prepare
from benchmarks.processes import warm_up
from benchmarks.training_contestant import BATCH, EPOCHS, SIDE

COUNT, ROUNDS, PATIENCE = 4032, 5, 900
CONTESTANTS = {
    "shoal": ("Shoal, Estimator.fit", "tar"),
    "ddp": ("torchrun and a hand-written DDP loop, Shoal's loader", "tar"),
    "ray": ("Ray Train on Ray Data, tuned decoder", "parquet"),
}
HOW = """\
{epochs} epochs over {count:,} JPEGs of about 500x375 and 95 KB, cropped at random to {side}x{side}, flipped and \
normalised; a convolutional network of three layers, SGD, global batch {batch}, two workers. Each run is a new \
process, contestants take turns, and figures are the best of {rounds} rounds. Pictures a second are those of all \
epochs but the first; "first step" counts from the call that trains (for the hand-written loop from the beginning of \
its workers, after torchrun and imports); "whole" is the time of the program from its start to its end.
"""


def measured(count: int, rounds: int) -> Iterator[str]:
    """Run everything, and write the table."""
    data = prepare("images", count, {store for _, store in CONTESTANTS.values()})
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTESTANTS}
    for number in range(rounds):
        for name, (_, store) in CONTESTANTS.items():
            warm_up(data / store)
            results[name].append(_once(name, data / store, count))
            print(f"round {number + 1}: {name} {json.dumps(results[name][-1])}", file=sys.stderr, flush=True)
    best = {name: max(run["rate"] for run in runs) for name, runs in results.items()}
    middle = {name: median(run["rate"] for run in runs) for name, runs in results.items()}
    whole = {name: min(run["whole"] for run in runs) for name, runs in results.items()}
    usual = {name: median(run["whole"] for run in runs) for name, runs in results.items()}
    yield f"### Training on {count:,} pictures\n"
    faster = "Shoal is faster by | of medians"
    yield f"| | pictures/s | {faster} | whole s | {faster} | first step s |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, (label, _) in CONTESTANTS.items():
        rates = f"{best[name]:,.0f} | {best['shoal'] / best[name]:.2f} | {middle['shoal'] / middle[name]:.2f}"
        times = f"{whole[name]:.1f} | {whole[name] / whole['shoal']:.2f} | {usual[name] / usual['shoal']:.2f}"
        yield f"| {label} | {rates} | {times} | {min(run['first'] for run in results[name]):.1f} |"
    yield "\n" + HOW.format(epochs=EPOCHS, count=count, side=SIDE, batch=BATCH, rounds=rounds)


def _once(name: str, folder: Path, count: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.training_contestant", name, str(folder), str(count)]
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as private:
        began = time.monotonic()
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            env={**os.environ, **quiet, "SHOAL_CACHE": private},
        )
        whole = time.monotonic() - began
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:  # gloo aborts now and then at the very end, with all work done
        raise RuntimeError(f"{name}: {done.stderr.strip()[-2000:]}")
    return {**json.loads(lines[-1]), "whole": whole}


def main() -> None:
    """Measure, print and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"
    peers = ", ".join(
        f"{name} {version(name)}" for name in ("shoal", "torch", "ray", "keras", "tensorflow_cpu", "openvino")
    )
    head = f"# Results: training\n\n`make bench-learn` on {date.today():%Y-%m-%d}: {machine}; {peers}.\n"
    parts = measured(given.count, given.rounds), keras_training.run(given.rounds), openvino_predicting.run(given.rounds)
    text = "\n".join([head, *chain(*parts)])
    print(text)
    Path(__file__).with_name("RESULTS-learn.md").write_text(text)


if __name__ == "__main__":
    main()
