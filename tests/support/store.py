"""What tests of the store have in common: stores of their own, programs that use one, and what memory is mapped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from shoal.store import Store, connect

__all__ = ["MB", "address", "array", "files", "finished", "own_store", "program", "running", "used", "where"]

MB = 10**6

TESTS = Path(__file__).parents[1]
SHARED = "/dev/shm"


def array(megabytes: float, value: int = 1) -> Any:
    """Make an array of so many megabytes, all of one value."""
    return np.full(int(megabytes * MB), value, np.uint8)


@contextmanager
def own_store(memory: int | str = "200MB", *, spill: str | bool = False, **options: Any) -> Iterator[Store]:
    """Make a store in shared memory that nobody else has, and take it away afterwards."""
    folder = tempfile.mkdtemp(prefix="shoal-test-", dir=SHARED)
    try:
        yield connect(folder, memory=memory, spill=spill, **options)
    finally:
        shutil.rmtree(folder)


def program(text: str, *arguments: object) -> list[str]:
    """Give the command of a program that has a connection ``store`` to the folder in its first argument."""
    begin = """
        import os, signal, sys, time
        import numpy as np
        from shoal.store import connect
        store = connect(sys.argv[1])
        def say(*words): print(*words, flush=True)
    """
    whole = textwrap.dedent(begin) + textwrap.dedent(text)
    return [sys.executable, "-W", "error", "-c", whole, *map(str, arguments)]


def finished(store: Store, text: str, *arguments: object, seconds: float = 120.0) -> list[str]:
    """Run a program to its end, and give the words that it says."""
    command = program(text, store.folder.path, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment())
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@contextmanager
def running(store: Store, text: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Have a program that runs; it is killed afterwards, with all that it has begun."""
    command = program(text, store.folder.path, *arguments)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also what it has forked
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def environment() -> dict[str, str]:
    """Give an environment in which programs find the package, and the helpers of tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(Path(shoal.__file__).parents[1])])}


def used(store: Store) -> int:
    """Count the bytes of memory that a store uses when all is removed that nobody needs."""
    store.collect()
    return store.status().memory_usage


def files(*folders: str | os.PathLike[str], skip: Sequence[str] = ("config.json", "*.lock")) -> list[str]:
    """List all files of objects, names and notes in folders."""
    found = (path for folder in folders for path in Path(folder).rglob("*") if not path.is_dir())
    return sorted(str(path) for path in found if not any(path.match(pattern) for pattern in skip))


def address(data: Any) -> int:
    """Tell where in memory an array, a column or a buffer begins."""
    if isinstance(data, np.ndarray):
        return int(data.__array_interface__["data"][0])
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0])


def where(data: Any) -> str:
    """Name the file that memory is mapped from; nothing for memory of this process."""
    at = address(data)
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, *_, path = line.split(maxsplit=5) if line.count("/") else (line.split()[0], "")
        begin, end = (int(number, 16) for number in place.split("-"))
        if begin <= at < end:
            return path
    return ""
