"""Feeders as processes that can be killed, and what it means that batches are the same."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.engine import same
from support.serving import started_server

__all__ = ["TOKEN", "FeederProcess", "feeder_processes", "same_batches"]

TOKEN = "a token that only these tests know"
SERVE = "from shoal.cli.serve import command; from shoal.cli._tool import main; main(command)"
_SECONDS = 120.0


class FeederProcess:
    """``shoal serve`` in a process of its own."""

    def __init__(self, what: str, folder: Path, *options: str, host: str = "127.0.0.1") -> None:
        self._what, self._options, self._host, self.port = what, options, host, 0
        self._token, self.errors = folder / "token", folder / f"serve-{id(self)}.txt"
        self._token.write_text(TOKEN)
        self.start()

    def start(self) -> None:
        """Start it; after the first time at the same port."""
        listen = ["--listen", f"{self._host}:{self.port}", "--token-file", str(self._token)]
        command = [sys.executable, "-c", SERVE, self._what, *listen, *self._options]
        self.process, self.url = started_server(command, self.errors)
        self.port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """End it as a power failure does."""
        self.end(signal.SIGKILL)

    def send(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, number)

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal, and wait."""
        if self.process.poll() is None:
            self.send(number)
        code = self.process.wait(_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextmanager
def feeder_processes(count: int, what: str, folder: Path, *options: str) -> Iterator[list[FeederProcess]]:
    """Have so many feeders, each at a loopback address of its own, as if they were on several hosts."""
    feeders: list[FeederProcess] = []
    try:
        for number in range(count):
            feeders.append(FeederProcess(what, folder, *options, host=f"127.0.0.{number + 2}"))
        yield feeders
    finally:
        for feeder in feeders:
            if feeder.process.poll() is None:
                feeder.send(signal.SIGCONT)
            feeder.kill()


def same_batches(fed: Any, local: Any) -> int:
    """Make sure that two loaders give the same; count the batches."""
    count = 0
    batches = iter(fed)
    for expected in local:
        got = next(batches, None)
        assert got is not None, f"batch {count} did not come"
        assert same(got, expected), f"batch {count}: {got} is not {expected}"
        count += 1
    assert next(batches, None) is None
    return count
