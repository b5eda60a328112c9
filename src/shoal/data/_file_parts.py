"""Parts of files: what one shard of a table is read from."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from shoal import files
from shoal.errors import UrlNotFoundError

__all__ = ["FilePart", "Form", "head_of", "part_bytes", "table_files"]

#: What is looked at to see what columns and types a file has.
HEAD_BYTES = 2**18
_NO_FOLDERS = ("-", "pipe", "http", "https")


@dataclass(frozen=True, slots=True)
class FilePart:
    """Some bytes of a file, or some groups of its rows; all of it without an end."""

    url: str
    start: int = 0
    stop: int | None = None
    first: int = 0
    """The line, or the row, that it begins with."""

    def __str__(self) -> str:
        return files.display(self.url)


class Form(Protocol):
    """A format of tables, with the options that a user gave."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The ends of names of files that a folder stands for."""

    @property
    def unit(self) -> str:
        """What `FilePart.first` counts: rows or lines."""

    @property
    def squeeze(self) -> bool:
        """Whether a frame of one column becomes a series."""

    @property
    def as_text(self) -> bool:
        """Whether a column is text if it holds values of several kinds; else it holds objects."""

    def parts(self, url: str) -> list[FilePart] | None:
        """Say what shards are made of a file, if that can be told without reading it."""

    def read(self, part: FilePart, texts: list[Any]) -> Any:
        """Read a part as a frame; some columns as text, whatever they look like."""

    def head(self, part: FilePart) -> Any:
        """Read the beginning of a part, to see what it has."""


def table_files(paths: Any, suffixes: tuple[str, ...]) -> list[str]:
    """List the files of a path, a folder, a wildcard, or a list of these; not those that begin with . or _."""
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    try:
        urls = [url for path in given for url in _expanded(os.fspath(path), suffixes)]
    except UrlNotFoundError as error:
        raise UrlNotFoundError(f"No such file or directory: {error}", url=error.url) from error
    found = [url for url in urls if not url.rsplit("/", 1)[-1].startswith(("_", "."))]
    if not found:
        shown = files.display(str(paths))
        raise UrlNotFoundError(f"No such file or directory: there is nothing to read at {shown}", url=shown)
    return found


def _expanded(path: str, suffixes: tuple[str, ...]) -> list[str]:
    """Expand a path; in a store, a name that has no ending and no slash behind it is tried as a folder first."""
    is_remote = files.local_path(path) is None and files.scheme(path) not in _NO_FOLDERS
    if is_remote and re.fullmatch(r"[\w-]+", path.rsplit("/", 1)[-1]):
        with suppress(UrlNotFoundError):
            return files.expand(f"{path}/", suffixes=suffixes)
    return files.expand(path, suffixes=suffixes)


def part_bytes(part: FilePart) -> bytes:
    """Read the bytes of a part."""
    with files.open_read(part.url, offset=part.start) as file:
        return file.read() if part.stop is None else file.read(part.stop - part.start)


def head_of(url: str, size: int = HEAD_BYTES) -> bytes:
    """Read the beginning of a file."""
    with files.open_read(url) as file:
        return file.read(size)
