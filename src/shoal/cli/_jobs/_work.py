"""Go through all shards: hand commands to a runner, so many at a time, and note what became of them."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import replace
from typing import NamedTuple

from shoal.cli._jobs._agenda import Agenda, Turn
from shoal.cli._jobs._execute import Outcome
from shoal.cli._jobs._job import Job
from shoal.cli._jobs._report import Report
from shoal.cli._jobs._runners import Runner
from shoal.cli._jobs._state import State

__all__ = ["Work"]


class _Ended(NamedTuple):
    """An attempt that is over, and how; or what went wrong with it that is no matter of the command."""

    turn: Turn
    outcome: Outcome | Exception


class Work:
    """One run over what an agenda holds.

    Each command has a thread that waits for it. Nobody waits for the threads: one that hangs, in a call to a cluster
    that is being taken apart, must not keep the program from its end.
    """

    def __init__(self, job: Job, agenda: Agenda, state: State, runner: Runner) -> None:
        self._job, self._agenda, self._state, self._runner = job, agenda, state, runner
        self._ended: queue.Queue[_Ended] = queue.Queue()
        self._running = 0
        self._failed: list[tuple[int, str]] = []

    def do(self, report: Report, workers: int) -> list[str]:
        """Run the command of each shard until it ended well or was tried often enough; list those that failed."""
        try:
            while self._running or self._agenda.wait(time.monotonic()) is not None:
                self._begin(report, workers)
                self._settle(report, self._pause(workers))
        except BaseException:
            self._runner.stop()
            raise
        return [shard for _, shard in sorted(self._failed)]

    def _begin(self, report: Report, workers: int) -> None:
        """Start what is due, as far as there is room."""
        while self._running < workers and (turn := self._agenda.take(time.monotonic())) is not None:
            report.begun(turn)
            self._running += 1
            threading.Thread(target=self._attempt, args=(turn,), name=f"shoal-run-{turn.shard}", daemon=True).start()

    def _attempt(self, turn: Turn) -> None:
        try:
            outcome = self._runner.run(self._job.command(turn.shard), self._state.log(turn.shard))
            missing = self._state.missing(turn.shard) if outcome.code == 0 else []
            if missing:
                outcome = replace(outcome, code=1, tail=f"it ended with 0, but {missing[0]} is not there")
            self._ended.put(_Ended(turn, outcome))
        except Exception as error:  # raised again where somebody hears of it
            self._ended.put(_Ended(turn, error))

    def _pause(self, workers: int) -> float | None:
        """Tell how long there is nothing to begin; None if only the end of a command changes that."""
        return self._agenda.wait(time.monotonic()) if self._running < workers else None

    def _settle(self, report: Report, pause: float | None) -> None:
        """Wait for the end of an attempt, and note it; one that failed for the last time is remembered."""
        try:
            turn, outcome = self._ended.get(timeout=pause)
        except queue.Empty:
            return
        self._running -= 1
        if isinstance(outcome, Exception):
            raise outcome
        again = None
        if outcome.code == 0:
            self._state.finish(turn.shard, seconds=outcome.seconds, attempts=turn.attempt)
        else:
            again = self._agenda.failed(turn, time.monotonic())
            self._failed += [(turn.number, turn.shard)] if again is None else []
        report.ended(turn, outcome, again)
