"""Columns and types that the files of one dataset must share.

What the types are is seen in the beginning of the files. A file that turns out to hold something else further down is
no mistake: pandas, which sees all of it, would have chosen another type. Then all is looked at once, and read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from shoal.errors import SchemaError, ShoalError

__all__ = ["Schema", "SchemaSurprise", "conformed", "widened"]


class SchemaSurprise(ShoalError):  # noqa: N818  (never leaves the room)
    """A part of a file has a type that its beginning did not promise; never leaves the room."""


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns, their types, and the file in which they were seen."""

    url: str
    dtypes: Mapping[Any, Any]

    @classmethod
    def of(cls, frame: pd.DataFrame, url: str) -> Schema:
        """Look at a frame."""
        return cls(url, dict(frame.dtypes))

    def check_columns(self, url: str, columns: Sequence[Any]) -> None:
        """Refuse a file that has other columns."""
        pairs = ((self.url, url, self.dtypes, columns), (url, self.url, columns, self.dtypes))
        for there, here, names, others in pairs:
            for name in names:
                if name not in others:
                    text = f"{there} has a column {name!r}, and {here} has none"
                    raise SchemaError(f"{text}; all files must have the same columns")


def conformed(frame: pd.DataFrame, schema: Schema, url: str) -> pd.DataFrame | list[Any]:
    """Give a frame the types that were promised; or the columns that must be read again as text."""
    schema.check_columns(url, list(frame.columns))
    texts = []
    for name, kind in schema.dtypes.items():
        found = frame[name].dtype
        if found == kind:
            continue
        numbers = _is_number(kind) and _is_number(found) and np.result_type(kind, found) == kind
        if not len(frame) or numbers or (_holds_nothing(kind) and frame[name].isna().all()):
            frame = frame.assign(**{name: frame[name].astype(kind)})
        elif _is_text(kind):
            texts.append(name)
        else:
            raise SchemaSurprise(f"{name!r} of {url} is {found}, and {kind} in {schema.url}")
    return texts or frame


def widened(seen: Sequence[Schema]) -> Schema:
    """Find the types that hold what is in all parts: as pandas would for a file, the wider number for several files.

    Numbers in one file and text in another are an error.
    """
    first, kinds = seen[0], dict(seen[0].dtypes)
    homes = dict.fromkeys(kinds, first.url)
    for other in seen[1:]:
        first.check_columns(other.url, list(other.dtypes))
        for name, kind in other.dtypes.items():
            kinds[name] = _wider(name, (kinds[name], homes[name]), (kind, other.url))
            if kinds[name] == kind:
                homes[name] = other.url
    return Schema(first.url, kinds)


def _wider(name: Any, one: tuple[Any, str], other: tuple[Any, str]) -> Any:
    (kind, home), (found, url) = one, other
    if kind == found:
        return kind
    if _is_number(kind) and _is_number(found):
        return np.result_type(kind, found)
    if home != url:
        raise SchemaError(f"column {name!r} is {kind} in {home} and {found} in {url}; give it one type with dtype=")
    return kind if _is_text(kind) else found if _is_text(found) else np.dtype(object)


def _is_number(kind: Any) -> bool:
    return isinstance(kind, np.dtype) and kind.kind in "iuf"


def _is_text(kind: Any) -> bool:
    return bool(pd.api.types.is_string_dtype(kind))


def _holds_nothing(kind: Any) -> bool:
    """Tell whether a type has a value that stands for a missing one."""
    return not (isinstance(kind, np.dtype) and kind.kind in "iub")
