"""The tar tools beside tarproc's and beside cat: ``python -m benchmarks.tar_tools --tarproc ENVIRONMENT``.

Whole commands are measured, with the time that they take to start.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.measure import compare, table
from shoal.shards import TarWriter

SMALL, SMALL_SIZE = 100_000, 200
LARGE, LARGE_SIZE = 50, 10_000_000
THROUGH, TO_FILES = 12, 4
"""How often the tar of 500 MB is read: through pipes for some seconds, to files as often as memory has room for."""
ROUNDS = 5


def run(tarproc: str | None = None, small: int = SMALL, rounds: int = ROUNDS) -> Iterator[str]:
    """Yield one table after the other."""
    # In memory, because it is not the disk that is measured.
    with tempfile.TemporaryDirectory(prefix="shoal-bench-", dir="/dev/shm") as name:
        folder = Path(name)
        _write(folder / "small.tar", small, SMALL_SIZE)
        yield from _small(folder, tarproc, small, rounds)
        (folder / "small.tar").unlink()
        _write(folder / "large.tar", LARGE, LARGE_SIZE)
        yield from _large(folder, rounds)


def _write(path: Path, count: int, size: int) -> None:
    data = Random(0).randbytes(size)
    with TarWriter(path) as writer:
        for number in range(count):
            writer.write_fields(f"{number:08d}", {"bin": data, "cls": b"%d" % (number % 1000)})


def _small(folder: Path, tarproc: str | None, count: int, rounds: int) -> Iterator[str]:
    bins = {"shoal": str(Path(sys.executable).parent)} | ({} if tarproc is None else {"tarproc": f"{tarproc}/bin"})
    against = "shoal" if tarproc is None else "tarproc"
    commands = {
        "Concatenating": {"shoal": "tarcat < small.tar > /dev/null", "tarproc": "tarcats < small.tar > /dev/null"},
        "Splitting": dict.fromkeys(bins, "tarsplit -n 10000 -o out/x < small.tar"),
    }
    for title, lines in commands.items():
        results = compare({who: partial(_run, f"{bins[who]}/{lines[who]}", folder) for who in bins}, rounds)
        what = f"{title} {count:,} samples of {SMALL_SIZE} bytes"
        yield table(what, results, work=count, unit="samples/s", against=against)


def _large(folder: Path, rounds: int) -> Iterator[str]:
    here = Path(sys.executable).parent
    many, few = (" ".join(["large.tar"] * times) for times in (THROUGH, TO_FILES))
    pipes = {
        "cat x | cat": f"cat {many} | cat > /dev/null",
        "tarcat x | cat": f"{here}/tarcat {many} | cat > /dev/null",
        "cat x | tarcat": f"cat {many} | {here}/tarcat > /dev/null",
    }
    files = {
        "cat x | cat": f"cat {few} | cat > out/x",
        "tarsplit x": f"{here}/tarsplit -s 5e8 -o out/x {few}",
        "cat x | tarsplit": f"cat {few} | {here}/tarsplit -s 5e8 -o out/x",
    }
    for title, lines, times in (("through pipes", pipes, THROUGH), ("to files", files, TO_FILES)):
        results = compare({name: partial(_run, line, folder) for name, line in lines.items()}, rounds)
        what = f"Samples of {LARGE_SIZE / 1e6:.0f} MB {title}"
        yield table(what, results, work=LARGE * LARGE_SIZE * times / 1e6, unit="MB/s", against="cat x | cat")


def _run(line: str, folder: Path) -> float:
    """Run a line, and tell how long it took; making room for it is not its work."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    (folder / "out").mkdir()
    start = time.perf_counter()
    subprocess.run(["bash", "-c", line], cwd=folder, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Print the tables, and keep them in benchmarks/RESULTS-tools.md if nothing is left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tarproc", help="an environment that has tarproc 0.0.6")
    parser.add_argument("--small", type=int, default=SMALL, help="how many small samples")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"
    parts = [f"# Results: tar tools\n\n`make bench-tools` on {date.today():%Y-%m-%d}: {machine}.\n"]
    for part in run(given.tarproc, given.small, given.rounds):
        print(part, flush=True)
        parts.append(part)
    if given.tarproc is not None and (given.small, given.rounds) == (SMALL, ROUNDS):
        Path(__file__).with_name("RESULTS-tools.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
