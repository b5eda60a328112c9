"""Keras beside Keras: a part of ``make bench-learn``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.keras_contestant import BATCH, COUNT, EPOCHS

ROUNDS, PATIENCE = 5, 900
CONTESTANTS = {
    "shoal": ("Shoal, two workers, Keras 3", 1),
    "strategy": ("tf_keras, MultiWorkerMirroredStrategy, two workers", 1),
    "alone": ("Keras 3, one process with two threads", 2),
    "alone_1": ("Keras 3, one process with one thread", 1),
}
HOW = """\
{epochs} epochs over {count:,} pictures of 32x32 that lie in memory, a convolutional network of two layers, SGD, \
global batch {batch}. Each run is a new process, contestants take turns, and figures are the best of {rounds} rounds, \
of all epochs but the first; CPU seconds are those of all worker processes. The loss of the last epoch is a check.
"""


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Yield the table."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
    for number in range(rounds):
        for name, (_, threads) in CONTESTANTS.items():
            results[name].append(_once(name.partition("_")[0], threads))
            print(f"round {number + 1}: {name} {json.dumps(results[name][-1])}", file=sys.stderr, flush=True)
    rates = {name: [run["rate"] for run in runs] for name, runs in results.items()}
    rate, middle = ({name: pick(found) for name, found in rates.items()} for pick in (max, median))
    work = {name: min(run["cpu"] for run in runs) / (COUNT * (EPOCHS - 1)) for name, runs in results.items()}
    yield "### Keras, two workers\n"
    yield "| | pictures/s | Shoal is faster by | of medians | pictures per CPU second | Shoal has more by | loss |"
    yield "|---|---|---|---|---|---|---|"
    for name, (label, _) in CONTESTANTS.items():
        speed = f"{rate[name]:,.0f} | {rate['shoal'] / rate[name]:.2f} | {middle['shoal'] / middle[name]:.2f}"
        cpu = f"{1 / work[name]:,.0f} | {work[name] / work['shoal']:.2f}"
        yield f"| {label} | {speed} | {cpu} | {results[name][-1]['loss']:.3f} |"
    yield "\n" + HOW.format(epochs=EPOCHS, count=COUNT, batch=BATCH, rounds=rounds)


def _once(name: str, threads: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.keras_contestant", name]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""}
    limits = {"TF_NUM_INTRAOP_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    began = time.monotonic()
    environment = {**os.environ, **quiet, **limits}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment)
    told: list[dict[str, Any]] = [json.loads(text) for text in re.findall(r"\{[^{}]*\}", done.stdout)]
    if not told:
        raise RuntimeError(f"{name}: {done.stderr.strip()[-2000:]}")
    rate, cpu = min(each["rate"] for each in told), sum(each["cpu"] for each in told)
    return {"rate": rate, "cpu": cpu, "loss": told[0]["loss"], "whole": time.monotonic() - began}


if __name__ == "__main__":
    print("\n".join(run()))
