"""Ends commands together with all that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["end_groups"]

#: How commands are asked to end, and how many seconds each way gets before the next one.
_WAYS = ((signal.SIGINT, 3.0), (signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0))


def end_groups(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End the groups that processes are the first of, gently at first."""
    for way, patience in _WAYS:
        for process in _alive(processes):
            _tell(process, way)
        end = time.monotonic() + patience
        for process in _alive(processes):
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(end - time.monotonic(), 0.0))
    for process in processes:  # the first of a group has ended, but not always the rest of it
        _tell(process, signal.SIGKILL)


def _alive(processes: Sequence[subprocess.Popen[bytes]]) -> list[subprocess.Popen[bytes]]:
    return [process for process in processes if process.poll() is None]


def _tell(process: subprocess.Popen[bytes], way: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, way)
