"""Checkpoints: all that a training needs to go on, in one commit.

A checkpoint is a folder with files and a manifest, which is written last and says how long each file is, and its
checksum. A folder without one is none; so a writer may be killed at any byte.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from shoal.errors import StateError, UrlError
from shoal.files import list_folder, local_path, open_read, open_write, remove, remove_folder

__all__ = ["Checkpoint", "Checkpoints", "absolute", "latest_checkpoint", "new_run"]

_MANIFEST = "manifest.json"
_NAME = re.compile(r"step-(\d{12})")
_RUN = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d")
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was kept after a step.

    >>> url = Checkpoints("memory://described").save(7, {"model.pt": b"weights"}, {"epoch": 1})
    >>> checkpoint = Checkpoint.read(url)
    >>> checkpoint.step, checkpoint.info, checkpoint.files()
    (7, {'epoch': 1}, {'model.pt': b'weights'})
    """

    url: str
    step: int
    info: dict[str, Any]
    """What is told in the manifest: epoch, position in the data, history."""
    sums: dict[str, str]

    @classmethod
    def read(cls, url: str) -> Checkpoint:
        """Read the manifest of a checkpoint."""
        try:
            manifest = json.loads(_read(f"{url}/{_MANIFEST}"))
            for name in manifest["files"]:
                _check(name)
            return cls(url, manifest["step"], manifest["info"], manifest["files"])
        except (UrlError, OSError, ValueError, KeyError, TypeError) as error:
            raise StateError(f"{url} is no checkpoint, or not a complete one: {error}") from error

    def files(self) -> dict[str, bytes]:
        """Read all files, and compare them with their checksums."""
        found = {}
        for name, expected in self.sums.items():
            data = _read(f"{self.url}/{name}")
            if sha256(data).hexdigest() != expected:
                raise StateError(f"{name} of the checkpoint {self.url} is not what was written; take an older one")
            found[name] = data
        return found


class Checkpoints:
    """The checkpoints in a folder, which may be at any URL; the last few are kept.

    >>> kept = Checkpoints("memory://kept", keep=2)
    >>> for step in (10, 20, 30):
    ...     _ = kept.save(step, {"model.pt": b"weights"}, {"epoch": step // 10})
    >>> kept.latest().step, kept.latest(10)
    (30, None)
    """

    def __init__(self, url: str, keep: int = 3) -> None:
        self.url, self._keep = url.rstrip("/"), keep

    def save(self, step: int, files: Mapping[str, bytes], info: Mapping[str, Any]) -> str:
        """Keep files and a description; what is older than the last few is removed."""
        home = f"{self.url}/step-{step:012d}"
        with suppress(UrlError, OSError):
            remove(f"{home}/{_MANIFEST}")  # of one that was made before and begins anew
        for name, data in files.items():
            _write(f"{home}/{name}", data)
        sums = {name: sha256(data).hexdigest() for name, data in files.items()}
        manifest = {"format": _FORMAT, "step": step, "files": sums, "info": dict(info)}
        _write(f"{home}/{_MANIFEST}", json.dumps(manifest).encode())
        for old in self._steps()[: -self._keep]:
            home_of_old = f"{self.url}/step-{old:012d}"
            with suppress(UrlError):
                remove(f"{home_of_old}/{_MANIFEST}")  # first: half of a checkpoint is none
            remove_folder(home_of_old, recursive=True)
        return home

    def latest(self, only: int | None = None) -> Checkpoint | None:
        """Find the last one that is complete, or ``only`` the one after that step."""
        for step in reversed(self._steps() if only is None else [only]):
            with suppress(StateError):
                return Checkpoint.read(f"{self.url}/step-{step:012d}")
        return None

    def _steps(self) -> list[int]:
        with suppress(UrlError, OSError):
            return sorted(int(match[1]) for match in map(_NAME.fullmatch, list_folder(self.url)) if match)
        return []


def absolute(url: str | os.PathLike[str]) -> str:
    """Say where something is, whatever folder one is in."""
    path = local_path(url)
    return os.fspath(url) if path is None else os.path.abspath(path)


def new_run(folder: str) -> str:
    """Name the folder of another training: the time at which it begins."""
    now, taken = time.strftime("%Y-%m-%d_%H-%M-%S"), set(_names(folder))
    names = (now, *(f"{now}.{number:03d}" for number in range(1, 1000)))
    return f"{folder.rstrip('/')}/{next(name for name in names if name not in taken)}"


def latest_checkpoint(folder: str, step: int | None = None) -> Checkpoint | None:
    """Find the last complete checkpoint of all trainings in a folder, or the last one after that step."""
    for name in sorted(_names(folder), reverse=True):
        found = Checkpoints(f"{folder}/{name}").latest(step)
        if found is not None:
            return found
    return Checkpoints(folder).latest(step)


def _check(name: str) -> None:
    parts = name.split("/")
    if not all(parts) or {".", ".."} & set(parts) or "\\" in name:
        raise ValueError(f"{name!r} is no name of a file in it")


def _names(folder: str) -> list[str]:
    with suppress(UrlError, OSError):
        return [name for name in list_folder(folder) if _RUN.match(name)]
    return []


def _read(url: str) -> bytes:
    with open_read(url) as file:
        return bytes(file.read())


def _write(url: str, data: bytes) -> None:
    with open_write(url) as target:
        target.write(data)
