"""Processes that are killed, or stopped for a while; only those that were named, and only of this program."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shoal.errors import PlanError
from shoal.testing.faults._drawing import noted
from shoal.testing.faults._schedule import Event, Schedule

__all__ = ["Killing", "children", "die_once", "killing", "stopped", "workers"]

Pids = Iterable[int] | Callable[[], Iterable[int]]

_LOOK = 0.01  # seconds


def children(pid: int | None = None) -> list[int]:
    """List the processes that descend from one, or from this one.

    >>> import subprocess
    >>> with subprocess.Popen(["sleep", "60"]) as process:
    ...     found = process.pid in children()
    ...     process.kill()
    >>> found
    True
    """
    found, begun = [], [os.getpid() if pid is None else pid]
    while begun:
        own = _children(begun.pop())
        found += own
        begun += own
    return sorted(found)


def workers(pid: int | None = None) -> list[int]:
    """List the processes that do stages for this process, or for another one.

    >>> import shoal
    >>> with shoal.init("local"):
    ...     dataset = shoal.from_arrays({"x": range(8)}).map(dict, workers=1, mode="process")
    ...     batches = iter(dataset.loader(4))
    ...     _ = next(batches)
    ...     found = len(workers())
    ...     batches.close()
    >>> found
    1
    """
    return [each for each in children(pid) if b"shoal.engines.local._worker" in _command(each)]


@dataclass(slots=True)
class Killing:
    """What a schedule of faults has done so far.

    >>> print(Killing(Schedule(seed=7, every=2.0), [(Event(0.5, "kill", 3), 4711)]))
    seed 7, 1 faults, the last: kill of process 4711 at 0.50 s
    """

    schedule: Schedule
    done: list[tuple[Event, int]]
    """Which faults came, and the process that each met."""

    def __str__(self) -> str:
        some = "; ".join(f"{event.kind} of process {pid} at {event.at:.2f} s" for event, pid in self.done[-5:])
        return f"seed {self.schedule.seed}, {len(self.done)} faults, the last: {some or 'none'}"


@contextlib.contextmanager
def killing(
    pids: Pids,
    schedule: Schedule | None = None,
    *,
    seed: int = 0,
    every: float = 0.5,
    kinds: tuple[str, ...] = ("kill",),
    count: int | None = None,
) -> Iterator[Killing]:
    """Kill processes for the length of a block, or stop some for a while, as a schedule says.

    Who may be met is a list, or a function that gives one each time, because killed workers are replaced; time counts
    from when it first gives somebody. They have to descend from this process; one who does not, or is gone, is passed
    over. Who is stopped at the end is let go on.

    >>> import shoal
    >>> from shoal.testing import faults
    >>> dataset = shoal.from_arrays({"x": range(200)}).map(dict, workers=2, mode="process")
    >>> with faults.killing(faults.workers, seed=7, every=0.05, count=3) as done:
    ...     print(sum(len(batch["x"]) for batch in dataset.loader(8)))
    200
    >>> done.schedule.seed
    7
    """
    made = Schedule(seed, every, kinds, count) if schedule is None else schedule
    state, over, given = Killing(made, []), threading.Event(), pids if callable(pids) else tuple(pids)
    for pid in () if callable(given) else given:
        _check(pid)
    thread = threading.Thread(target=_run, args=(state, given, over), name="faults", daemon=True)
    with noted(lambda: str(state)):
        thread.start()
        try:
            yield state
        finally:
            over.set()
            thread.join()


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Stop processes (SIGSTOP) for the length of a block; they have to descend from this one.

    >>> import pathlib, subprocess
    >>> with subprocess.Popen(["sleep", "60"]) as process:
    ...     with stopped(process.pid):
    ...         state = pathlib.Path(f"/proc/{process.pid}/stat").read_text().split()[2]
    ...     process.kill()
    >>> state
    'T'
    """
    for pid in pids:
        _check(pid)
    met = [pid for pid in pids if _met(pid, signal.SIGSTOP)]
    try:
        for pid in met:
            _until_stopped(pid)
        yield
    finally:
        for pid in met:
            _met(pid, signal.SIGCONT)


def die_once(mark: str | os.PathLike[str], *, delay: float = 0.0) -> None:
    """Kill the process that this is called in, unless a file says that it was done before.

    >>> import subprocess, sys, tempfile
    >>> program = "import sys; from shoal.testing import faults; faults.die_once(sys.argv[1])"
    >>> command = [sys.executable, "-c", program, f"{tempfile.mkdtemp()}/mark"]
    >>> [subprocess.run(command).returncode for _ in range(2)]
    [-9, 0]
    """
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return
    time.sleep(delay)  # others are in the middle of something, too
    os.kill(os.getpid(), signal.SIGKILL)


def _run(state: Killing, pids: Pids, over: threading.Event) -> None:
    while not _there(pids):
        if over.wait(_LOOK):
            return
    begin = time.monotonic()
    for event in state.schedule:
        if over.wait(max(begin + event.at - time.monotonic(), 0)):
            return
        if not (there := _there(pids)):
            continue
        pid = there[event.target % len(there)]
        if _met(pid, signal.SIGKILL if event.kind == "kill" else signal.SIGSTOP):
            state.done.append((event, pid))
            if event.kind == "stop":
                over.wait(event.seconds)
                _met(pid, signal.SIGCONT)


def _there(pids: Pids) -> list[int]:
    return sorted(pids() if callable(pids) else pids)


def _met(pid: int, number: int) -> bool:
    """Send a signal to a process of this program; tell whether it was there."""
    try:
        process = os.pidfd_open(pid)  # whoever has this number from here on, it is the one that was looked at
    except (OSError, ValueError):  # it is gone, or never was
        return False
    try:
        if not _descends(pid):
            return False
        signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(process)
    return True


def _check(pid: int) -> None:
    if pid <= 1 or pid == os.getpid():
        raise PlanError(f"process {pid} is not one to be killed or stopped: name one that this program has started")


def _descends(pid: int) -> bool:
    own, seen = os.getpid(), _parent(pid)
    while seen > 1:
        if seen == own:
            return True
        seen = _parent(seen)
    return False


def _stat(pid: int) -> list[str]:
    """Give state and parent of a process: what comes after its name, which may have anything in it."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    return ["", "0"]


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _until_stopped(pid: int) -> None:
    while _stat(pid)[0] not in ("T", "Z", ""):
        time.sleep(0.001)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
