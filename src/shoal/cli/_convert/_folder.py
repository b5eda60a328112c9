"""Folders of files out of samples: the key is a path, each field a file of its own."""

from __future__ import annotations

import os
from typing import Any

from shoal.abc import Sample
from shoal.cli._convert._fields import as_tar
from shoal.errors import EncodeError, PlanError
from shoal.files import local_path, open_write
from shoal.shards import FileField, split_name
from shoal.shards.codecs import encode

__all__ = ["FolderWriter"]


class FolderWriter:
    """Writes files below a folder and nowhere else; each appears when it is complete."""

    def __init__(self, url: str, *, overwrite: bool = False) -> None:
        path = local_path(url)
        if path is None:
            raise PlanError(f"{url} is no folder of this machine, and samples are put as files into no other")
        os.makedirs(path, exist_ok=True)
        self._folder, self._root, self._overwrite = path, os.path.realpath(path), overwrite

    def write(self, sample: Sample) -> int:
        """Write the files of a sample."""
        fields = as_tar(sample)
        key = fields.pop("__key__")
        if not fields:
            raise EncodeError("the sample has no fields to write, so it would be lost", key=key)
        return sum(self._put(key, name, value) for name, value in fields.items())

    def close(self) -> None:
        """Do nothing: all files are complete."""

    def abort(self) -> None:
        """Leave what is complete."""

    def _put(self, key: str, name: str, value: Any) -> int:
        path = self._path(key, name)
        if not self._overwrite and os.path.lexists(path):
            raise PlanError(f"{path} is there already; choose another folder, or say --overwrite")
        data = value if isinstance(value, FileField) else encode(name, value)
        with open_write(path) as target:
            for piece in data.pieces() if isinstance(data, FileField) else [data]:
                target.write(piece)
        return len(data)

    def _path(self, key: str, name: str) -> str:
        """Give the file of a field; one outside of the folder, or that would be read back as another, is refused."""
        parts = f"{key}.{name}".split("/")
        if "/" in name or not all(parts) or not {"..", "."}.isdisjoint(parts) or "\0" in f"{key}{name}":
            text = "the key and the field make no path inside of a folder"
            raise EncodeError(f"{text}: {key}.{name}", key=key, field=name)
        if split_name(f"{key}.{name}") != (key, name.lower()):
            raise EncodeError(f"the file {key}.{name} would be read back as another sample", key=key, field=name)
        path = os.path.join(self._folder, *parts)
        if os.path.commonpath([self._root, os.path.realpath(os.path.dirname(path))]) != self._root:
            raise EncodeError(f"a link in {self._folder} leads outside of it", key=key, field=name)
        return path
