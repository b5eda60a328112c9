"""Dask workers as if on several hosts: each is a process with a store of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

__all__ = ["DaskHosts", "dask_hosts"]


class DaskHosts(NamedTuple):
    """A scheduler and its workers."""

    address: str
    stores: list[str]
    """The folder of each host."""
    workers: list[int]
    """The process of each host."""


@contextmanager
def dask_hosts(folder: Path, stores: list[str]) -> Iterator[DaskHosts]:
    """Start a scheduler, and a worker of one thread for each store."""
    note = folder / "scheduler.json"
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    shared = {**os.environ, "PYTHONPATH": path}
    dask = [sys.executable, "-m", "dask"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    local = ["--host", "127.0.0.1"]
    first = ["scheduler", *local, "--port", "0", "--no-dashboard", "--scheduler-file", str(note)]
    processes = [subprocess.Popen([*dask, *first], env=shared, **quiet)]  # type: ignore[call-overload]
    try:
        address = _address(note)
        for number, store in enumerate(stores):
            own = {**shared, "SHOAL_STORE": store}
            options = ["--nthreads", "1", "--no-dashboard", "--no-nanny", "--name", f"host{number}"]
            command = [*dask, "worker", address, *local, *options]
            processes.append(subprocess.Popen(command, env=own, **quiet))  # type: ignore[call-overload]
        yield DaskHosts(address, stores, [process.pid for process in processes[1:]])
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def _address(note: Path, seconds: float = 60.0) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if note.exists() and note.stat().st_size:
            return str(json.loads(note.read_text())["address"])
        time.sleep(0.05)
    raise AssertionError("the scheduler does not begin")
