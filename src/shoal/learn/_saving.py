"""A model in one file, at any URL: the file is complete, or it is not there."""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

from shoal.abc import Framework
from shoal.errors import StateError, UrlError
from shoal.files import is_file, list_folder, local_path, open_read, open_write
from shoal.learn._checkpoints import Checkpoint

__all__ = ["SUFFIXES", "Packs", "newest_file", "read", "write"]

#: How files end that hold a model.
SUFFIXES = (".ckpt", ".safetensors")
_INFO = "shoal.json"
_NUMBER = re.compile(r"(?:epoch|iter)=(\d+)")


@runtime_checkable
class Packs(Protocol):
    """A framework with a kind of file that its own users know; for others it is a zip of what `dump` gives."""

    def packed(self, files: Mapping[str, bytes], info: Mapping[str, Any] | None, name: str) -> bytes:
        """Make one file of several; without ``info`` it is the model alone. ``name`` may say what kind it is."""

    def unpacked(self, data: bytes, name: str) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Give what `packed` got; there is no info with a model alone."""


def write(framework: Framework, files: Mapping[str, bytes], info: Mapping[str, Any] | None, url: str) -> str:
    """Write what a framework gave by `dump` into one file."""
    pack = framework.packed if isinstance(framework, Packs) else _zipped
    data = pack(files, info, url)
    with open_write(url) as target:
        target.write(data)
    return url


def read(framework: Framework, url: str) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Read such a file, or the folder of a checkpoint; give the files and what was told of them."""
    if not is_file(url):
        checkpoint = Checkpoint.read(url)
        files = checkpoint.files()
        return {name: files[name] for name in files if "/" not in name}, checkpoint.info  # not those of single workers
    with open_read(url) as file:
        data = bytes(file.read())
    if _is_ours(data):
        return _unzipped(data)
    if isinstance(framework, Packs):
        return framework.unpacked(data, url)
    raise StateError(f"{url} is no file that save wrote")


def newest_file(folder: str) -> str | None:
    """Find the file with a model that was written last; where nobody tells when, it is the highest number."""
    names: list[str] = []
    with suppress(UrlError):
        names = [name for name in list_folder(folder) if name.endswith(SUFFIXES)]
    urls = [f"{folder.rstrip('/')}/{name}" for name in names]
    return max(urls, key=_age, default=None)


def _age(url: str) -> tuple[int, list[int], str]:
    path, numbers = local_path(url), [int(number) for number in _NUMBER.findall(url.rpartition("/")[2])]
    return 0 if path is None else os.stat(path).st_mtime_ns, numbers, url


def _zipped(files: Mapping[str, bytes], info: Mapping[str, Any] | None, name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(_INFO, json.dumps(dict(info or {})))
        for part, data in files.items():
            archive.writestr(part, data)
    return buffer.getvalue()


def _is_ours(data: bytes) -> bool:
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return False
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return _INFO in archive.namelist()


def _unzipped(data: bytes) -> tuple[dict[str, bytes], dict[str, Any]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    return found, json.loads(found.pop(_INFO))
