"""Where environments lie: a folder for each recipe and version of Python, which is whole once its record is there.

A virtual environment cannot be moved, so it is built in its place. Whoever builds it, or removes it, holds the lock
beside it; a folder without a record and without a holder is what a build left that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from shoal import settings
from shoal.environments._recipe import Recipe, recipe, recipe_names
from shoal.errors import WorkerEnvironmentError

__all__ = ["Built", "built", "folder_for", "holding", "record", "remove"]

#: The record of a whole environment, in its folder.
_RECORD = "shoal-environment.json"


@dataclass(frozen=True, slots=True)
class Built:
    """An environment that was built here, or that somebody is building.

    >>> made = Built("tiny", Path("/somewhere/tiny-py311-0123"), "building")
    >>> made.python, made.version
    ('/somewhere/tiny-py311-0123/bin/python', '')
    """

    name: str
    folder: Path
    state: Literal["complete", "building", "unfinished"]
    recipe: Recipe | None = None
    version: str = ""
    """Of its Python, such as ``3.11.7``; empty while it is not complete."""
    packages: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_outdated(self) -> bool:
        """Whether Shoal has another recipe of this name by now."""
        digest = self.folder.name.rpartition("-")[2]
        return self.name in recipe_names() and recipe(self.name).digest != digest

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.folder / "bin" / "python")

    @property
    def when(self) -> float:
        """When it was complete, in seconds."""
        return (self.folder / _RECORD).stat().st_mtime if self.state == "complete" else 0.0

    def size(self) -> int:
        """Count the bytes that it takes on the disk."""
        total = 0
        for folder, _, files in os.walk(self.folder):
            for name in files:
                with contextlib.suppress(OSError):  # it may be going away
                    total += os.lstat(os.path.join(folder, name)).st_blocks * 512
        return total


def folder_for(made: Recipe, python: str) -> Path:
    """Say where the environment of a recipe is, for a Python such as ``3.11``."""
    return _home() / f"{made.name}-py{python.replace('.', '')}-{made.digest}"


def built(name: str | None = None) -> list[Built]:
    """List the environments that are here, or those of one name.

    >>> built("never-heard-of")
    []
    """
    try:
        folders = sorted(path for path in _home().iterdir() if path.is_dir())
    except FileNotFoundError:
        return []
    named = ((folder, folder.name.rsplit("-", 2)) for folder in folders)
    return [_found(folder, parts[0]) for folder, parts in named if len(parts) == 3 and name in (None, parts[0])]


def remove(name: str | None, *, outdated: bool = False) -> list[Path]:
    """Remove all environments of a name, or only those for which Shoal has another recipe by now; give their folders.

    Without a name those of all names are meant.

    >>> remove("never-built")
    []
    """
    removed = []
    for each in [each for each in built(name) if each.is_outdated or not outdated]:
        with holding(each.folder, wait=False) as holder:
            if holder is None:
                raise WorkerEnvironmentError(f"the environment {each.name!r} is just being built, in {each.folder}")
            clear(each.folder)
            each.folder.with_name(f"{each.folder.name}.log").unlink(missing_ok=True)
            _lock_file(each.folder).unlink(missing_ok=True)
        removed.append(each.folder)
    return removed


def clear(folder: Path) -> None:
    """Remove what is in a folder's place; its record first, so that nobody takes the rest for whole."""
    (folder / _RECORD).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def record(folder: Path, made: Recipe, version: str, packages: Mapping[str, str]) -> None:
    """Write down that an environment is whole, and what is in it."""
    written = {"recipe": made.as_dict(), "version": version, "packages": dict(packages)}
    private = folder / f"{_RECORD}.new"
    private.write_text(json.dumps(written, indent=2), encoding="utf-8")
    private.replace(folder / _RECORD)


@contextlib.contextmanager
def holding(folder: Path, *, wait: bool = True) -> Iterator[int | None]:
    """Hold the lock of a folder for the length of a block; None if somebody else does, and one need not wait."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    while True:
        file = os.open(_lock_file(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            yield None
            return
        except BaseException:
            os.close(file)
            raise
        if _is_at(_lock_file(folder), file):
            break
        os.close(file)  # whoever held it has removed it, and the next one must find the same as we
    try:
        yield file
    finally:
        os.close(file)


def _home() -> Path:
    return settings.current().environments.absolute()


def _found(folder: Path, name: str) -> Built:
    try:
        known = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        return Built(
            name, folder, "complete", Recipe.from_dict(known["recipe"]), str(known["version"]), dict(known["packages"])
        )
    except (FileNotFoundError, NotADirectoryError):
        return Built(name, folder, "building" if _is_held(folder) else "unfinished")
    except (ValueError, KeyError, TypeError, AttributeError, WorkerEnvironmentError):
        return Built(name, folder, "unfinished")  # a record that cannot be read is none


def _is_held(folder: Path) -> bool:
    try:
        file = os.open(_lock_file(folder), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")
