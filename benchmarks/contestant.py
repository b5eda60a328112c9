"""One run of one contestant in this process; it prints what it saw as a line of JSON.

``python -m benchmarks.contestant MODULE FUNCTION FOLDER COUNT keep``: the loop is left as soon as COUNT samples have
come; with ``keep`` batches are kept, to see that they stay what they are. Time begins after the imports and ends with
the last batch, while workers that use CPU can still be asked for it. What is printed also says on the clock of all
processes when the loop was left, so that whoever started this one can tell how long the end took.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil


def main() -> None:
    """Run and report."""
    module, function, folder, count, *keep = sys.argv[1:]
    batches = getattr(importlib.import_module(f"benchmarks.peers.{module}"), function)
    run = _images if function.startswith("images") else _small
    print(json.dumps(run(batches(Path(folder)), int(count), bool(keep))), flush=True)


def tree_cpu() -> float:
    """Give the seconds of CPU that this process, its children and those that they waited for have used."""
    total = 0.0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def machine_cpu() -> float:
    """Give the seconds of CPU that all processes of the machine have used."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _images(batches: Iterator[tuple[Any, Any]], count: int, keep: bool) -> dict[str, Any]:
    """Take so many pictures and see what they are."""
    labels: list[np.ndarray] = []
    kept: list[tuple[Any, np.ndarray]] = []
    machine, cpu, start = machine_cpu(), tree_cpu(), time.monotonic()
    first, total, pictures, label = 0.0, 0, None, None
    for pictures, label in batches:
        first = first or time.monotonic() - start
        labels.append(np.array(label).reshape(-1))
        total += len(pictures)
        if keep:
            kept.append((pictures, _glance(pictures)))
        if total >= count:
            break
    left = time.monotonic()
    used = tree_cpu() - cpu
    others = machine_cpu() - machine - used
    assert pictures is not None, "no batch came"
    assert tuple(pictures.shape[1:]) == (3, 224, 224), pictures.shape
    assert "float32" in str(pictures.dtype), pictures.dtype
    safe = all(np.array_equal(_glance(batch), seen) for batch, seen in kept)
    glance = _glance(pictures)
    del pictures, label, kept
    left_again = time.monotonic()
    _end(batches)
    seen = np.concatenate(labels)
    return {
        "count": total,
        "distinct": len(np.unique(seen)),
        "shuffled": not bool(np.all(np.diff(labels[0]) > 0)),
        "safe": safe,
        "mean": float(glance.mean()),
        "std": float(glance.std()),
        "seconds": left - start,
        "first": first,
        "cpu": used,
        "others": others,
        "stop": time.monotonic() - left_again,
        "left": left_again,
    }


def _small(batches: Iterator[Any], count: int, keep: bool) -> dict[str, Any]:
    """Take so many byte strings; each begins with its number."""
    numbers: list[bytes] = []
    rows = size = 0
    machine, cpu, start = machine_cpu(), tree_cpu(), time.monotonic()
    for batch in batches:
        rows += len(batch)
        size += sum(map(len, batch))  # every one of them is looked at
        numbers.append(bytes(batch[0][:8]))
        numbers.append(bytes(batch[-1][:8]))
        if rows >= count:
            break
    left = time.monotonic()
    used = tree_cpu() - cpu
    others = machine_cpu() - machine - used
    assert size == 200 * rows, f"{size} bytes in {rows} samples"
    found = [int.from_bytes(number, "little") for number in numbers]
    return {
        "count": rows,
        "distinct": rows,
        "shuffled": len(set(found)) == len(found) and found != sorted(found),
        "safe": True,
        "seconds": left - start,
        "cpu": used,
        "others": others,
    }


def _glance(pictures: Any) -> np.ndarray:
    """Copy a few pixels of each picture of a batch."""
    return np.array(np.asarray(pictures)[:, :, ::37, ::37])


def _end(batches: Iterator[Any]) -> None:
    """End a loader as leaving a loop does: drop it. Its worker processes are waited for."""
    batches.close()  # type: ignore[attr-defined]
    gc.collect()
    helpers = ("resource_tracker", "forkserver")  # these live as long as the interpreter
    children = [
        child
        for child in psutil.Process().children(recursive=True)
        if not any(word in " ".join(_command(child)) for word in helpers)
    ]
    psutil.wait_procs(children, timeout=10)


def _command(process: psutil.Process) -> list[str]:
    try:
        command: list[str] = process.cmdline()
    except psutil.Error:
        return []
    return command


if __name__ == "__main__":
    main()
