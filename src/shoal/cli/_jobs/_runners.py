"""Who runs commands: this machine, or the workers of an engine."""

from __future__ import annotations

import os
import secrets
import subprocess
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from shoal.cli._jobs._elsewhere import execute_elsewhere
from shoal.cli._jobs._execute import Outcome, closing, execute, opening
from shoal.cli._jobs._groups import end_groups
from shoal.errors import ShoalError

__all__ = ["EngineRunner", "LocalRunner", "Runner"]

#: Seconds that tasks get to end their commands.
_PATIENCE = 15.0


class Runner(Protocol):
    """Runs commands; several threads ask it at the same time."""

    def run(self, command: Sequence[str], log: Path) -> Outcome:
        """Run a command to its end, and append what it says to a log."""

    def stop(self) -> None:
        """End all that run, and begin no other."""


class LocalRunner:
    """Runs commands as processes of this machine, each in a group of its own, so that all of it can be ended."""

    def __init__(self, lock: int) -> None:
        self._lock = lock
        self._guard = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(self, command: Sequence[str], log: Path) -> Outcome:
        """Start a process and wait for it."""
        with log.open("a+b") as file:
            file.write(opening(command))
            file.flush()
            outcome = execute(command, file, keep=[self._lock], started=self._started)
            file.write(closing(outcome))
        with self._guard:
            self._running = {process for process in self._running if process.returncode is None}
        return outcome

    def stop(self) -> None:
        """End all groups."""
        with self._guard:
            self._stopped = True
            running = list(self._running)
        end_groups(running)

    def _started(self, process: subprocess.Popen[bytes]) -> None:
        with self._guard:
            self._running.add(process)
            late = self._stopped
        if late:
            end_groups([process])


class EngineRunner:
    """Runs commands as tasks of an engine, which tries those again whose worker died."""

    def __init__(self, engine: str, address: str | None, workers: int | None, folder: Path) -> None:
        from shoal.engines import init

        self._session = init(engine, address, None if address else workers)
        self._sign = folder.resolve() / f"stop-{secrets.token_hex(8)}"
        self._task = partial(execute_elsewhere, folder=os.getcwd(), sign=str(self._sign))
        self._guard = threading.Lock()
        self._waiting = 0

    @property
    def workers(self) -> int:
        """How many commands the engine runs at the same time."""
        return max(int(sum(worker.cpus for worker in self._session.engine.describe().workers)), 1)

    def run(self, command: Sequence[str], log: Path) -> Outcome:
        """Hand in one task and wait for it."""
        engine = self._session.engine
        self._count(1)
        try:
            outcome: Outcome = next(engine.gather(engine.map(self._task, engine.scatter([list(command)]))))
        except ShoalError as error:
            outcome = Outcome(1, 0.0, str(error))
        finally:
            self._count(-1)
        with log.open("ab") as file:
            file.write(opening(command) + outcome.tail.encode() + closing(outcome))
        return outcome

    def stop(self) -> None:
        """Give the tasks a sign to end, wait for them, and end the engine if it was started for this.

        Not at once: Ray ends a program that still waits for a task when it is shut down.
        """
        self._sign.touch()
        end = time.monotonic() + _PATIENCE
        while self._waiting and time.monotonic() < end:
            time.sleep(0.05)
        self._session.close()
        self._sign.unlink(missing_ok=True)

    def _count(self, change: int) -> None:
        with self._guard:
            self._waiting += change
