"""A pipeline as a drawing: its stages, and while it runs how fast each is and which one holds the others up."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from shoal.errors import ShoalError
from shoal.pipeline import Dataset, Ledger, Statistics
from shoal.pipeline.outline import Outline, outline
from shoal.view._jobs import Job, Pace

__all__ = ["LivePlan", "drawn"]

#: Seconds between two readings, and how many of them are kept.
_EVERY = 0.5
_READINGS = 240


class LivePlan:
    """A dataset that can be run to see how it does; what it gives is dropped."""

    def __init__(self, dataset: Dataset, title: str) -> None:
        self._dataset, self.title = dataset, title
        self._job: Job | None = None
        self._readings: deque[tuple[float, Statistics]] = deque(maxlen=_READINGS)
        self._passes = 0
        self._error = ""
        self.ledger = Ledger()

    def start(self) -> None:
        """Run it, again and again, until `stop`."""
        if self._job is None or self._job.done:
            self._readings.clear()
            self._passes, self._error = 0, ""
            self._job = Job(self._run)
            self._job.start()

    def stop(self) -> None:
        """End the run."""
        if self._job is not None:
            self._job.stop()
            self._job.wait_until_done(10.0)

    def described(self) -> dict[str, Any]:
        """Give the drawing, and the last readings if it was run."""
        running = self._job is not None and not self._job.done
        error = self._error or ("" if self._job is None else self._job.error)
        told = {"title": self.title, "plan": drawn(outline(self._dataset)), "running": running, "error": error}
        readings = list(self._readings)
        if not readings:
            return {**told, "statistics": None}
        now = readings[-1][1]
        more = {"bottleneck": now.bottleneck, "advice": now.advice, "line": now.line()}
        return {**told, "passes": self._passes, "statistics": {**_live(readings), **more}, "rates": _rates(readings)}

    def _run(self, job: Job) -> None:
        while True:
            with self._dataset.run(workers="auto", on_error="skip", error_budget=1.0) as run:
                pace = Pace(_EVERY)
                try:
                    for _ in run:
                        if pace.due():
                            self._read(run.statistics())
                            job.tick()
                except ShoalError as error:
                    self._error = str(error)
                    return
                self._read(run.statistics())
                self.ledger = run.ledger
                self._passes += 1
                job.tick()
                if not run.statistics().samples:
                    return

    def _read(self, statistics: Statistics) -> None:
        self._readings.append((time.monotonic(), statistics))


def _rates(readings: list[tuple[float, Statistics]]) -> list[float]:
    """Give samples a second, from one reading to the next; a pass that begins anew counts from zero."""
    rates = []
    for (before, old), (after, new) in pairwise(readings):
        fresh = new.elapsed < old.elapsed
        done = new.samples - (0 if fresh else old.samples)
        spent = min(after - before, new.elapsed) if fresh else after - before
        rates.append(done / max(spent, 1e-6))
    return rates


def _live(readings: list[tuple[float, Statistics]]) -> dict[str, Any]:
    """Tell of each stage how fast it is now: since a reading a few back, of the same pass."""
    now = readings[-1][1]
    before = next((old for _, old in readings[-6:-1] if old.elapsed < now.elapsed), None)
    told = asdict(now)
    told["samples_per_second"], told["megabytes_per_second"] = now.samples_per_second, now.megabytes_per_second
    if before is not None and now.elapsed - before.elapsed > _EVERY / 2:
        span = now.elapsed - before.elapsed
        earlier = {(stage.name, stage.pool): stage.samples for stage in before.stages}
        for stage in told["stages"]:
            stage["samples_per_second"] = (stage["samples"] - earlier.get((stage["name"], stage["pool"]), 0)) / span
        told["samples_per_second"] = (now.samples - before.samples) / span
    return told


def drawn(plan: Outline) -> dict[str, Any]:
    """Give an outline as JSON has it.

    >>> import shoal
    >>> drawn(outline(shoal.from_arrays({"x": range(5)}).take(2)))["stages"]
    [{'name': 'take()', 'workers': '', 'keeps_count': False}]
    """
    source = None if plan.source is None else {"name": type(plan.source).__name__, "text": repr(plan.source)}
    return {
        "source": source,
        "stages": [asdict(stage) for stage in plan.stages],
        "components": [drawn(component) for component in plan.components],
        "shares": list(plan.shares),
        "shuffle": plan.shuffle,
    }
