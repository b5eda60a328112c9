"""What one rank does: load, note what came, meet the others, keep states; and what goes wrong inside it."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kill_matrix.data import BALLAST, BATCH, STEPS, Place, dataset_of
from shoal import feed
from shoal.abc import Member
from shoal.store import connect
from shoal.testing import faults

__all__ = ["Task", "deliver", "digest_of_rows", "loader_of"]

_STAGED = {"worker-kill", "worker-stop", "full-memory"}


@dataclass(frozen=True)
class Task:
    """What ranks are told."""

    source: str
    place: Place
    folder: str
    """Where they note what came, and keep states."""
    phase: str
    stop: int | None
    """The step of the epoch after which they end; None for all."""
    fault: str = ""
    """What goes wrong inside them."""
    seed: int = 0
    skip: bool = False
    seconds: float = 0.002
    """What a sample takes."""


def loader_of(task: Task, rank: int, size: int, **options: Any) -> Any:
    """Make the loader of a rank."""
    common = {"rank": rank, "world_size": size, "steps": STEPS, **options}
    if task.skip:
        common |= {"on_error": "skip", "error_budget": 10}
    if task.source == "feed" and task.place.feeders:
        from support.feed import TOKEN  # here, because most ranks need nothing of it

        direct = {"shared_memory": False} if task.fault == "cut" else {}
        return feed.connect(list(task.place.feeders), BATCH, token=TOKEN, timeout=2.0, **direct, **common)
    stage = {"workers": 1 + (size == 1), "mode": "process"} if task.fault in _STAGED else {}
    return dataset_of(task.source, task.place, seconds=task.seconds, **stage).loader(BATCH, **common)


def digest_of_rows(batch: dict[str, Any]) -> list[str]:
    """Give a fingerprint of each row that is no padding, of all its bytes."""
    mask = batch.get("__mask__", [True] * len(batch["__key__"]))
    names = sorted(name for name in batch if name != "__mask__")
    return [_digest([(name, batch[name][row]) for name in names]) for row, real in enumerate(mask) if real]


def _digest(fields: list[tuple[str, Any]]) -> str:
    made = hashlib.blake2b(digest_size=8)
    for name, value in fields:
        exact = (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.generic | np.ndarray) else value
        made.update(repr((name, exact)).encode())
    return made.hexdigest()


def deliver(member: Member, task: Task) -> dict[str, Any]:
    """Go through the epoch, up to where it is said, from the last states there are."""
    os.environ["SHOAL_CACHE"] = f"{task.folder}/cache"
    shelf = connect(task.place.shelf)  # a process has a lease of a store for as long as it lives
    before = _held()
    told: dict[str, Any] = {"happened": 0}
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # they say what is wrong, and it is
        task = stack.enter_context(_trouble(task, told))
        loader = loader_of(task, member.rank, member.size)
        stack.callback(loader.close)
        _deliver(member, task, loader)
        told["digest"] = loader.order_digest()
    del loader, shelf
    told["left"] = _left(before)
    return told


def _deliver(member: Member, task: Task, loader: Any) -> None:
    step = _resumed(loader, Path(task.folder))
    batches = iter(loader)
    if task.fault == "lag" and member.rank == member.size - 1:
        batches = faults.lagging(batches, task.seed, seconds=0.2, every=2)
    name = f"{task.phase}-{member.attempt}-{member.rank}-{member.size}.jsonl"
    with open(f"{task.folder}/{name}", "a") as file:
        for batch in batches:
            step += 1
            file.write(json.dumps({"step": step, "pid": os.getpid(), "rows": digest_of_rows(batch)}) + "\n")
            file.flush()
            states = member.all_gather(loader.state_dict())
            if member.rank == 0 and (step % 3 == 0 or step == task.stop):
                _keep(Path(task.folder, "states.json"), states)
            if step == task.stop:
                break


def _resumed(loader: Any, folder: Path) -> int:
    if not (folder / "states.json").exists():
        return 0
    states = json.loads((folder / "states.json").read_text())
    loader.load_state_dict(states)
    return int(states[0]["step"])


def _keep(path: Path, states: list[Any]) -> None:
    path.with_suffix(".new").write_text(json.dumps(states))
    os.replace(path.with_suffix(".new"), path)


@contextmanager
def _trouble(task: Task, told: dict[str, Any]) -> Iterator[Task]:
    """Let things go wrong in this process for the length of a block."""
    match task.fault:
        case "worker-kill" | "worker-stop":
            kind = task.fault.removeprefix("worker-")
            schedule = faults.Schedule(task.seed, every=0.4, kinds=(kind,), count=3, seconds=0.2)
            with faults.killing(faults.workers, schedule) as done:
                yield task
            told["happened"] = len(done.done)
        case "clock":
            with faults.clock_jumps(task.seed, every=0.05):
                yield task
            told["happened"] = 1
        case "full-disk":
            with faults.full_disk("60kB"), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                yield task
            told["happened"] = sum("streamed instead" in str(each.message) for each in caught)
        case "slow-disk":
            with faults.slow_disk(task.place.folder, "2MB") as url:
                yield replace(task, place=replace(task.place, slow=url))
            told["happened"] = 1
        case "full-memory":
            os.environ[BALLAST] = "300000"  # small parcels need no shared memory
            with faults.full_disk("100kB"):
                yield task
        case _:
            yield task
            told["happened"] = int(task.fault == "lag")


def _left(before: tuple[Any, ...], *, seconds: float = 10.0) -> str:
    """Say what is left of a run in this process, if anything is."""
    late = time.monotonic() + seconds
    while any(now - known for now, known in zip(_held(), before, strict=True)):
        if time.monotonic() > late:
            return f"before {before}, now {_held()}"
        time.sleep(0.02)
        gc.collect()
    return ""


def _held() -> tuple[Counter[Any], ...]:
    """Count what a run must give back; sockets that a library keeps for the next question are its own affair."""
    now, files = faults.held(), Counter[str]()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            files[os.readlink(f"/proc/self/fd/{number}").split(":")[0]] += 1
    others = ("socket", "anon_inode", ".zip", ".jar")  # Python imports from archives, which it keeps open
    kept = {name: count for name, count in files.items() if not name.endswith(others)}
    return Counter(kept), Counter(now.threads), Counter(now.children), Counter(maps=now.shared)
