"""Run a command to its end, with its words in a log."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

__all__ = ["Outcome", "closing", "execute", "opening"]

#: Bytes of the end of a log that are looked at, or sent from another machine.
_TAIL = 2**16

#: Called with the process once it runs.
Started: TypeAlias = "Callable[[subprocess.Popen[bytes]], object]"

#: Becomes the command, after it has asked the system to be ended when its parent is (PR_SET_PDEATHSIG is 1). A function
#: called between fork and exec could do it, too, but not in a process that has threads. Python ignores SIGPIPE,
#: and workers of engines and whoever runs in the background may block or ignore SIGINT; what it becomes must not.
_LEASH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
for number in (signal.SIGPIPE, signal.SIGINT):
    signal.signal(number, signal.SIG_DFL)
if os.getppid() != int(sys.argv[1]):
    os._exit(143)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    print(f"{sys.argv[2]}: {error.strerror}", file=sys.stderr)
    os._exit(127)
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    code: int
    """Its exit code; below 0 the signal that ended it."""
    seconds: float
    tail: str = ""
    """The end of what it said."""

    @property
    def reason(self) -> str:
        """What there is to say about a failure, in a line.

        >>> Outcome(1, 0.5, "first\\nno such sample\\n").reason, Outcome(-9, 0.5).reason
        ('ended with 1: no such sample', 'ended by SIGKILL')
        """
        known = {int(each): each.name for each in signal.Signals}
        how = f"ended with {self.code}" if self.code >= 0 else f"ended by {known.get(-self.code, -self.code)}"
        words = next((line.strip() for line in reversed(self.tail.splitlines()) if line.strip()), "")
        return f"{how}: {words[:200]}" if words else how


def execute(
    command: Sequence[str],
    log: BinaryIO,
    *,
    folder: str | None = None,
    keep: Sequence[int] = (),
    started: Started = id,
) -> Outcome:
    """Run a command in a process group of its own, in a folder, and append what it says to a log.

    It ends with this process, however that ends. ``keep`` are open files that it holds, too.
    """
    log.seek(0, os.SEEK_END)
    place, begun = log.tell(), time.monotonic()
    leash = [sys.executable, "-I", "-S", "-c", _LEASH, str(os.getpid()), *command]
    with subprocess.Popen(  # noqa: S603  (the command is the user's own)
        leash, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0, pass_fds=keep
    ) as process:
        started(process)
        code = process.wait()
    return Outcome(code, time.monotonic() - begun, _tail(log, place))


def opening(command: Sequence[str]) -> bytes:
    """Say in a log what begins, and when."""
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"# {when} {shlex.join(command)}\n".encode("utf-8", "surrogateescape")


def closing(outcome: Outcome) -> bytes:
    """Say in a log how it ended.

    >>> closing(Outcome(1, 2.5))
    b'# ended with 1 after 2.5 s\\n'
    """
    return f"# ended with {outcome.code} after {outcome.seconds:.1f} s\n".encode()


def _tail(log: BinaryIO, place: int) -> str:
    end = log.seek(0, os.SEEK_END)
    log.seek(max(place, end - _TAIL))
    return log.read(_TAIL).decode("utf-8", "replace")
