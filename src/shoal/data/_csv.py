"""CSV as shards: whole files, or parts of large ones."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from shoal import files
from shoal.data._csv_cuts import look_at
from shoal.data._parts import FilePart, head_of, part_bytes
from shoal.errors import PlanError, SampleError

__all__ = ["CsvForm"]

#: Options that count lines or need to see the whole file, with which a file cannot be read in parts.
_WHOLE = ("skiprows", "skipfooter", "nrows", "comment", "escapechar", "lineterminator", "compression", "chunksize")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
#: Encodings in which a newline is a newline, and a quote a quote, wherever they are.
_PLAIN = (None, "utf-8", "utf8", "ascii", "latin-1", "latin1", "iso-8859-1", "cp1252")


@dataclass(frozen=True)
class CsvForm:
    """How CSV files are read: the options of `pandas.read_csv`."""

    options: Mapping[str, Any]
    part_size: int
    suffixes: tuple[str, ...] = (".csv", ".tsv", ".txt", *(f".csv{end}" for end in _COMPRESSED))
    squeeze: bool = field(default=False)

    @classmethod
    def of(cls, part_size: int, options: Mapping[str, Any]) -> CsvForm:
        """Check options before anything is read."""
        given = dict(options)
        squeeze = bool(given.pop("squeeze", False))
        for name in ("chunksize", "iterator"):
            if given.get(name):
                raise PlanError(
                    f"{name} makes pandas give pieces of a frame; shards are pieces already, so leave it out"
                )
        names = given.get("names")
        if names is not None and len(set(names)) < len(names):
            raise PlanError(f"Found duplicate names: {list(names)}")
        return cls(given, part_size, squeeze=squeeze)

    @property
    def quote(self) -> bytes:
        """What quotes are, as bytes; none if there are none."""
        return b"" if self.options.get("quoting") == 3 else str(self.options.get("quotechar", '"')).encode()

    def parts(self, url: str) -> list[FilePart] | None:
        """Take a file as one part, if it is small or cannot be cut."""
        whole = any(self.options.get(name) is not None for name in _WHOLE) or url.lower().endswith(_COMPRESSED)
        encoding = self.options.get("encoding")
        if whole or (encoding.lower() if isinstance(encoding, str) else encoding) not in _PLAIN:
            return [FilePart(url)]
        if not isinstance(self.options.get("header", "infer"), int | str | None):
            return [FilePart(url)]  # several rows of names
        size = files.stat(url).size
        return [FilePart(url)] if size is None or size <= self.part_size else None

    def read(self, part: FilePart, texts: Sequence[Any] = ()) -> Any:
        """Parse a part; the names of columns are those of the beginning of the file."""
        data = part_bytes(part)
        if part.start:
            data = self._names(head_of(part.url)) + data
        return self._parsed(data, part, texts)

    def head(self, part: FilePart) -> Any:
        """Parse the first lines of a file."""
        if part.url.lower().endswith(_COMPRESSED):
            return self.read(part)
        data = head_of(part.url)
        size = files.stat(part.url).size
        if size is None or len(data) < size:
            data = _whole_records(data, self.quote)
        return self._parsed(data, part, ())

    def _names(self, head: bytes) -> bytes:
        """Give the lines that hold the names of the columns."""
        header = self.options.get("header", "infer")
        if header == "infer":
            header = None if self.options.get("names") is not None else 0
        if header is None:
            return b""
        end = 0
        for _ in range(int(header) + 1):
            look = look_at(head[end:], self.quote)
            if look.outside is None:
                raise PlanError("the line with the names of the columns is longer than can be")
            end += look.outside.place
            while head[end : end + 1] in (b"\n", b"\r") and not head[:end].strip():
                end += 1
        return head[:end]

    def _parsed(self, data: bytes, part: FilePart, texts: Sequence[Any]) -> Any:
        options = dict(self.options)
        if "compression" not in options:
            ends = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", ".zip": "zip"}
            options["compression"] = ends.get("." + part.url.lower().rsplit(".", 1)[-1])
        if texts:
            given = options.get("dtype")
            options["dtype"] = {**(given if isinstance(given, Mapping) else {}), **dict.fromkeys(texts, str)}
        try:
            frame = pd.read_csv(io.BytesIO(data), **options)
        except (ValueError, LookupError, OSError) as error:
            raise SampleError(f"{type(error).__name__}: {error}", shard=str(part)) from error
        if self.options.get("header", "infer") is None and self.options.get("names") is None:
            frame.columns = frame.columns.map(str)
        return frame


def _whole_records(data: bytes, quote: bytes) -> bytes:
    """Leave out the last record, which may be cut off."""
    end = data.rfind(b"\n") + 1
    while end and quote and data.count(quote, 0, end) % 2:
        end = data.rfind(b"\n", 0, end - 1) + 1
    return data[:end] or data
