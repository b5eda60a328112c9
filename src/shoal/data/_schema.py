"""Columns and types that the files of one dataset must share.

What the types are is seen in the beginning of the files. A file that turns out to hold something else further down is
no mistake: pandas, which sees all of it, would have chosen another type. Then all is looked at once, and read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from shoal.errors import SchemaError, ShoalError

__all__ = ["Schema", "SchemaSurprise", "conformed", "widened"]


class SchemaSurprise(ShoalError):  # noqa: N818  (never leaves the room)
    """A part of a file has a type that its beginning did not promise; never leaves the room."""


class Column(NamedTuple):
    """What a part has in a column."""

    dtype: Any
    empty: bool = False
    """Whether there is no value in it, so that the type says nothing."""
    flags: bool = False
    """Whether there are booleans and gaps, which pandas keeps as objects."""

    @classmethod
    def of(cls, values: pd.Series) -> Column:
        """Look at a column."""
        is_object = values.dtype == np.dtype(object)
        flags = is_object and pd.api.types.infer_dtype(values, skipna=True) == "boolean"
        return cls(values.dtype, bool(values.isna().all()), flags)


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns, and the file in which they were seen."""

    url: str
    columns: Mapping[Any, Column]
    rows: int = 1
    texts: frozenset[Any] = frozenset()
    """Columns that are read as text where they look like something else."""

    @classmethod
    def of(cls, frame: pd.DataFrame, url: str) -> Schema:
        """Look at a frame."""
        return cls(url, {name: Column.of(frame[name]) for name in frame}, len(frame))

    @property
    def dtypes(self) -> dict[Any, Any]:
        """The types of all columns."""
        return {name: column.dtype for name, column in self.columns.items()}

    def check_columns(self, url: str, columns: Iterable[Any]) -> None:
        """Refuse a file that has other columns."""
        pairs = ((self.url, url, list(self.columns), list(columns)), (url, self.url, list(columns), list(self.columns)))
        for there, here, names, others in pairs:
            for name in names:
                if name not in others:
                    text = f"{there} has a column {name!r}, and {here} has none"
                    raise SchemaError(f"{text}; all files must have the same columns")


def conformed(frame: pd.DataFrame, schema: Schema, url: str) -> pd.DataFrame | list[Any]:
    """Give a frame the types and the order that were promised; or the columns that must be read again as text."""
    schema.check_columns(url, frame.columns)
    texts = []
    for name, kind in schema.dtypes.items():
        found = frame[name].dtype
        if found == kind:
            continue
        numbers = _is_number(kind) and _is_number(found) and np.result_type(kind, found) == kind
        if not len(frame) or numbers or (_holds_nothing(kind) and frame[name].isna().all()):
            frame = frame.assign(**{name: frame[name].astype(kind)})
        elif name in schema.texts:
            texts.append(name)
        elif kind == np.dtype(object):
            frame = frame.assign(**{name: frame[name].astype(kind)})
        else:
            raise SchemaSurprise(f"{name!r} of {url} is {found}, and {kind} in {schema.url}")
    names = list(schema.columns)
    return texts or (frame if list(frame.columns) == names else frame[names])


def widened(seen: Sequence[Schema], *, as_text: bool) -> Schema:
    """Find the types that hold what is in all parts: as pandas would for a file, the wider number for several files.

    Values of several kinds in a file are text, or else objects. In several files, they are an error.
    """
    for other in seen[1:]:
        seen[0].check_columns(other.url, other.columns)
    files: dict[str, list[Schema]] = {}
    for each in [each for each in seen if each.rows] or seen[:1]:
        files.setdefault(each.url, []).append(each)
    mixed = pd.Series(["text"]).dtype if as_text else np.dtype(object)
    columns = {name: _across(name, files, mixed) for name in seen[0].columns}
    texts = frozenset(name for name, column in columns.items() if as_text and _is_text(column))
    return Schema(seen[0].url, columns, texts=texts)


def _across(name: Any, files: Mapping[str, Sequence[Schema]], mixed: Any) -> Column:
    """Find the type of a column in all files."""
    found: dict[str, Column] = {}
    for url, seen in files.items():
        columns = [each.columns[name] for each in seen]
        found[url] = _common(columns) or Column(mixed)
    column = _common(list(found.values()))
    if column is None:
        (home, first), (url, other) = _at_odds(found)
        text = f"column {name!r} is {first.dtype} in {home} and {other.dtype} in {url}"
        raise SchemaError(f"{text}; give it one type with dtype=")
    return column


def _common(columns: Sequence[Column]) -> Column | None:
    """Find the type that holds some columns as it is; None if they are of several kinds."""
    told = [column for column in columns if not column.empty]
    if not told or all(_is_number(column.dtype) for column in columns):
        numbers = [column.dtype for column in columns if _is_number(column.dtype)]
        return Column(np.result_type(*numbers), not told) if numbers else columns[0]
    if all(column.flags or column.dtype == np.dtype(bool) for column in told):
        gaps = len(told) < len(columns) or any(column.flags for column in told)
        return Column(np.dtype(object), flags=True) if gaps else told[0]
    return told[0] if all(column._replace(empty=False) == told[0] for column in told) else None


def _at_odds(found: Mapping[str, Column]) -> tuple[tuple[str, Column], tuple[str, Column]]:
    told = [(url, column) for url, column in found.items() if not column.empty]
    return next(pair for pair in combinations(told, 2) if _common([pair[0][1], pair[1][1]]) is None)


def _is_number(kind: Any) -> bool:
    return isinstance(kind, np.dtype) and kind.kind in "iuf"


def _is_text(column: Column) -> bool:
    return not column.flags and bool(pd.api.types.is_string_dtype(column.dtype))


def _holds_nothing(kind: Any) -> bool:
    """Tell whether a type has a value that stands for a missing one."""
    return not (isinstance(kind, np.dtype) and kind.kind in "iub")
