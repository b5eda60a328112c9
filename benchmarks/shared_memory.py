"""Objects in shared memory beside Vineyard's, Ray's and pickles: ``python -m benchmarks.shared_memory``.

Everybody puts and gets the same values in turns. Ray and this program share a process, Vineyard has one of its own with
its daemon, which measures itself.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import pickle
import platform
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measure import Result, compare
from shoal import store
from shoal.environments import find

LARGE = 100_000_000
SMALL, SMALL_COUNT = 1000, 3000
FRAME_ROWS, FRAME_COLUMNS = 25_000_000, "abcde"
ROUNDS = 7
GETS = 10
"""How often a large array is got; the median counts."""


def run(vineyard: str | None, rounds: int = ROUNDS) -> Iterator[str]:
    """Yield one table after the other."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-", dir="/dev/shm") as name:
        shelf = store.connect(f"{name}/store", memory="8GB", spill=False)
        peers: list[_Peer] = [_Shoal(shelf), _Ray(), _Pickle(Path(name))]
        if vineyard is not None:
            peers.append(_Vineyard(vineyard, name))
        try:
            yield from _large([*peers, _Fresh(Path(name))], rounds)
            yield from _small(peers, rounds)
            yield _frame(shelf, rounds)
        finally:
            for peer in peers:
                peer.close()


class _Peer:
    """Somebody who keeps objects; each method gives the seconds that it took."""

    name = ""

    def large(self, data: Any) -> tuple[float, float]:
        """Put one array and get it, which is forgotten then."""
        raise NotImplementedError

    def small(self, data: Any, count: int) -> tuple[float, float]:
        """Put many arrays, and get each."""
        raise NotImplementedError

    def close(self) -> None:
        """End what was started."""


class _Kept(_Peer):
    """One who puts, gets and forgets by functions."""

    def __init__(self, name: str, put: Callable[[Any], Any], get: Callable[[Any], Any], forget: Callable[[Any], Any]):
        self.name, self._put, self._get, self._forget = name, put, get, forget

    def large(self, data: Any) -> tuple[float, float]:
        begin = time.perf_counter()
        key = self._put(data)
        put = time.perf_counter() - begin
        gets = []
        for _ in range(GETS):
            begin = time.perf_counter()
            got = self._get(key)
            gets.append(time.perf_counter() - begin)
            assert got[-1] == data[-1]
            del got
        self._forget([key])
        return put, median(gets)

    def small(self, data: Any, count: int) -> tuple[float, float]:
        begin = time.perf_counter()
        keys = [self._put(data) for _ in range(count)]
        middle = time.perf_counter()
        for key in keys:
            self._get(key)
        end = time.perf_counter()
        self._forget(keys)
        return middle - begin, end - middle


class _Shoal(_Kept):
    def __init__(self, shelf: store.Store) -> None:
        super().__init__("Shoal", shelf.put, shelf.get, shelf.delete)


class _Fresh(_Peer):
    """Shoal where no object was deleted before, whose memory could be used again."""

    name = "Shoal, in fresh memory"

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0

    def large(self, data: Any) -> tuple[float, float]:
        self._count += 1
        shelf = store.connect(self._folder / f"fresh-{self._count}", memory="1GB", spill=False)
        shelf.put(0)  # which makes the lease
        taken = _Shoal(shelf).large(data)
        shelf.clear()
        return taken


class _Ray(_Kept):
    def __init__(self) -> None:
        import ray

        quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        ray.init(num_cpus=2, object_store_memory=2 * 10**9, **quiet)
        super().__init__("Ray", ray.put, ray.get, list.clear)
        self._ray = ray

    def close(self) -> None:
        self._ray.shutdown()


class _Pickle(_Kept):
    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        super().__init__("a pickle in tmpfs", self._dump, self._load, self._remove)

    def _dump(self, value: Any) -> Path:
        self._count += 1
        path = self._folder / f"{self._count}.pickle"
        with path.open("wb") as file:
            pickle.dump(value, file, protocol=5)
        return path

    def _load(self, path: Path) -> Any:
        with path.open("rb") as file:
            return pickle.load(file)

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            path.unlink()


