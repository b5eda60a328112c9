"""What a run leaves behind, so that the next one goes on: which shards are finished, and what their commands said.

A shard is finished when its marker is there, which is written after its command has ended well. A run that was killed
leaves markers for what it had finished and nothing else to repair: whether somebody works is told by a file lock, which
the commands hold together with the run that started them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from shoal.cli._jobs._job import Job
from shoal.errors import PlanError
from shoal.files import exists, open_write

__all__ = ["State"]

_PATIENCE = 10.0  # seconds
_LOOKING = 16
_LONGEST = 150


class State:
    """The folder of a run."""

    def __init__(self, folder: Path, job: Job) -> None:
        self.folder, self._job = folder, job
        for name in ("done", "logs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._check_command()

    @contextmanager
    def held(self) -> Iterator[int]:
        """Keep others out; give the number of the open file that does so, for the commands to hold, too."""
        with (self.folder / "lock").open("ab") as file:
            end = time.monotonic() + _PATIENCE
            while not _locked(file.fileno()):
                if time.monotonic() > end:
                    text = f"somebody works with {self.folder}: another run, or what is left of one that was killed"
                    raise PlanError(f"{text}; wait for it, end it, or choose another folder with --state")
                time.sleep(0.1)
            yield file.fileno()

    def left(self, shards: Sequence[str]) -> list[str]:
        """List the shards that are not finished, or whose outputs are gone."""
        with ThreadPoolExecutor(_LOOKING, thread_name_prefix="shoal-look") as pool:
            finished = pool.map(self._is_finished, shards)
            return [shard for shard, done in zip(shards, finished, strict=True) if not done]

    def missing(self, shard: str) -> list[str]:
        """List the outputs of a shard that are not there."""
        return [name for name in self._job.outputs_of(shard) if not exists(name)]

    def finish(self, shard: str, *, seconds: float, attempts: int) -> None:
        """Write the marker of a shard."""
        record = {"shard": shard, "command": self._job.command(shard), "seconds": seconds, "attempts": attempts}
        _write(self._marker(shard), record)

    def log(self, shard: str) -> Path:
        """Name the log of a shard."""
        return self.folder / "logs" / f"{_file_name(shard)}.log"

    def _marker(self, shard: str) -> Path:
        return self.folder / "done" / f"{_file_name(shard)}.json"

    def _is_finished(self, shard: str) -> bool:
        return self._marker(shard).exists() and not self.missing(shard)

    def _check_command(self) -> None:
        path = self.folder / "command.json"
        wanted = {"command": list(self._job.words), "replace": self._job.mark}
        if not path.exists():
            _write(path, wanted)
        elif json.loads(path.read_bytes()) != wanted:
            text = f"{self.folder} has what another command left: {' '.join(json.loads(path.read_bytes())['command'])}"
            raise PlanError(f"{text}; choose another folder with --state, or remove it")


def _write(path: Path, record: object) -> None:
    with open_write(str(path)) as target:
        target.write(json.dumps(record, indent=1).encode())


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _file_name(shard: str) -> str:
    """Give a shard a name that any file may have.

    >>> _file_name("0007"), _file_name("a/b")
    ('0007', 'a%2Fb')
    """
    name = quote(shard, safe="", errors="surrogateescape")
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_LONGEST]}-{hashlib.sha256(shard.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
