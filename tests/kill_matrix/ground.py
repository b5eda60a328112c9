"""Where cells are run: their data, an S3 server, one engine at a time, and an environment for all processes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import fsspec

import shoal
from kill_matrix.data import STEPS, Place, dataset_of, made, numbers_of, stored
from kill_matrix.judge import Reference
from kill_matrix.ranks import Task, digest_of_rows, loader_of
from shoal.testing import faults

__all__ = ["MARK", "Ground", "ground"]

TESTS = Path(__file__).parents[1]
MARK = "KILL_MATRIX_RUN"
_SHARED = "/dev/shm"


@dataclass
class Ground:
    """What all cells share."""

    folder: Path
    place: Place
    s3: faults.S3Server
    references: dict[tuple[str, bool], Reference] = field(default_factory=dict)
    engine: str = ""

    def on(self, engine: str) -> None:
        """Let an engine run things; another one ends."""
        if engine != self.engine:
            shoal.shutdown()
            shoal.init(engine, workers=4)
            self.engine = engine

    def reference(self, source: str, place: Place, *, skip: bool = False) -> Reference:
        """Run a plan alone, in this process, with nothing wrong and without workers."""
        if (source, skip) not in self.references:
            calm = replace(place, feeders=(), cache=str(self.folder / "calm") if source == "tar-s3" else None)
            task = Task(source, calm, "", "", None, skip=skip, seconds=0)
            loader = loader_of(task, 0, 1, workers=0)
            steps = tuple(tuple(digest_of_rows(batch)) for batch in loader)
            found = Reference(steps, loader.order_digest())
            loader.close()
            if skip:  # of something that is damaged just now
                return found
            _check(source, task.place, found)
            self.references[source, skip] = found
        return self.references[source, skip]


def _check(source: str, place: Place, found: Reference) -> None:
    """Make sure that the undisturbed run has each sample once; numbers are worked out by hand."""
    expected = numbers_of(source)
    count = sum(map(len, found.steps))
    assert len(found.steps) < STEPS, f"{source} has more steps than are asked for"
    if expected:
        loader = dataset_of(source, place).loader(32, workers=0)
        got = sorted((int(c), int(a)) for batch in loader for c, a in _numbers(batch))
        assert got == sorted(expected), f"{source}: an undisturbed run has other samples"
        assert count == len(expected)
    assert len({row for step in found.steps for row in step}) == count, f"{source} has the same row twice"


def _numbers(batch: dict[str, object]) -> Iterator[tuple[object, object]]:
    classes: list[object] = list(batch["cls"])  # type: ignore[call-overload]
    again = batch.get("again", [0] * len(classes))
    mask = batch.get("__mask__", [True] * len(classes))
    rows = zip(classes, again, mask, strict=True)  # type: ignore[call-overload]
    return ((one, other) for one, other, real in rows if real)


@contextmanager
def ground(folder: Path) -> Iterator[Ground]:
    """Prepare everything, and take it away at the end."""
    data, shelf = folder / "data", Path(tempfile.mkdtemp(prefix="kill-matrix-", dir=_SHARED))
    made(data)
    number = stored(shelf)
    with faults.s3_server() as s3, _environment(folder, s3):
        bucket = fsspec.filesystem("s3")
        bucket.mkdir("matrix")
        bucket.put(f"{data}/tar/", "matrix/tar/", recursive=True)
        place = Place(str(data), bucket="s3://matrix", shelf=str(shelf), stored=number)
        try:
            yield Ground(folder, place, s3)
        finally:
            shoal.shutdown()
            shutil.rmtree(shelf, ignore_errors=True)


@contextmanager
def _environment(folder: Path, s3: faults.S3Server) -> Iterator[None]:
    """Let all processes that are started from here on know where things are, and be in no hurry to give up."""
    (folder / "tmp").mkdir()
    paths = [str(TESTS), str(Path(shoal.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    changes = {
        **s3.environment,
        "PYTHONPATH": os.pathsep.join(paths),
        "SHOAL_BACKOFF": "0.02",
        "SHOAL_TIMEOUT": "2",
        "SHOAL_RETRIES": "12",  # several clients share one count of answers, and one of them may be unlucky
        "SHOAL_CACHE": str(folder / "cache"),
        "KILL_MATRIX_FOLDER": str(folder / "data"),
        "RAY_worker_niceness": "0",
        "TMPDIR": str(folder / "tmp"),
        MARK: folder.name,
    }
    before = dict(os.environ)
    os.environ.update(changes)
    tempfile.tempdir = None
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        tempfile.tempdir = None


def noted(folder: Path) -> list[dict[str, object]]:
    """Read lines that may be written just now."""
    return [json.loads(line) for line in folder.read_text().splitlines(keepends=True) if line.endswith("\n")]
