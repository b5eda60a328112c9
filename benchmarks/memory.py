"""Memory of Shoal over ten epochs of a small set of images: ``python -m benchmarks.memory``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.prepare import prepare
from benchmarks.processes import tree_memory

COUNT, EPOCHS = 500, 10


def run_all() -> Iterator[str]:
    """Yield the table."""
    yield measure()


def measure() -> str:
    """Run in a process of its own and write what it saw."""
    data = prepare("images", COUNT, {"tar"})
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as cache:
        command = [sys.executable, "-m", "benchmarks.memory", str(data / "tar")]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "SHOAL_CACHE": cache})
    head = f"### Memory after each of {EPOCHS} epochs of {COUNT} images\n"
    if done.returncode:
        return f"{head}\nnot here: {done.stderr.strip().splitlines()[-1]}\n"
    sizes = json.loads(done.stdout)
    rows = [f"| {number} | {pss / 1e6:.0f} | {owned / 1e6:.0f} |" for number, (pss, owned) in enumerate(sizes, 1)]
    growth = [f"{sizes[-1][kind] / sizes[1][kind]:.3f}" for kind in (0, 1)]
    table = ["| epoch | PSS MB | of it not file-backed |", "|---|---|---|", *rows]
    return "\n".join([head, *table, f"| {EPOCHS} to 2 | {' | '.join(growth)} |", ""])


def run(folder: Path) -> list[tuple[int, int]]:
    """Go through the epochs of one loader and look at this process after each."""
    from benchmarks.peers.shoal import image_loader

    loader = image_loader(folder)
    sizes = []
    for _ in range(EPOCHS):
        for batch in loader:
            assert len(batch["jpg"])
        sizes.append(tree_memory(os.getpid()))
    return sizes


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]))) if len(sys.argv) > 1 else measure())
