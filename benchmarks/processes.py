"""Run a contestant in a process of its own, watch its memory and see it end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.ffmpeg import library_folder

INTERVAL = 0.1
"""Seconds between two looks at the memory of a process tree."""
PATIENCE = 600


@dataclass(frozen=True)
class Contestant:
    """A row of a table: which function of ``benchmarks.peers`` reads which store."""

    label: str
    module: str
    function: str
    store: str
    package: str
    warm: bool = False
    """Keep what it caches beside the data from run to run, instead of beginning with nothing."""


class RunError(RuntimeError):
    """A contestant did not come to its end."""


def run(contestant: Contestant, data: Path, count: int, *, keep: bool = False, memory: bool = False) -> dict[str, Any]:
    """Take ``count`` samples of a store under ``data``; give what was seen, with ``gone`` and, if asked for, memory."""
    folder = data / contestant.store
    warm_up(folder)
    arguments = [contestant.module, contestant.function, str(folder), str(count), *(["keep"] if keep else [])]
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as private, tempfile.TemporaryFile() as errors:
        cache = str(data / f"{contestant.store}-cache") if contestant.warm else private
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.contestant", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(cache, private),
            start_new_session=True,
        )
        peaks = _watch(process, memory)
        ended = time.monotonic()
        output, _ = process.communicate(timeout=PATIENCE)
        if not output.strip():  # some crash at their very end, with all work done
            errors.seek(0)
            raise RunError(errors.read().decode(errors="replace").strip()[-1500:] or f"exit {process.returncode}")
    result: dict[str, Any] = json.loads(output.decode().strip().splitlines()[-1])
    result.update(peaks)
    if "left" in result:
        result["gone"] = ended - result.pop("left")
    return result


def warm_up(folder: Path) -> None:
    """Read all files, so that everybody finds them in the page cache."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 24):
                    pass


def tree_memory(pid: int) -> tuple[int, int]:
    """Give the bytes of a process tree: proportional set size, and the part of it that no file on disk backs.

    Pages of a mapped file count in the first only: they are page cache, and the kernel takes them back at will.
    """
    total = owned = 0
    try:
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return 0, 0
    for process in processes:
        try:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines[1:]}
        total += sizes.get("Pss:", 0)
        owned += sizes.get("Pss_Anon:", 0) + sizes.get("Pss_Shmem:", 0)
    return total, owned


def _watch(process: subprocess.Popen[bytes], memory: bool) -> dict[str, int]:
    """Wait for the end, looking at memory now and then if asked to: looking slows down who is looked at."""
    deadline = time.monotonic() + PATIENCE
    total = owned = 0
    while time.monotonic() < deadline:
        if memory:
            now = tree_memory(process.pid)
            total, owned = max(total, now[0]), max(owned, now[1])
        try:
            process.wait(INTERVAL if memory else PATIENCE)
            break
        except subprocess.TimeoutExpired:
            continue
    else:
        _kill(process)
    return {"pss": total, "owned": owned} if memory else {}


def _kill(process: subprocess.Popen[bytes]) -> None:
    for child in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
        child.kill()


def _environment(cache: str, private: str) -> dict[str, str]:
    """Give each run its own cache and keep libraries quiet."""
    quiet = {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": f"{private}/huggingface",
        "PYTHONWARNINGS": "ignore",
    }
    libraries = os.pathsep.join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), str(library_folder())]))
    return {**os.environ, **quiet, "SHOAL_CACHE": cache, "LD_LIBRARY_PATH": libraries}
