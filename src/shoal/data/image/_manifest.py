"""Which files a table is made of.

The list is one small file that is written last, and as a whole. So a table is the one that was there before until the
new one is complete, in stores that know no renaming, too; files that are in no list are of no table.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from shoal import files
from shoal.data.image._schema import SchemaField, schema_from_json, schema_to_json
from shoal.errors import CorruptShardError, ShoalError, UrlNotFoundError

__all__ = ["METADATA", "Chunk", "Manifest", "find_manifest", "read_manifest", "write_manifest"]

METADATA = "_orca_metadata"
_VERSION = 1
#: Only what looks like a chunk is ever read, and above all removed, on the word of a list.
_FILE = re.compile(r"chunk=(\d+)/[\w-]+\.parquet")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some records of a table, in a file of their own.

    >>> Chunk("chunk=3/00003-ab12.parquet", 10).number
    3
    """

    file: str
    rows: int

    def __post_init__(self) -> None:
        if _FILE.fullmatch(self.file) is None:
            raise ValueError(f"{self.file!r} is no name of a chunk")

    @property
    def number(self) -> int:
        """Its place in the table."""
        return int(self.file.partition("/")[0].removeprefix("chunk="))


@dataclass(frozen=True, slots=True)
class Manifest:
    """A table: where it is, what it holds, and its chunks in their order."""

    path: str
    schema: dict[str, SchemaField]
    chunks: tuple[Chunk, ...]

    def url(self, chunk: Chunk) -> str:
        """Give the URL of a chunk."""
        return f"{self.path}/{chunk.file}"

    @property
    def urls(self) -> list[str]:
        """The URLs of all chunks."""
        return [self.url(chunk) for chunk in self.chunks]


def find_manifest(path: str) -> Manifest | None:
    """Read the list of a table; None if there is no table."""
    try:
        with files.open_read(f"{path}/{METADATA}") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    try:
        return _parsed(path, json.loads(data))
    except (ShoalError, ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"this describes no table that was written here: {type(error).__name__}: {error}"
        raise CorruptShardError(text, shard=files.display(f"{path}/{METADATA}")) from error


def read_manifest(path: str) -> Manifest:
    """Read the list of a table, which must be there."""
    found = find_manifest(path)
    if found is None:
        text = f"there is no {METADATA} in {files.display(path)}: no table was written there, or not to the end"
        raise UrlNotFoundError(text, url=files.display(path))
    return found


def write_manifest(manifest: Manifest) -> None:
    """Make a table of files that are there."""
    listed = [{"file": chunk.file, "rows": chunk.rows} for chunk in manifest.chunks]
    written = {"version": _VERSION, "schema": schema_to_json(manifest.schema), "chunks": listed}
    with files.open_write(f"{manifest.path}/{METADATA}") as target:
        target.write(json.dumps(written, indent=1).encode())


def _parsed(path: str, written: Any) -> Manifest:
    if written["version"] != _VERSION:
        raise ValueError(f"it is of version {written['version']!r}, and only {_VERSION} is known")
    chunks = [Chunk(chunk["file"], int(chunk["rows"])) for chunk in written["chunks"]]
    return Manifest(path, schema_from_json(written["schema"]), tuple(sorted(chunks, key=lambda chunk: chunk.number)))
