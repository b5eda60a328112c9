"""Plans of tars: tables of which each row is a sample, and each column a field or the name of a file that holds it."""

from __future__ import annotations

import csv
import json
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any, NamedTuple, Self, TypeAlias

from shoal.errors import PlanError
from shoal.files import open_read

__all__ = ["FILE", "FORMATS", "OpenPlan", "Plan", "Record", "format_of"]

#: What stands before the name of a column that holds names of files.
FILE = "@"

_Cells: TypeAlias = "dict[str, Any]"
_Columns: TypeAlias = "tuple[str, ...]"

_ENDINGS = {"csv": "csv", "jsonl": "jsonl", "jsonlines": "jsonl", "ndjson": "jsonl"}
_LONGEST_CELL = 2**31 - 1


class Record(NamedTuple):
    """A row: where it stands, and its cells by column."""

    place: str
    cells: _Cells


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a plan is, and how it is read."""

    url: str
    form: str
    names: _Columns = ("txt",)
    """The columns, where the plan does not name them itself."""
    separator: str = "\t"
    trust: bool = False


def format_of(url: str) -> str:
    """Tell the format of a plan by its name.

    >>> format_of("plan.csv"), format_of("-")
    ('csv', 'tsv')
    """
    return _ENDINGS.get(url.lower().rpartition(".")[2], "tsv")


class OpenPlan:
    """A plan that is being read. One that may name files can be read twice: a pipe is copied to the disk for it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        with ExitStack() as resources:
            stream: IO[bytes] = resources.enter_context(open_read(plan.url, trust=plan.trust))
            self._format = FORMATS[plan.form](plan, stream)
            self.columns = self._format.columns
            """The names of the columns; None where each row has its own."""
            self.may_name_files = self.columns is None or any(name.startswith(FILE) for name in self.columns)
            if self.may_name_files and not stream.seekable():
                kept = resources.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(stream, kept, 2**20)
                kept.seek(0)
                stream = kept
            self._stream, self._start = stream, stream.tell() if self.may_name_files else 0
            self._resources = resources.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def records(self) -> Iterator[Record]:
        """Read the rows that are left."""
        for line, cells in self._format.rows(self._stream):
            yield Record(f"{self._plan.url}, line {line}", cells)

    def rewind(self) -> None:
        """Go back to the first row."""
        self._stream.seek(self._start)


class _Format(ABC):
    """How a plan is written."""

    def __init__(self, plan: Plan, stream: IO[bytes]) -> None:
        self.plan = plan
        self.lines = 0
        """How many of them stand before the rows."""
        self.columns = self.header(stream)

    @abstractmethod
    def header(self, stream: IO[bytes]) -> _Columns | None:
        """Read what stands before the rows."""

    @abstractmethod
    def rows(self, stream: IO[bytes]) -> Iterator[tuple[int, _Cells]]:
        """Read the rows, with the numbers of their lines."""

    def named(self, cells: list[str], line: int) -> _Cells:
        """Put the names of the columns to the cells of a row."""
        assert self.columns is not None
        if len(cells) != len(self.columns):
            text = f"{len(cells)} cells, but there are {len(self.columns)} columns: {', '.join(self.columns)}"
            raise PlanError(f"{self.plan.url}, line {line}: {text}")
        return dict(zip(self.columns, cells, strict=True))

    def text(self, stream: IO[bytes]) -> Iterator[tuple[int, str]]:
        """Read lines as they are, newlines included."""
        for number, line in enumerate(iter(stream.readline, b""), self.lines + 1):
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise PlanError(f"{self.plan.url}, line {number}: this is not UTF-8 ({error.reason})") from error


class _Tsv(_Format):
    """Columns between tabs, as they are: nothing is quoted, and a backslash is a backslash."""

    def header(self, stream: IO[bytes]) -> _Columns | None:
        line = next(self.text(stream), None)
        if line is None:
            raise PlanError(f"{self.plan.url} is empty; its first line names the columns")
        self.lines = 1
        return _checked(_bare(line[1]).split("\t"), self.plan.url)

    def rows(self, stream: IO[bytes]) -> Iterator[tuple[int, _Cells]]:
        for number, line in self.text(stream):
            if _bare(line):
                yield number, self.named(_bare(line).split("\t"), number)


class _Lines(_Format):
    """Columns between separators, without a line that names them."""

    def header(self, stream: IO[bytes]) -> _Columns | None:
        return _checked(list(self.plan.names), "-f")

    def rows(self, stream: IO[bytes]) -> Iterator[tuple[int, _Cells]]:
        single = len(self.plan.names) == 1
        for number, line in self.text(stream):
            bare = _bare(line)
            yield number, self.named([bare] if single else bare.split(self.plan.separator), number)


class _Csv(_Format):
    """Columns between commas, quoted where needed."""

    def header(self, stream: IO[bytes]) -> _Columns | None:
        first = next(self._read(stream), None)
        if first is None:
            raise PlanError(f"{self.plan.url} is empty; its first line names the columns")
        self.lines = first[0]
        return _checked(first[1], self.plan.url)

    def rows(self, stream: IO[bytes]) -> Iterator[tuple[int, _Cells]]:
        for number, cells in self._read(stream):
            yield number, self.named(cells, number)

    def _read(self, stream: IO[bytes]) -> Iterator[tuple[int, list[str]]]:
        csv.field_size_limit(_LONGEST_CELL)
        reader = csv.reader((line for _, line in self.text(stream)), strict=True)
        try:
            for cells in reader:
                if cells:
                    yield self.lines + reader.line_num, cells
        except csv.Error as error:
            raise PlanError(f"{self.plan.url}, line {self.lines + reader.line_num}: {error}") from error


class _JsonLines(_Format):
    """An object in each line; what is null is not there."""

    def header(self, stream: IO[bytes]) -> _Columns | None:
        return None

    def rows(self, stream: IO[bytes]) -> Iterator[tuple[int, _Cells]]:
        for number, line in self.text(stream):
            if _bare(line):
                yield number, self._row(line, f"{self.plan.url}, line {number}")

    @staticmethod
    def _row(line: str, place: str) -> _Cells:
        try:
            cells = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise PlanError(f"{place}: this is not JSON: {error}") from error
        if not isinstance(cells, dict):
            raise PlanError(f"{place}: a {type(cells).__name__}, but each line must be an object of fields")
        _checked(list(cells), place)
        return {name: value for name, value in cells.items() if value is not None}


FORMATS: dict[str, type[_Format]] = {"tsv": _Tsv, "csv": _Csv, "jsonl": _JsonLines, "lines": _Lines}


def _checked(columns: list[str], place: str) -> _Columns:
    """Refuse names that would be lost or be two of one sample."""
    fields = [name.removeprefix(FILE) for name in columns]
    for name in fields:
        if not name or "/" in name or (name.startswith("_") and name != "__key__"):
            raise PlanError(f"{place}: {name!r} cannot be the name of a column; write it like jpg, seg.png or __key__")
        if fields.count(name) > 1:
            raise PlanError(f"{place}: the column {name} is there twice")
    if set(columns) <= {"__key__"}:
        raise PlanError(f"{place}: there is no column but the key, and a sample needs a field")
    return tuple(columns)


def _bare(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")
