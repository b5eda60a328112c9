"""CSV as shards."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from shoal.data._csv_cuts import look_at
from shoal.data._csv_options import check_options, check_types, has_numbers_for_names
from shoal.data._file_parts import FilePart, head_of, part_bytes
from shoal.data._text import COMPRESSIONS, TextForm
from shoal.errors import PlanError

__all__ = ["CsvForm"]

#: Options that count lines or need to see the whole file, with which a file cannot be read in parts.
_WHOLE = ("skiprows", "skipfooter", "nrows", "comment", "escapechar", "lineterminator", "compression")
#: Encodings in which a newline is a newline, and a quote a quote, wherever they are.
_PLAIN = (None, "utf-8", "utf8", "ascii", "latin-1", "latin1", "iso-8859-1", "cp1252")
_NO_QUOTES = 3
#: Options that say how columns are written, and not which of them are read as what.
_FORM = (
    "sep",
    "delimiter",
    "header",
    "names",
    "quotechar",
    "quoting",
    "compression",
    "encoding",
    "skiprows",
    "comment",
)


@dataclass(frozen=True)
class CsvForm(TextForm):
    """How CSV files are read: the options of `pandas.read_csv`."""

    suffixes: tuple[str, ...] = (".csv", ".tsv", ".txt", *(f".csv{end}" for end in COMPRESSIONS))
    squeeze: bool = False
    as_text = True

    @classmethod
    def of(cls, part_size: int, options: Mapping[str, Any]) -> CsvForm:
        """Check options before anything is read."""
        given = dict(options)
        squeeze = bool(given.pop("squeeze", False))
        check_options(given)
        return cls(given, part_size, squeeze=squeeze)

    @property
    def quote(self) -> bytes:
        """The quotes of the options."""
        return b"" if self.options.get("quoting") == _NO_QUOTES else str(self.options.get("quotechar", '"')).encode()

    def can_be_cut(self, url: str) -> bool:
        """Tell whether nothing in the options depends on the whole file."""
        encoding = self.options.get("encoding")
        plain = (encoding.lower() if isinstance(encoding, str) else encoding) in _PLAIN
        one_header = isinstance(self.options.get("header", "infer"), int | str | None)
        return plain and one_header and all(self.options.get(name) is None for name in _WHOLE)

    def read(self, part: FilePart, texts: Sequence[Any] = ()) -> Any:
        """Parse a part; the names of columns are those of the beginning of the file."""
        names = self._names(head_of(part.url)) if part.start else b""
        return self._frame(names + part_bytes(part), part, texts)

    def parsed(self, data: io.BytesIO, url: str, options: dict[str, Any]) -> Any:
        """Let pandas parse; columns without names get their numbers as names."""
        numbered = has_numbers_for_names(options)
        if numbered and isinstance(options.get("dtype"), Mapping):
            options = {**options, "dtype": {_number(name): kind for name, kind in options["dtype"].items()}}
        frame = pd.read_csv(data, **_at_once(options))
        if numbered:
            frame.columns = frame.columns.map(str)
        check_types(self.options, [*frame.index.names, *frame.columns], lambda: _all_columns(data, options))
        return frame

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


def _at_once(options: dict[str, Any]) -> dict[str, Any]:
    """Let pandas find the types of a part as a whole, where its parser in C is used; else pieces of it may differ."""
    separator = options.get("sep", options.get("delimiter", ","))
    in_c = "engine" not in options and isinstance(separator, str) and len(separator) == 1
    return {"low_memory": False, **options} if in_c and not options.get("skipfooter") else options


def _number(name: Any) -> Any:
    return int(name) if isinstance(name, str) and name.isdecimal() else name


def _all_columns(data: io.BytesIO, options: dict[str, Any]) -> list[Any]:
    """List the columns of a file, also those that are not read."""
    data.seek(0)
    form = {name: value for name, value in options.items() if name in _FORM}
    return list(pd.read_csv(data, nrows=0, **form))
