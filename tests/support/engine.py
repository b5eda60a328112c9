"""What tests of runs and their workers have in common: parcels, what a run holds, scripts that begin one."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import psutil

import shoal
from shoal.abc import Sample
from shoal.pipeline import Dataset
from shoal.testing.faults import Held, held
from support.lane_sources import ForwardSource, MemorySource

__all__ = [
    "Goods",
    "Held",
    "begun_threads",
    "by_value",
    "forward",
    "held",
    "held_again",
    "named_in_shared_memory",
    "no_collector",
    "numbers",
    "run_script",
    "same",
    "wait_until",
]

TESTS = Path(__file__).parents[1]


@dataclass
class Goods:
    """A parcel that weighs what it is told to."""

    number: int
    nbytes: int = 0

    @property
    def address(self) -> str:
        return f"goods {self.number}"


def numbers(count: int, *, shard: int = 50, size: int = 0, source: Any = MemorySource) -> Dataset:
    """Make a dataset of numbered samples, so many in each shard; with ``size``, each has that many bytes."""
    samples: list[Sample] = [{"__key__": f"k{number}", "n": number} for number in range(count)]
    for sample in samples:
        if size:
            sample["raw"] = np.full(size, sample["n"] % 251, np.uint8)
    return Dataset(source([samples[at : at + shard] for at in range(0, count, shard)]))


def forward(count: int, *, shard: int = 50) -> Dataset:
    """Make one that can only be read forward, so that its lanes are pulled sample by sample."""
    return numbers(count, shard=shard, source=ForwardSource)


def wait_until(true: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def held_again(before: Held, seconds: float = 20.0) -> bool:
    """Wait until no more is held than before; tell what is, if that does not come."""
    if wait_until(lambda: held().is_within(before), seconds):
        return True
    print(f"before: {before}\nnow:    {held()}")
    return False


def begun_threads(before: Collection[threading.Thread]) -> list[str]:
    """Name the threads of Shoal's that were not there before: engines that stay for other tests have some, too."""
    now = [thread for thread in threading.enumerate() if thread not in before]
    return [thread.name for thread in now if thread.name.startswith("shoal")]


def named_in_shared_memory(*pids: int) -> set[str]:
    """Name the files in shared memory that processes have open or mapped; others may make and remove some meanwhile."""
    found: set[str] = set()
    for process in map(psutil.Process, pids):
        found |= {file.path for file in process.open_files()} | {mapped.path for mapped in process.memory_maps()}
    return {path for path in found if path.startswith("/dev/shm/")}


@contextmanager
def no_collector() -> Iterator[None]:
    """Let objects go only when the last one who refers to them does."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def by_value(*modules: str) -> Iterator[None]:
    """Send the functions of test modules to processes as they are; these cannot import them, or only with pytest."""
    for name in modules:
        cloudpickle.register_pickle_by_value(sys.modules[name])
    try:
        yield
    finally:
        for name in modules:
            cloudpickle.unregister_pickle_by_value(sys.modules[name])


def same(one: Any, other: Any) -> bool:
    """Compare to the last byte."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if type(one).__module__ == "torch":
        return bool(one.dtype == other.dtype and one.shape == other.shape and (one == other).all())
    return bool(one == other) or (one != one and other != other)


def run_script(
    text: str, *, arguments: Sequence[str] = (), interrupt: bool = False, seconds: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run a program that has the helpers of tests; with ``interrupt`` it gets Ctrl-C once it has printed a line."""
    paths = os.pathsep.join([str(TESTS), str(Path(shoal.__file__).parents[1])])
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's jobs do not
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", hears + textwrap.dedent(text), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,
    )
    first = b""
    if interrupt:
        assert process.stdout is not None
        first = process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
    try:
        out, error = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, error = process.communicate()
        raise AssertionError(f"the script hangs; it said {first + out!r} and {error!r}") from None
    return subprocess.CompletedProcess(process.args, process.returncode, (first + out).decode(), error.decode())
