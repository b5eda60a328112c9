"""Shards that are much larger than the memory they may use: ``python -m benchmarks.beyond_memory``.

A fresh process makes five gigabytes of frames on the engine, keeps them, repartitions them by a column and looks at all
of them again; the most memory that it used is what is measured. Pages of the file that shards are spilled to are the
kernel's to take back, and do not count.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from benchmarks.processes import tree_memory

GIGABYTES, LIMIT = 5, 512

PROGRAM = """
import json, sys, time
import numpy as np, pandas as pd
import shoal
from shoal.data import XShards

gigabytes = float(sys.argv[1])
rows = 125_000  # of 8 columns of 8 bytes: 8 MB
shards = round(gigabytes * 2**30 / (rows * 64))

def made(number):
    frame = pd.DataFrame({f"x{at}": np.arange(rows, dtype=np.float64) + number + at for at in range(7)})
    frame["key"] = np.arange(rows)
    return frame

def scaled(frame):
    return frame.assign(x0=frame["x0"] * 2)

begun = time.perf_counter()
with shoal.init("local", workers=2, memory="32MB"):
    kept = XShards.from_shards(range(shards)).transform_shard(made).cache()
    total = sum(kept.transform_shard(scaled).transform_shard(lambda frame: float(frame["x0"].sum())).collect())
    parted = kept.partition_by("key", shards // 2)
    count = sum(parted.transform_shard(len).collect())
expected = sum(2 * (rows * (rows - 1) / 2 + rows * number) for number in range(shards))
assert total == expected and count == shards * rows, (total, expected, count)
print(json.dumps({"shards": shards, "bytes": shards * rows * 64, "seconds": time.perf_counter() - begun}))
"""


def run(gigabytes: float = GIGABYTES) -> Iterator[str]:
    """Yield what was measured."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(gigabytes)], stdout=subprocess.PIPE, text=True
    )
    most = 0
    while process.poll() is None:
        most = max(most, tree_memory(process.pid)[1])
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
    assert process.stdout is not None
    with process.stdout:
        output = process.stdout.read()
    assert process.returncode == 0, "the program failed"
    found: dict[str, Any] = json.loads(output)
    size = f"{found['bytes'] / 2**30:.1f} GiB in {found['shards']} shards"
    yield f"### {size}, made, kept, transformed and partitioned anew\n"
    yield f"Memory used at most: {most / 2**20:.0f} MiB of {LIMIT} that it may use; {found['seconds']:.0f} seconds.\n"


def main() -> None:
    """Measure and print."""
    for part in run(float(sys.argv[1]) if len(sys.argv) > 1 else GIGABYTES):
        print(part)


if __name__ == "__main__":
    main()
