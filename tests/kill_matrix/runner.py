"""Runs one cell: ranks before, a fault, ranks after; and judges what came."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kill_matrix.cells import Cell
from kill_matrix.ground import Ground, noted
from kill_matrix.judge import Delivery, Reference, complaints
from kill_matrix.leaks import nothing_left_of
from kill_matrix.ranks import Task, deliver, loader_of
from kill_matrix.troubles import Scene, fill, outside, scene
from shoal.engines import current
from shoal.errors import ShardError, ShoalError, StateError
from shoal.order import merge_digests
from shoal.testing import faults

__all__ = ["Outcome", "run"]

_STOP = 9  # steps before the number of ranks changes
_LIMIT = 180  # seconds after which a cell hangs
_INSIDE = {"worker-kill", "worker-stop", "lag", "clock", "full-disk", "slow-disk"}


@dataclass(frozen=True)
class Outcome:
    """How a cell went."""

    cell: Cell
    complaints: tuple[str, ...]
    happened: int
    """How many faults came."""
    seconds: float
    error: str = ""
    """The error that the fault led to, where it has to lead to one."""

    @property
    def holds(self) -> bool:
        return not self.complaints

    def as_dict(self) -> dict[str, Any]:
        rest = {"faults": self.happened, "error": self.error, "seconds": round(self.seconds, 1)}
        return {**self.cell.as_dict(), "holds": self.holds, **rest, "complaints": list(self.complaints)}


def run(cell: Cell, ground: Ground) -> Outcome:
    """Run a cell on its engine, which is started if it does not run."""
    ground.on(cell.engine)
    folder = ground.folder / "cells" / cell.name
    folder.mkdir(parents=True)
    begun = time.monotonic()
    try:
        with _no_longer_than(_LIMIT):
            happened, error, wrong = _run(cell, ground, folder)
    except Exception as failure:
        notes = getattr(failure, "__notes__", ())
        happened, error, wrong = 0, "", [" ".join([f"{type(failure).__name__}: {failure}", *notes])]
    if not happened:
        wrong.append("the fault never came")
    if not wrong:
        shutil.rmtree(folder)
    return Outcome(cell, tuple(wrong), happened, time.monotonic() - begun, error)


def _run(cell: Cell, ground: Ground, folder: Path) -> tuple[int, str, list[str]]:
    # What is made once, and stays: indexes, connections, what a library begins with its first use.
    calm = _reference(cell, ground)
    with (
        nothing_left_of(ground.folder, ground.place.shelf, strict=cell.engine == "local"),
        scene(cell, ground, folder) as set_up,
    ):
        return _Course(cell, ground, folder, set_up, calm).run()


def _reference(cell: Cell, ground: Ground) -> Reference:
    with faults.http_server(ground.place.folder) as server:
        return ground.reference(cell.source, replace(ground.place, http=server.url()))


class _Course:
    """The parts of a cell, one after the other."""

    def __init__(self, cell: Cell, ground: Ground, folder: Path, set_up: Scene, calm: Reference) -> None:
        self._cell, self._ground, self._folder, self._scene, self._calm = cell, ground, folder, set_up, calm
        slow = cell.fault in ("worker-kill", "worker-stop")
        self._task = Task(
            cell.source,
            set_up.place,
            str(folder),
            "a",
            _STOP,
            seed=cell.seed,
            skip=cell.fault == "flip",
            seconds=0.01 * max(cell.before, cell.after) if slow else 0.004,
        )

    def run(self) -> tuple[int, str, list[str]]:
        """Run all parts, and say how many faults came, which error they led to, and what is wrong."""
        way: Callable[[], tuple[int, str]] = {
            "rank-kill": self._hit,
            "rank-stop": self._hit,
            "truncate": self._cut_short,
            "full-memory": self._without_memory,
            "lie": self._lied_to,
            "flip": self._flipped,
            "full-store": self._filled,
        }.get(self._cell.fault, self._disturbed)
        happened, error = way()
        return happened, error, self._complaints()

    def _gang(self, phase: str, size: int, stop: int | None, fault: str = "") -> int:
        """Let ranks work; give how many faults came inside them."""
        made = replace(self._task, phase=phase, stop=stop, fault=fault)
        with current().gang(partial(deliver, task=made), size) as gang:
            told = gang.results()
        left = [each["left"] for each in told if each["left"]]
        assert not left, f"left in ranks: {left}"
        self._digest = merge_digests(int(each["digest"], 16) for each in told)
        return sum(each["happened"] for each in told)

    def _before(self, fault: str = "") -> int:
        return self._gang("a", self._cell.before, _STOP, fault)

    def _after(self, fault: str = "") -> int:
        return self._gang("b", self._cell.after, None, fault)

    def _disturbed(self) -> tuple[int, str]:
        """Go through both parts with what goes wrong, inside the ranks or around them."""
        fault = self._cell.fault if self._cell.fault in _INSIDE or self._cell.source == "feed" else ""
        inside = self._before(fault) + self._after(fault)
        return (inside if self._cell.fault in _INSIDE else self._scene.happened()), ""

    def _hit(self) -> tuple[int, str]:
        """Hit a rank from outside."""
        cell = self._cell
        kind = cell.fault.removeprefix("rank-")
        schedule = faults.Schedule(cell.seed, every=0.02, kinds=(kind,), count=1, seconds=1.0)
        whom = partial(_chosen, seed=cell.seed)
        with outside(self._folder, schedule, 2 + cell.seed % 4, whom) as happened:
            self._before()
            count = happened()
        if kind == "kill":
            assert list(self._folder.glob("a-1-*.jsonl")), "the gang did not begin again"
        self._after()
        return count, ""

    def _refused(self, fault: str = "") -> ShoalError:
        """Try to go on, which has to end with an error of ours."""
        try:
            self._gang("t", self._cell.after, None, fault)
        except ShoalError as error:
            return error
        raise AssertionError("the ranks went on")

    def _cut_short(self) -> tuple[int, str]:
        """Cut a shard after some steps, try, put it back, and go on."""
        self._before()
        shard = sorted(Path(self._scene.place.folder, self._cell.source).glob("*[!x]"))[self._cell.seed % 4]
        with faults.truncated(shard, self._cell.seed):
            error = self._refused()
            assert shard.name in str(error), f"{error} does not name {shard.name}"
            _names(shard, replace(self._task, folder=""))
        self._after()
        return 1, type(error).__name__

    def _without_memory(self) -> tuple[int, str]:
        self._before()
        error = self._refused("full-memory")
        assert not isinstance(error, StateError), "it was refused for another reason"
        self._after()
        return 1, type(error).__name__

    def _lied_to(self) -> tuple[int, str]:
        """Be right all the same, or end with an error, and go on with a server that is honest."""
        error = ""
        try:
            self._before()
        except ShoalError as failure:
            error = type(failure).__name__
        count = self._scene.happened()
        self._scene.calm()
        self._after()
        return count, error

    def _flipped(self) -> tuple[int, str]:
        """Damage one sample, and let it be skipped; the reference is a run alone over the same files."""
        shard = Path(self._scene.place.folder, "tar", f"{self._cell.seed % 4:02d}.tar")
        with tarfile.open(shard) as archive:
            arrays = [each for each in archive if each.name.endswith(".npy")]
        begin = arrays[self._cell.seed % len(arrays)].offset_data
        whole = sum(map(len, self._calm.steps))
        with faults.bit_flipped(shard, self._cell.seed, within=(begin, begin + 6)):
            self._calm = self._ground.reference(self._cell.source, self._scene.place, skip=True)
            assert sum(map(len, self._calm.steps)) == whole - 1, "not one sample is missing"
            self._before()
            self._after()
        return 1, ""

    def _filled(self) -> tuple[int, str]:
        """Fill the store while ranks read from it."""
        count: list[int] = []
        filler = threading.Thread(target=lambda: count.append(fill(self._scene.place)))
        filler.start()
        self._before()
        filler.join()
        self._after()
        return sum(count), ""

    def _complaints(self) -> list[str]:
        return complaints(self._calm, list(_deliveries(self._folder)), self._digest)


def _names(shard: Path, task: Task) -> None:
    """Make sure that who begins anew is told which shard is damaged."""
    try:
        for _ in loader_of(task, 0, 1, workers=0):
            pass
    except ShardError as error:
        if shard.name in str(error.shard):
            return
        raise AssertionError(f"{error} does not name {shard.name}") from error
    raise AssertionError(f"nobody says that {shard.name} is damaged")


def _chosen(pids: list[int], seed: int) -> int:
    return pids[seed % len(pids)]


def _deliveries(folder: Path) -> Iterator[Delivery]:
    for path in sorted(folder.glob("*-*-*-*.jsonl")):
        phase, attempt, _, size = path.stem.split("-")
        steps = {int(str(line["step"])): line["rows"] for line in noted(path)}
        yield Delivery(path.stem, f"{phase}-{attempt}", int(size), steps)  # type: ignore[arg-type]


@contextlib.contextmanager
def _no_longer_than(seconds: int) -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"it hangs: {seconds} s have passed")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