class _Vineyard(_Peer):
    """Vineyard in an environment of its own."""

    name = "Vineyard"

    def __init__(self, python: str, folder: str) -> None:
        here = Path(__file__).with_name("vineyard_contestant.py")
        command = [python, str(here), f"{folder}/vineyard.sock"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def large(self, data: Any) -> tuple[float, float]:
        return self._ask("large", data.nbytes // 8, GETS)

    def small(self, data: Any, count: int) -> tuple[float, float]:
        return self._ask("small", data.nbytes // 8, count)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _ask(self, what: str, size: int, count: int) -> tuple[float, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what} {size} {count}\n")
        self._process.stdin.flush()
        put, get = json.loads(self._process.stdout.readline())
        return put, get


def _memcpy(data: Any) -> float:
    """Copy an array into a fresh mapping of shared memory."""
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        os.ftruncate(file.fileno(), data.nbytes)
        begin = time.perf_counter()
        with mmap.mmap(file.fileno(), data.nbytes) as there:
            into = np.frombuffer(there, data.dtype)
            into[:] = data
            taken = time.perf_counter() - begin
            del into
    return taken


def _rounds(peers: list[_Peer], work: Callable[[_Peer], tuple[float, float]], rounds: int) -> list[list[Result]]:
    """Let everybody do some work in turns; give the seconds of putting and of getting."""
    puts: dict[str, list[float]] = {peer.name: [] for peer in peers}
    gets: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for peer in peers:
        work(peer)  # once for nothing: the first one loads, connects and starts
    for _ in range(rounds):
        for peer in peers:
            put, get = work(peer)
            puts[peer.name].append(put)
            gets[peer.name].append(get)
    return [[Result(name, tuple(taken)) for name, taken in some.items()] for some in (puts, gets)]


def _large(peers: list[_Peer], rounds: int) -> Iterator[str]:
    data = np.random.default_rng(0).random(LARGE // 8)
    puts, gets = _rounds(peers, lambda peer: peer.large(data), rounds)
    (copy,) = compare({"memcpy into a fresh mapping": lambda: _memcpy(data)}, rounds)
    rows = [copy, *puts]
    head = ["| | put, ms | Shoal is faster by | of medians | get, ms |", "|---|---|---|---|---|"]
    own = next(result for result in puts if result.name == "Shoal")
    times = {result.name: f"{result.best * 1e3:.3f}" for result in gets}
    lines = [
        f"| {row.name} | {row.best * 1e3:.1f} | {row.best / own.best:.2f} | {row.median / own.median:.2f} "
        f"| {times.get(row.name, '')} |"
        for row in rows
    ]
    yield "\n".join([f"### An array of {LARGE // 10**6} MB", "", *head, *lines, ""])


def _small(peers: list[_Peer], rounds: int) -> Iterator[str]:
    data = np.zeros(SMALL // 8)
    puts, gets = _rounds(peers, lambda peer: peer.small(data, SMALL_COUNT), rounds)
    head = ["| | puts a second | medians | gets a second | medians |", "|---|---|---|---|---|"]
    lines = [
        f"| {put.name} | {SMALL_COUNT / put.best:,.0f} | {SMALL_COUNT / put.median:,.0f} "
        f"| {SMALL_COUNT / get.best:,.0f} | {SMALL_COUNT / get.median:,.0f} |"
        for put, get in zip(puts, gets, strict=True)
    ]
    yield "\n".join([f"### Arrays of {SMALL} bytes", "", *head, *lines, ""])


def _frame(shelf: store.Store, rounds: int) -> str:
    rng = np.random.default_rng(0)
    number = shelf.put(pd.DataFrame({name: rng.random(FRAME_ROWS) for name in FRAME_COLUMNS}))
    taken, faults = [], []
    for _ in range(rounds):
        before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
        frame = shelf.get(number)
        taken.append(time.perf_counter() - begin)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        del frame
    pages = FRAME_ROWS * 8 * len(FRAME_COLUMNS) // 4096
    text = f"Getting a frame of {len(FRAME_COLUMNS)} columns and {FRAME_ROWS * 8 * len(FRAME_COLUMNS) / 1e9:.0f} GB"
    return f"{text} takes {min(taken) * 1e3:.2f} ms and touches {min(faults)} of its {pages:,} pages.\n"


def main() -> None:
    """Run everything and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", help="an environment that has Vineyard, by name or path")
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"
    peers = ", ".join(f"{name} {version(name)}" for name in ("shoal", "numpy", "pandas", "ray"))
    parts = [f"# Results: shared memory\n\n`make bench-store` on {date.today():%Y-%m-%d}: {machine}; {peers}.\n"]
    environment = parser.parse_args().environment
    for part in run(None if environment is None else find(environment).python):
        print(part, flush=True)
        parts.append(part)
    Path(__file__).with_name("RESULTS-store.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
