"""A command as a task of an engine: it ends by itself, with its worker, or when a file appears."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from functools import partial

from shoal.cli._jobs._execute import Outcome, execute
from shoal.cli._jobs._groups import end_groups

__all__ = ["execute_elsewhere"]

#: Seconds between two looks for the sign.
_LOOK = 0.5


def execute_elsewhere(command: Sequence[str], folder: str, sign: str) -> Outcome:
    """Run a command in the folder of the one who asked for it, until a file with the name ``sign`` appears."""
    if not os.path.isdir(folder):
        return Outcome(1, 0.0, f"the folder {folder} is not there on {os.uname().nodename}, which was to run it\n")
    if os.path.exists(sign):
        return Outcome(-signal.SIGINT, 0.0)
    ended = threading.Event()
    with tempfile.TemporaryFile("a+b") as log:
        try:
            return execute(command, log, folder=folder, started=partial(_watch, sign, ended))
        finally:
            ended.set()


def _watch(sign: str, ended: threading.Event, process: subprocess.Popen[bytes]) -> None:
    threading.Thread(target=_look, args=(sign, ended, process), name="shoal-run-look", daemon=True).start()


def _look(sign: str, ended: threading.Event, process: subprocess.Popen[bytes]) -> None:
    while not ended.wait(_LOOK):
        if os.path.exists(sign):
            end_groups([process])
