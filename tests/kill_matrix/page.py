"""The table of the matrix, made of what was recorded."""

from __future__ import annotations

import fcntl
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kill_matrix.cells import CELLS, ENGINES, FAULTS, SOURCES

__all__ = ["PAGE", "RESULTS", "record", "rendered"]

_DOCS = Path(__file__).parents[2] / "docs"
RESULTS, PAGE = _DOCS / "kill-matrix.json", _DOCS / "kill-matrix.md"

_TOP = """# The kill matrix

Every cell is a real run: ranks in processes of their own on an engine, real servers, real signals. A loader goes
through an epoch of {samples} samples in batches of {batch}; in the middle of it something goes wrong, and then the
number of ranks changes. A cell *holds* if

- every global batch came, byte for byte as in a run alone in which nothing went wrong, each sample once, in the same
  order (also by the digest of the order); what a rank was given again after a loss was the same;
- the fault did come; where it led to an error, that was one of Shoal's, and the run was exact after the cause was gone;
- nothing was left: no process, thread, shared memory, file or open file of Shoal's; and nothing hung. Not counted are
  sockets that libraries keep in ranks and, on Ray, Spark and Dask, what the cluster itself holds: its processes, its
  files, and descriptors of the program that started it.

That kills, stops and faults of servers came is counted where they are made. Of `lag`, `clock` and `slow-disk` it is
only known that they were switched on: "came" is the number of ranks that had them. `truncate`, `flip` and
`full-memory` are done once. That a resume which `truncate` makes fail names the shard is checked, and that a run from
the beginning does.

Faults are those of [`shoal.testing.faults`](faults.md), and follow from the number in the last column.

**{holding} of {count} cells hold**, run on {date}; {minutes} minutes, added up over all cells, on two cores that others
used, too. `make kill-matrix` runs all of them, one after the other.

{how}

The results, each with the command that ran it, are in [kill-matrix.json](kill-matrix.json).

## What is read

{sources}

## What goes wrong

{faults}

## How many cells

{summary}

## All cells

"Ranks" is how many there were before and after; "came" counts the faults that did.

"""


def rendered(results: Mapping[str, Any]) -> str:
    """Make the page of what was recorded."""
    from kill_matrix.data import BATCH, COUNT

    cells = results["cells"]
    top = _TOP.format(
        samples=COUNT,
        batch=BATCH,
        holding=sum(cell["holds"] for cell in cells),
        count=len(cells),
        date=" and ".join(sorted({cell["date"] for cell in cells})),
        how=_how(cells),
        minutes=round(sum(cell["seconds"] for cell in cells) / 60),
        sources=_table(["source", "what it is"], [[f"`{name}`", text] for name, text in SOURCES.items()]),
        faults=_table(["fault", "what happens"], [[f"`{name}`", text] for name, text in FAULTS.items()]),
        summary=_summary(cells),
    )
    head = ["engine", "source", "fault", "ranks", "came", "led to", "outcome", "s", "number"]
    return top + _table(head, [_row(cell) for cell in cells]) + "\n"


def _row(cell: Mapping[str, Any]) -> list[str]:
    outcome = "holds" if cell["holds"] else "does not hold"
    ranks = f"{cell['before']} → {cell['after']}"
    told = [str(cell["faults"]), cell["error"], outcome, f"{cell['seconds']:.1f}", str(cell["seed"])]
    return [cell["engine"], cell["source"], cell["fault"], ranks, *told]


def _how(cells: Sequence[Mapping[str, Any]]) -> str:
    """Say by which commands these results came about."""
    commands = Counter(cell["command"] for cell in cells)
    if len(commands) == 1:
        return f"These results are of one run: `{next(iter(commands))}`."
    head = (
        "These results are not of one run. Parts were run side by side by the commands below, while the matrix and the "
        "kit were still being mended; cells that did not hold then were run again, and the last run of each counts."
    )
    rows = [[str(count), "`" + command.replace("|", "\\|") + "`"] for command, count in commands.most_common()]
    return f"{head}\n\n{_table(['cells', 'command'], rows)}"


def _summary(cells: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter((cell["fault"], cell["engine"]) for cell in cells)
    rows = [[fault, *(str(counts[fault, engine] or "") for engine in ENGINES)] for fault in FAULTS]
    return _table(["fault", *ENGINES], rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def record(cell: Mapping[str, Any], command: str) -> None:
    """Write down how a cell went, with the day and the command, in the place of what was recorded of it before."""
    today = datetime.now(UTC).date().isoformat()
    with RESULTS.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # parts of the matrix may be run side by side
        file.seek(0)
        before = json.loads(file.read() or '{"cells": []}')["cells"]
        known = {_key(each): each for each in before} | {_key(cell): {**cell, "date": today, "command": command}}
        wanted = [_key(each.as_dict()) for engine in ENGINES for each in CELLS if each.engine == engine]
        results = {"cells": [known[key] for key in wanted if key in known]}
        file.truncate(0)
        file.write(json.dumps(results, indent=1) + "\n")
        PAGE.write_text(rendered(results))


def _key(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(cell[name] for name in ("source", "fault", "engine", "before", "after"))
