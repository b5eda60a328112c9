"""Rows of text in the formats that other programs read: a function for each makes a row, another what comes first."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

from shoal.cli._yaml import scalar

__all__ = ["FORMATS", "RowFormat"]

#: A value, or None where a sample does not have the field.
Cell: TypeAlias = "str | None"


class RowFormat(ABC):
    """A format of tables: what comes before the rows, a row, what comes after them."""

    def head(self, names: Sequence[str]) -> str:
        """Write what comes before the rows."""
        return ""

    @abstractmethod
    def row(self, names: Sequence[str], cells: Sequence[Cell]) -> str:
        """Write a row."""

    def tail(self) -> str:
        """Write what comes after the rows."""
        return ""


class _Tsv(RowFormat):
    r"""Tab-separated: a value ends in no newline; tabs, newlines and backslashes in it are \t, \n and \\."""

    def head(self, names: Sequence[str]) -> str:
        return "\t".join(names) + "\n"

    def row(self, names: Sequence[str], cells: Sequence[Cell]) -> str:
        return "\t".join("None" if cell is None else _one_line(cell) for cell in cells) + "\n"


class _Csv(RowFormat):
    """Comma-separated with quotes where they are needed; a missing value is empty."""

    def head(self, names: Sequence[str]) -> str:
        return self.row(names, names)

    def row(self, names: Sequence[str], cells: Sequence[Cell]) -> str:
        line = io.StringIO()
        csv.writer(line).writerow(cells)  # ends in \r\n, or it would not quote both
        return line.getvalue().removesuffix("\r\n") + "\n"


class _JsonLines(RowFormat):
    """An object in each line."""

    def row(self, names: Sequence[str], cells: Sequence[Cell]) -> str:
        return json.dumps(dict(zip(names, cells, strict=True)), ensure_ascii=False) + "\n"


class _Json(_JsonLines):
    """One list of objects."""

    def __init__(self) -> None:
        self._before = "[\n"

    def row(self, names: Sequence[str], cells: Sequence[Cell]) -> str:
        before, self._before = self._before, ",\n"
        return before + super().row(names, cells).rstrip("\n")

    def tail(self) -> str:
        return "[]\n" if self._before == "[\n" else "\n]\n"


class _Yaml(RowFormat):
    """A document for each sample."""

    def row(self, names: Sequence[str], cells: Sequence[Cell]) -> str:
        pairs = zip(names, cells, strict=True)
        return "---\n" + "".join(f"{scalar(name)}: {scalar(cell)}\n" for name, cell in pairs)


FORMATS: dict[str, type[RowFormat]] = {
    "tsv": _Tsv,
    "csv": _Csv,
    "jsonl": _JsonLines,
    "json": _Json,
    "yaml": _Yaml,
}


def _one_line(text: str) -> str:
    text = text.rstrip("\r\n")
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
