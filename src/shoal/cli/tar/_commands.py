"""Commands that users write, run in a folder and under a clock."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from typing import IO

from shoal.cli._fields import printable
from shoal.errors import PlanError

__all__ = ["Commands", "Outcome", "Recipe"]

#: Seconds that a command gets to end by itself after it was asked to.
_GRACE = 1.0
#: Seconds that the system can wait for.
_LONGEST = 2e6
#: Bytes at the end of what a command said in which its last line is looked for.
_TAIL = 4096


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is run: a text for an interpreter, or a file."""

    arguments: tuple[str, ...]
    timeout: float | None = None

    @classmethod
    def of(cls, command: str | None, script: str | None, interpreter: str, timeout: float | None = None) -> Recipe:
        """Put together what to run; of command and script there must be one.

        >>> Recipe.of("ls *.jpg", None, "bash").arguments[1:]
        ('-c', 'ls *.jpg')
        """
        words = shlex.split(interpreter)
        program = shutil.which(words[0]) if words else None
        if program is None:
            raise PlanError(f"there is no program {interpreter!r} here to run commands with")
        if (command is None) == (script is None):
            raise PlanError("say what to run: either -c 'commands', or -s FILE")
        if timeout is not None and not 0 < timeout < _LONGEST:
            raise PlanError(
                f"a timeout of {timeout:g} seconds is none; it must be more than 0 and less than {_LONGEST:g}"
            )
        if script is None:
            assert command is not None
            return cls((program, *words[1:], "-c", command), timeout)
        if not os.path.isfile(script):
            raise PlanError(f"there is no script {script}")
        return cls((program, *words[1:], os.path.abspath(script)), timeout)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended, and what it said."""

    status: int
    """As `subprocess` has it: an exit code, or a signal with a minus."""
    timed_out: bool
    log: IO[bytes]
    """Its output and its errors, as they came."""

    @property
    def failure(self) -> str | None:
        """How it failed, if it did."""
        if self.timed_out:
            return "took too long and was killed"
        if self.status < 0:
            return f"was ended by {_signal_name(-self.status)}"
        return f"ended with exit code {self.status}" if self.status else None

    def last_line(self) -> str:
        """Give its last line that is not empty."""
        end = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(end - _TAIL, 0))
        lines = [line for line in self.log.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return printable(lines[-1].strip()[:200]) if lines else ""

    def said(self) -> bytes:
        """Give all that it said."""
        self.log.seek(0)
        return self.log.read()


class Commands:
    """Runs commands, each in a session of its own, and can end all of them with everything that they started."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._ended = False

    def run(self, folder: str) -> Outcome:
        """Run the command in a folder, to its end."""
        log: IO[bytes] = tempfile.TemporaryFile(prefix="tarproc-")  # noqa: SIM115  (its reader closes it)
        try:
            process = self._start(folder, log)
            try:
                timed_out = not _ended_within(process, self._recipe.timeout)
            finally:
                self._finish(process)
        except BaseException:
            log.close()
            raise
        return Outcome(process.returncode, timed_out, log)

    def end(self) -> None:
        """End all commands; no other is started from now on."""
        with self._lock:
            self._ended = True
            for process in self._running:
                _signal_group(process, signal.SIGKILL)

    def _start(self, folder: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._ended:
                raise InterruptedError("commands are not started any more")
            process = subprocess.Popen(  # noqa: S603 - what the user wrote, and nothing of what samples hold
                self._recipe.arguments,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process)
            return process

    def _finish(self, process: subprocess.Popen[bytes]) -> None:
        """End what is left of a command: itself, if it still runs, and what it left running."""
        # Not yet waited for, the command keeps its number, and with it that of its group, even if it has ended.
        if not _ended_within(process, 0):
            _signal_group(process, signal.SIGTERM)
            _ended_within(process, _GRACE)
        _signal_group(process, signal.SIGKILL)
        with self._lock:
            self._running.discard(process)
        process.wait()


def _ended_within(process: subprocess.Popen[bytes], seconds: float | None) -> bool:
    """Wait for a command to end, without taking note of it."""
    handle = os.pidfd_open(process.pid)
    try:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        return bool(waiting.poll(None if seconds is None else seconds * 1000))
    finally:
        os.close(handle)


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _signal_name(number: int) -> str:
    known = {int(each): each.name for each in signal.Signals}
    return known.get(number, f"signal {number}")
