"""Many processes use a small store at random while they are killed: every read is right, and nothing is left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from shoal.errors import ObjectNotFoundError
from shoal.store import Store, connect
from support.store import environment, files, own_store
from support.store_values import verified

WORKERS = 8
SECONDS = 75.0 if os.environ.get("SHOAL_TEST_PROFILE") == "soak" else 15.0
PERSISTED = 40


class Crew:
    """The program that has the workers; what these say goes to a file."""

    def __init__(self, store: Store, log: IO[bytes]) -> None:
        command = [sys.executable, "-W", "error", "-m", "support.store_worker", store.folder.path, str(PERSISTED)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(),
            start_new_session=True,
        )
        self.said: list[str] = []
        self._pids: list[int] = []
        self._count = 0

    def __enter__(self) -> Crew:
        for _ in range(WORKERS):
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()

    def start(self) -> None:
        self._tell(f"start {self._count}")
        self._count += 1
        self._pids.append(int(self._answer()))

    def kill_one(self) -> None:
        pid = self._pids.pop(random.randrange(len(self._pids)))
        self._tell(f"kill {pid}")
        assert int(self._answer()) == signal.SIGKILL, "it has ended by itself"

    def end(self) -> int:
        self._tell("end")
        try:
            out, _ = self._process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGUSR1)  # each of them writes to the log what it is doing
            raise
        self.said += out.splitlines()
        return self._process.returncode

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _answer(self) -> str:
        """Read the next line that is a number: others are of workers that have something to say."""
        assert self._process.stdout is not None
        while not (line := self._process.stdout.readline().strip()).isdecimal():
            assert self._process.poll() is None, f"the program has ended: {self.said}"
            self.said.append(line)
        return line


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
def test_every_read_is_right_and_nothing_leaks_while_processes_are_killed(disk: bool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with own_store("32MB", spill=str(tmp_path / "disk") if disk else False) as store, log.open("wb") as out:
        with Crew(store, out) as crew:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                time.sleep(1.0)
                crew.kill_one()
                crew.start()
            code = crew.end()
        said = "\n".join([*crew.said, log.read_text()])
        assert "WRONG" not in said, said
        assert (code, log.read_text()) == (0, "")
        done = [int(line.split()[1]) for line in crew.said if line.startswith("done")]
        assert len(done) == WORKERS
        assert sum(done) > 0  # how much they do in that time is up to the machine
        print(f"the last {WORKERS} of {crew._count} workers did {sum(done)} things; {store.status()}")
        nothing_is_left(store)


def nothing_is_left(store: Store) -> None:
    """Only what was persisted is there, all of it can be read, and when it is deleted all memory is free."""
    store.collect()
    status = store.status()
    assert (status.zombies, status.aside, status.viewers, status.holders) == (0, 0, {}, ())
    assert status.objects == status.persisted
    for number in store.ids():
        with suppress(ObjectNotFoundError):  # a member of it was deleted
            verified(store.get(number))
    store.clear()
    status = connect(store.folder.path).status()
    assert (status.objects, status.names, status.memory_usage, status.aside) == (0, 0, 0, 0)
    assert (status.zombies, status.spilled, status.spilled_bytes) == (0, 0, 0)
    assert [path for path in files(*store.folder.roots) if "/.new-" not in path] == []
