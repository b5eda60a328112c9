"""Text with a record in a line or several: read whole, or in parts that are cut between records."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal import files
from shoal.data._cutting import Mapped, cut_text
from shoal.data._file_parts import FilePart, head_of, part_bytes
from shoal.errors import SampleError, ShoalError

__all__ = ["COMPRESSIONS", "TextForm"]

#: The end of a file's name -> what pandas calls its compression.
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", ".zip": "zip"}


@dataclass(frozen=True)
class TextForm(ABC):
    """A text format, with the options of pandas' function for it."""

    options: Mapping[str, Any]
    part_size: int
    unit = "lines"

    @property
    @abstractmethod
    def quote(self) -> bytes:
        """What a newline inside of which does not end a record; none if there is no such thing."""

    @abstractmethod
    def can_be_cut(self, url: str) -> bool:
        """Tell whether the options and the name of a file let it be read in parts."""

    @abstractmethod
    def parsed(self, data: io.BytesIO, url: str, options: dict[str, Any]) -> Any:
        """Let pandas parse."""

    def parts(self, url: str) -> list[FilePart] | None:
        """Take a file as one part, if it is small or cannot be cut."""
        if _compression(url) is not None or not self.can_be_cut(url):
            return [FilePart(url)]
        size = files.stat(url).size
        return [FilePart(url)] if size is None or size <= self.part_size else None

    def cut(self, urls: list[str], mapped: Mapped) -> list[list[FilePart]]:
        """Cut large files between records."""
        return cut_text(urls, self.part_size, self.quote, mapped)

    def read(self, part: FilePart, texts: Sequence[Any] = ()) -> Any:
        """Parse a part."""
        return self._frame(part_bytes(part), part, texts)

    def head(self, part: FilePart) -> Any:
        """Parse the first records of a file, or all of one that cannot be cut."""
        if _compression(part.url) is not None or not self.can_be_cut(part.url):
            return self.read(part)
        data, size = head_of(part.url), files.stat(part.url).size
        return self._frame(data if size == len(data) else _whole_records(data, self.quote), part, ())

    def _frame(self, data: bytes, part: FilePart, texts: Sequence[Any]) -> Any:
        options = {"compression": _compression(part.url), **self.options}
        if texts:
            given = options.get("dtype")
            options["dtype"] = {**(given if isinstance(given, Mapping) else {}), **dict.fromkeys(texts, str)}
        try:
            return self.parsed(io.BytesIO(data), part.url, options)
        except ShoalError:
            raise
        except (ValueError, LookupError, OSError) as error:
            raise SampleError(f"{type(error).__name__}: {error}", shard=str(part)) from error


def _compression(url: str) -> str | None:
    return next((name for end, name in COMPRESSIONS.items() if url.lower().endswith(end)), None)


def _whole_records(data: bytes, quote: bytes) -> bytes:
    """Leave out the last record, which may be cut off."""
    end = data.rfind(b"\n") + 1
    while end and quote and data.count(quote, 0, end) % 2:
        end = data.rfind(b"\n", 0, end - 1) + 1
    return data[:end] or data
