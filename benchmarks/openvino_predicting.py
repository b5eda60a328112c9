"""Predictions with OpenVINO beside a loop by hand: a part of ``make bench-learn``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.openvino_contestant import BATCH, ROWS, SHARDS, SIDE

ROUNDS, PATIENCE = 5, 900
CONTESTANTS = {
    "shoal": "Shoal, shards with their predictions",
    "predictions": "Shoal, the predictions alone",
    "queue": "OpenVINO, a loop by hand over AsyncInferQueue",
}
HOW = """\
{rows:,} pictures of {side}x{side} in {shards} shards in memory, a convolutional network of two layers, batches of \
{batch}, 32 bits, hint "throughput". Each run is a new process, contestants take turns, and figures are the best of \
{rounds} rounds. The time is from the reading of the model to the last result; "of medians" compares the medians of \
the rounds. Memory is the peak of the process: a shard that comes back has its pictures in it, and is a copy.
"""


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Yield the table."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        path = str(Path(folder, "model.xml"))
        _once("write", path)
        for number in range(rounds):
            for name in CONTESTANTS:
                results[name].append(_once(name, path))
                print(f"round {number + 1}: {name} {json.dumps(results[name][-1])}", file=sys.stderr, flush=True)
    rates = {name: [run["rate"] for run in runs] for name, runs in results.items()}
    best, middle = ({name: pick(found) for name, found in rates.items()} for pick in (max, median))
    yield "### OpenVINO, predictions for shards\n"
    yield "| | rows/s | of the loop by hand | of medians | rows per CPU second | memory MB |"
    yield "|---|---|---|---|---|---|"
    for name, label in CONTESTANTS.items():
        speed = f"{best[name]:,.0f} | {best[name] / best['queue']:.2f} | {middle[name] / middle['queue']:.2f}"
        cpu, memory = (min(run[what] for run in results[name]) for what in ("cpu", "memory"))
        yield f"| {label} | {speed} | {ROWS / cpu:,.0f} | {memory / 1e6:,.0f} |"
    yield "\n" + HOW.format(rows=ROWS, side=SIDE, shards=SHARDS, batch=BATCH, rounds=rounds)


def _once(name: str, path: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.openvino_contestant", name, path]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment)
    told: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or (name in CONTESTANTS and not told):
        raise RuntimeError(f"{name}: {done.stderr.strip()[-2000:]}")
    return told[-1] if told else {}


if __name__ == "__main__":
    print("\n".join(run()))
