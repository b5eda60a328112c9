"""The members of a gang as processes of this machine."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from shoal import settings
from shoal.engines._gang import Squad
from shoal.engines._member import Call
from shoal.engines._message import Message
from shoal.engines.local._interpreter import start_interpreter
from shoal.engines.local._nursery import Nursling, nursery

__all__ = ["LocalSquad"]

_PATIENCE = 1.0  # seconds


class LocalSquad(Squad):
    """Interpreters of their own, one for each member; they end when the connection with this process does.

    If it is said what they are to import, they are forks of one that has done so.
    """

    def __init__(self, gpus: float, modules: Sequence[str], fetch: Callable[[int], Message]) -> None:
        self._gpus, self._modules, self._fetch = gpus, modules, fetch
        self._processes: list[subprocess.Popen[bytes] | Nursling] = []

    def start(self, call: Call) -> None:
        """Start them all."""
        self._processes = []
        for rank in range(call.size):
            process = self._started(self._environment(rank, call.size))
            self._processes.append(process)
            assert process.stdin is not None
            with suppress(BrokenPipeError), process.stdin:  # one that dies at once will be missed
                process.stdin.write(pickle.dumps((call, rank)))

    def fetch(self, number: int) -> Message:
        """Give the message of a shard: members ask for them when they want them."""
        return self._fetch(number)

    def missing(self) -> str | None:
        """Tell of one that ended with an error."""
        for rank, process in enumerate(self._processes):
            if process.poll():
                return f"the worker process of rank {rank} ended with exit code {process.returncode} before it came"
        return None

    def stop(self) -> None:
        """Wait a moment for those that are about to end, and kill the others."""
        late = time.monotonic() + _PATIENCE
        for process in self._processes:
            try:
                process.wait(max(late - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _started(self, environment: dict[str, str]) -> subprocess.Popen[bytes] | Nursling:
        if self._modules and sys.platform == "linux":  # elsewhere libraries do not bear a fork
            return nursery(self._modules, environment).start(environment)
        program = "from shoal.engines._member import serve_input; serve_input()"
        return start_interpreter(program, stdin=subprocess.PIPE, env=environment)

    def _environment(self, rank: int, size: int) -> dict[str, str]:
        """Give each its part of the processors, if nobody else said how many, and its own devices."""
        share = str(max(settings.processors() // size, 1))
        threads = {"OMP_NUM_THREADS": share, "TF_NUM_INTRAOP_THREADS": share}
        if not self._gpus:
            return settings.environment(threads, {})
        mine = settings.gpus()[int(rank * self._gpus) : math.ceil((rank + 1) * self._gpus)]
        return settings.environment(threads, {"CUDA_VISIBLE_DEVICES": ",".join(mine)})
