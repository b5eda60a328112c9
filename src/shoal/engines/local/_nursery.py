"""Processes that start in a moment: forks of one that has imported already what they need."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import IO

from shoal._ending import ends_with_program
from shoal._forks import Forks
from shoal.engines.local._interpreter import start_interpreter
from shoal.engines.local._nurse import DIED, KILL, START, receive, send

__all__ = ["Nursery", "Nursling", "nursery"]

#: How many nurseries a process has: those of trainings on one worker and on several, say.
_MOST = 2
_LOOK = 0.01  # seconds
#: What libraries look at when they are loaded: a nursery has it from its beginning.
_EARLY = ("OMP_", "MKL_", "OPENBLAS_", "LD_", "TF_", "KERAS_")


class Nursling:
    """A process that a nursery has forked; as much of a `subprocess.Popen` as is needed."""

    def __init__(self, home: Nursery, number: int, stdin: IO[bytes]) -> None:
        self._home, self._number = home, number
        self.stdin = stdin
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Give its exit code, if it has ended."""
        if self.returncode is None:
            self.returncode = self._home.ended(self._number)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended."""
        late = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if late is not None and time.monotonic() > late:
                raise subprocess.TimeoutExpired("a worker", timeout or 0)
            time.sleep(_LOOK)
        return code

    def kill(self) -> None:
        """Kill it."""
        self._home.kill(self._number)


class Nursery:
    """A process that imports modules, and forks others; it ends with this one."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._made = 0
        self._codes: dict[int, int] = {}
        with _forks().lock:
            self._end, other = socket.socketpair()
            number = other.fileno()
            program = f"from shoal.engines.local._nurse import attend; attend({number}, {list(modules)!r})"
            options = {"pass_fds": (number,), "stdin": subprocess.DEVNULL, "env": dict(environment)}
            self._process: subprocess.Popen[bytes] | None = start_interpreter(program, **options)
            other.close()
            _forks().members.add(self)
        ends_with_program(self)

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked for more."""
        return self._process is not None and self._process.poll() is None

    def start(self, environment: Mapping[str, str]) -> Nursling:
        """Start a process that serves as the member of a gang, as told through its standard input."""
        ours, theirs = os.pipe()[::-1]
        try:
            with self._lock, suppress(BrokenPipeError, ConnectionResetError):  # it will be missed
                self._made += 1
                number, path = self._made, [entry for entry in sys.path if isinstance(entry, str)]
                send(self._end, START, (number, dict(environment), _folder(), path), [theirs, 1, 2])
        finally:
            os.close(theirs)
        return Nursling(self, number, os.fdopen(ours, "wb"))

    @property
    def is_idle(self) -> bool:
        """Whether all that it has forked have ended."""
        return all(self.ended(number) is not None for number in range(1, self._made + 1))

    def ended(self, number: int) -> int | None:
        """Give the exit code of a process that has ended; if the nursery has, nobody knows of any, and it is 1."""
        with self._lock, suppress(EOFError, OSError):
            while select.select([self._end], [], [], 0)[0]:
                kind, (who, code), _ = receive(self._end)
                assert kind == DIED
                self._codes[who] = code
        return self._codes.get(number, None if self.is_alive else 1)

    def kill(self, number: int) -> None:
        """Kill a process, if it has not ended."""
        with self._lock, suppress(OSError):
            send(self._end, KILL, number)

    def close(self) -> None:
        """End it; processes that it has forked go on."""
        self._end.close()
        process, self._process = self._process, None
        if process is not None:
            process.kill()  # it may be importing, and has nothing to lose
            process.wait()

    def forked(self) -> None:
        """Belong to the parent of this process, and be of no use here."""
        self._end.close()
        if self._process is not None:
            self._process.returncode = 0
        self._process = None


def nursery(modules: Sequence[str], environment: Mapping[str, str]) -> Nursery:
    """Find the nursery with these modules, or start one."""
    early = tuple(sorted((name, text) for name, text in environment.items() if name.startswith(_EARLY)))
    kept, key = _kept(), (tuple(modules), early)
    with _forks().lock:
        found = kept.pop(key, None)
        if found is not None and not found.is_alive:
            found.close()
            found = None
        kept[key] = found = found or Nursery(modules, environment)
        for other, old in list(kept.items())[:-_MOST]:
            if old.is_idle:
                kept.pop(other).close()
    return found


def _folder() -> str:
    with suppress(OSError):  # it may have been removed
        return os.getcwd()
    return "/"


@cache
def _kept() -> dict[tuple[object, ...], Nursery]:
    """Those of this process; the one that was used last comes last."""
    return {}


@cache
def _forks() -> Forks:
    return Forks()
