"""Run the matrix and write it down: ``python -m kill_matrix [--only TEXT] [--write]``."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

from kill_matrix.cells import CELLS, ENGINES
from kill_matrix.ground import ground
from kill_matrix.page import record
from kill_matrix.runner import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="kill_matrix", description=__doc__)
    parser.add_argument("--only", default="", help="cells whose name fits this pattern")
    parser.add_argument("--write", action="store_true", help="write the page and the results into docs/")
    chosen = parser.parse_args()
    command = " ".join(["python -m kill_matrix --write", *([f"--only '{chosen.only}'"] if chosen.only else [])])
    named = [cell for cell in CELLS if re.search(chosen.only, cell.name)]
    cells = [cell for engine in ENGINES for cell in named if cell.engine == engine]
    begun, found = time.monotonic(), []
    with (
        tempfile.TemporaryDirectory(prefix="kill-matrix-", ignore_cleanup_errors=True) as folder,
        ground(Path(folder)) as there,
    ):
        for number, cell in enumerate(cells, 1):
            last = run(cell, there)
            found.append(last)
            if chosen.write:
                record(last.as_dict(), command)
            verdict = "holds" if last.holds else f"DOES NOT HOLD: {'; '.join(last.complaints)[:1500]}"
            print(f"{number}/{len(cells)} {cell.name} {last.seconds:.1f} s {last.error} {verdict}", flush=True)
    bad = [outcome.cell.name for outcome in found if not outcome.holds]
    print(f"{len(found) - len(bad)} of {len(found)} cells hold, {time.monotonic() - begun:.0f} s", *bad, sep="\n")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
