"""JSON as shards: parts of files that hold a record in each line, and other files as a whole."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from shoal import files
from shoal.data._parts import FilePart, head_of, part_bytes
from shoal.errors import SampleError

__all__ = ["JsonForm"]

_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")


@dataclass(frozen=True)
class JsonForm:
    """How JSON files are read: the options of `pandas.read_json`."""

    options: Mapping[str, Any]
    part_size: int
    suffixes: tuple[str, ...] = (".json", ".jsonl", ".ndjson", *(f".json{end}" for end in _COMPRESSED))
    quote = b""
    """In JSON a newline is never inside quotes."""
    squeeze = False

    def parts(self, url: str) -> list[FilePart] | None:
        """Take a file as one part, if it is small or cannot be cut."""
        if not self._by_line(url) or url.lower().endswith(_COMPRESSED) or self.options.get("nrows") is not None:
            return [FilePart(url)]
        size = files.stat(url).size
        return [FilePart(url)] if size is None or size <= self.part_size else None

    def read(self, part: FilePart, texts: Sequence[Any] = ()) -> Any:
        """Parse a part."""
        return self._parsed(part_bytes(part), part, texts)

    def head(self, part: FilePart) -> Any:
        """Parse the first lines of a file, or all of one that has no lines."""
        if not self._by_line(part.url) or part.url.lower().endswith(_COMPRESSED):
            return self.read(part)
        data = head_of(part.url)
        size = files.stat(part.url).size
        if size is None or len(data) < size:
            data = data[: data.rfind(b"\n") + 1] or data
        return self._parsed(data, part, ())

    def _by_line(self, url: str) -> bool:
        return bool(self.options.get("lines", url.lower().endswith((".jsonl", ".ndjson"))))

    def _parsed(self, data: bytes, part: FilePart, texts: Sequence[Any]) -> Any:
        ends = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", ".zip": "zip"}
        options = {"compression": ends.get("." + part.url.lower().rsplit(".", 1)[-1]), **self.options}
        options["lines"] = self._by_line(part.url)
        if texts:
            given = options.get("dtype")
            options["dtype"] = {**(given if isinstance(given, Mapping) else {}), **dict.fromkeys(texts, str)}
        try:
            return pd.read_json(io.BytesIO(data), **options)
        except (ValueError, LookupError, OSError) as error:
            raise SampleError(f"{type(error).__name__}: {error}", shard=str(part)) from error
