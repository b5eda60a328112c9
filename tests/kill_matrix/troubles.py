"""What goes wrong outside of ranks, for the length of a block: servers, feeders, files, and whoever kills ranks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kill_matrix.cells import Cell
from kill_matrix.data import Place
from kill_matrix.ground import TESTS, Ground, noted
from shoal.errors import StoreFullError
from shoal.store import connect
from shoal.testing import faults
from support.feed import FeederProcess, feeder_processes

__all__ = ["Scene", "scene"]

_REMOTE = {"tar-http", "gz-http", "parquet-http", "tar-s3"}
_SERVED = f"{TESTS}/kill_matrix/data.py:served"


@dataclass
class Scene:
    """Where the data of a cell is, who counts what happened, and what ends the trouble."""

    place: Place
    happened: Callable[[], int] = lambda: 0
    calm: Callable[[], None] = lambda: None


def rules(cell: Cell) -> tuple[faults.Rule, ...]:
    """Give what a server does wrong."""
    rarely: dict[str, int] = (
        {"every": 3, "times": 4} if cell.source == "tar-s3" else {"every": 2}
    )  # boto takes its time
    match cell.fault:
        case "cut" if cell.source == "feed":
            return (faults.cut(every=2, after=(60_000, 20_000, 90_000)),)
        case "cut":
            return (faults.cut(**rarely),)
        case "refuse":
            return (faults.refuse(503, retry_after=0, **rarely),)
        case "stall":
            return (faults.stall(every=2, times=1 if cell.source == "tar-s3" else 3),)
        case "lie":
            return (faults.lie(100 if cell.seed % 2 else -100, every=3),)
    return ()


@contextmanager
def scene(cell: Cell, ground: Ground, folder: Path) -> Iterator[Scene]:
    """Set up what a cell reads from, and what goes wrong with it in its first part."""
    with ExitStack() as stack:
        place = ground.place
        if cell.fault == "full-disk" or cell.source == "tar-s3":
            place = replace(place, cache=str(folder / "shards"))
        if cell.source.endswith("-http"):
            server = stack.enter_context(faults.http_server(place.folder, *rules(cell), seed=cell.seed))
            fate = server.fate
            yield Scene(replace(place, http=server.url()), lambda: len(fate.happened), fate.follow)
        elif cell.source == "tar-s3":
            fate, before = ground.s3.fate, len(ground.s3.fate.happened)
            fate.seed = cell.seed
            fate.follow(*rules(cell))
            stack.callback(fate.follow)
            yield Scene(place, lambda: len(fate.happened) - before, fate.follow)
        elif cell.source == "feed":
            yield stack.enter_context(_fed(cell, place, folder))
        else:
            yield Scene(place)


@contextmanager
def _fed(cell: Cell, place: Place, folder: Path) -> Iterator[Scene]:
    with feeder_processes(2, _SERVED, folder) as feeders, ExitStack() as stack:
        urls = tuple(feeder.url for feeder in feeders)
        if cell.fault != "cut":
            happened = _until_fed(cell, folder, feeders[0], stack) if cell.fault.startswith("feeder") else (lambda: 0)
            yield Scene(replace(place, feeders=urls), happened)
            return
        proxy = stack.enter_context(
            faults.tcp_proxy(
                feeders[0].port, *rules(cell), seed=cell.seed, host=feeders[0].url.split("/")[2].split(":")[0]
            )
        )
        through = (f"grpc://127.0.0.1:{proxy.port}", urls[1])
        yield Scene(replace(place, feeders=through), lambda: len(proxy.fate.happened))


def _until_fed(cell: Cell, folder: Path, feeder: FeederProcess, stack: ExitStack) -> Callable[[], int]:
    kind = "kill" if cell.fault == "feeder-kill" else "stop"
    schedule = faults.Schedule(cell.seed, every=0.01, kinds=(kind,), count=1, seconds=600)
    return stack.enter_context(outside(folder, schedule, 3, lambda _: feeder.process.pid))


@contextmanager
def outside(
    folder: Path, schedule: faults.Schedule, after: int, whom: Callable[[list[int]], int]
) -> Iterator[Callable[[], int]]:
    """Kill or stop somebody once the ranks have come to a step; give a function that tells how often it was done."""
    over, begun = threading.Event(), list[faults.Killing]()

    def run() -> None:
        while not (pids := _pids(folder, after)):
            if over.wait(0.003):
                return
        with faults.killing([whom(pids)], schedule) as state:
            begun.append(state)
            while not state.done and not over.wait(0.005):
                pass
            over.wait(schedule.seconds if "stop" in schedule.kinds else 0)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield lambda: sum(len(state.done) for state in begun)
    finally:
        over.set()
        thread.join()


def _pids(folder: Path, after: int) -> list[int]:
    """List the processes of the ranks, once all of them have come to a step."""
    notes = [noted(path) for path in sorted(folder.glob("a-0-*.jsonl"))]
    sizes = {path.stem.rpartition("-")[2] for path in folder.glob("a-0-*.jsonl")}
    if not sizes or len(notes) < int(min(sizes)) or min(map(len, notes)) < after:
        return []
    return [int(str(lines[0]["pid"])) for lines in notes]


def fill(place: Place) -> int:
    """Put objects into the store until it refuses one; then take them out again. Tell how often it refused."""
    shelf, kept = connect(place.shelf), []
    try:
        for number in range(100):
            kept.append(shelf.put(np.full(10**6, number, np.uint8)))
    except StoreFullError:
        time.sleep(0.2)
        return 1
    finally:
        for each in kept:
            shelf.delete(each)
    return 0
