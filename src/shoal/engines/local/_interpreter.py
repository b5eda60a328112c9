"""Fresh interpreters: never a fork that goes on with our threads' locks, and none that runs the user's script again."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

__all__ = ["start_interpreter"]


def start_interpreter(program: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start one that finds the same modules as this process; options are those of `subprocess.Popen`.

    The interrupt of Ctrl-C is blocked in it, or that would end it with a traceback while it starts; the program has to
    say what it wants to do with it.
    """
    path = [entry for entry in sys.path if isinstance(entry, str)]
    code = f"import sys; sys.path[:] = {path!r}; {program}"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen([sys.executable, "-c", code], **options)  # noqa: S603  (our own interpreter)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
