"""Stores of several hosts: folders, each with a server in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from shoal.store import RemoteStore, connect
from support.serving import started_server

__all__ = ["SERVE", "Host"]

SERVE = "from shoal.cli._store_serve import serve; from shoal.cli._tool import main; main(serve)"
_SECONDS = 120.0


class Host:
    """A store with its server."""

    def __init__(self, *options: str, memory: str = "600MB") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="shoal-host-", dir="/dev/shm"))
        self.store = connect(self.folder, memory=memory, spill=False)
        self.errors = self.folder / "serve.txt"
        self.port = 0
        self.start(*options)

    def start(self, *options: str) -> None:
        """Start the server; after the first time at the same port."""
        command = [sys.executable, "-c", SERVE, "--store", str(self.folder), "--port", str(self.port), *options]
        self.process, self.url = started_server(command, self.errors)
        self.port = int(self.url.rpartition(":")[2])

    @property
    def token(self) -> str:
        return (self.folder / "token").read_text()

    def joining(self) -> list[str]:
        """Say the options with which another one joins this one."""
        return ["--join", self.url, "--join-token-file", str(self.folder / "token")]

    def remote(self, **options: Any) -> RemoteStore:
        found: RemoteStore = connect(self.url, token=self.token, **options)
        return found

    def kill(self) -> None:
        """End the server as a power failure does."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End the server properly."""
        return self._end(signal.SIGTERM)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, number: int) -> int:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        code = self.process.wait(_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code
