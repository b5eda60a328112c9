"""Benchmarks of tables, engines and exports: ``make bench-tables``. Writes benchmarks/RESULTS-tables.md."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path

from benchmarks import beyond_memory, export_huggingface, frames, ray_tasks


def main() -> None:
    """Run everything and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modin", help="an environment that has Modin and Ray")
    modin = parser.parse_args().modin
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"
    peers = ", ".join(f"{name} {version(name)}" for name in ("shoal", "pandas", "dask", "ray", "datasets"))
    parts = [f"# Results: tables\n\n`make bench-tables` on {date.today():%Y-%m-%d}: {machine}; {peers}.\n"]
    for part in _all(modin):
        print(part, flush=True)
        parts.append(part)
    Path(__file__).with_name("RESULTS-tables.md").write_text("\n".join(parts))


def _all(modin: str | None) -> Iterator[str]:
    yield from frames.run(modin=modin)
    yield from ray_tasks.run()
    yield from export_huggingface.run()
    yield from beyond_memory.run()


if __name__ == "__main__":
    main()
