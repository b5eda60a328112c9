"""All benchmarks: `make bench`. Prints the tables and writes them to benchmarks/RESULTS.md."""

from __future__ import annotations

import os
import platform
from datetime import date
from itertools import chain
from pathlib import Path

import webdataset

import shoal
from benchmarks import loaders, memory, order, small, tar


def main() -> None:
    """Run everything and keep the results."""
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"
    peers = f"shoal {shoal.__version__}, webdataset {webdataset.__version__}"
    parts = [f"# Results\n\n`make bench` on {date.today():%Y-%m-%d}: {machine}; {peers}.\n"]
    for part in chain(loaders.run_all(), small.run_all(), memory.run_all(), tar.run(), order.run()):
        print(part, flush=True)
        parts.append(part)
    Path(__file__).with_name("RESULTS.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
