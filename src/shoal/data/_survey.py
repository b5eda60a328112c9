"""What has to be known of files of text before single rows can be read: parts, numbers of rows, types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa

from shoal import files
from shoal.data._arrow_frames import agreed_schema, arrow_types, as_batch
from shoal.data._cutting import all_parts
from shoal.data._file_parts import FilePart, Form
from shoal.data._reading import TableReading
from shoal.data._schema import Schema, SchemaSurprise, widened
from shoal.errors import UrlChangedError
from shoal.settings import processors
from shoal.sources import Place, RowForm, Rows, TableOptions

__all__ = ["FrameTable", "Survey", "survey"]

#: Parts parsed at once while all are counted.
_PARSERS = 8


class FileParts(NamedTuple):
    """The parts of a file that have rows, and the row at which each begins, and at last their number."""

    parts: tuple[FilePart, ...]
    bounds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """What one look at everything tells."""

    urls: Sequence[str]
    """As they are listed; one may be there twice."""
    files: Mapping[str, FileParts]
    reading: TableReading
    schema: pa.Schema


class _Look(NamedTuple):
    """What the parse of a part tells."""

    schema: Schema
    objects: dict[str, pa.DataType]


class FrameTable:
    """A file whose parts have been counted."""

    is_passing = False

    def __init__(self, place: Place, survey: Survey, options: TableOptions) -> None:
        self._place, self._survey = place, survey
        self._parts, self.bounds = survey.files[place.url]
        self._form = RowForm.of(survey.schema, place.url, place.stem, options.columns, options.key)

    def pieces(self, group: int, size: int) -> Iterator[Rows]:
        """Parse a part; it is in memory as a whole anyway, so it is one piece."""
        part = self._parts[group]
        if files.stat(part.url) != self._place.info:
            raise _changed(part)
        try:
            frame = self._survey.reading(part)
        except SchemaSurprise as error:
            raise _changed(part) from error
        if len(frame) != self.bounds[group + 1] - self.bounds[group]:
            raise _changed(part)
        yield Rows(as_batch(frame, self._survey.schema, str(part)), self.bounds[group], self._form)

    def stored(self, group: int) -> int | None:
        """Give the bytes of a part."""
        part = self._parts[group]
        stop = self._place.info.size if part.stop is None else part.stop
        return None if stop is None else stop - part.start


def survey(urls: list[str], form: Form) -> Survey:
    """Parse all files once, in threads."""
    with ThreadPoolExecutor(min(processors(), _PARSERS), thread_name_prefix="shoal-survey") as pool:
        parts = all_parts(list(dict.fromkeys(urls)), form, pool.map)
        looks = list(pool.map(partial(_look, form=form), parts))
    kinds = widened([look.schema for look in looks], as_text=form.as_text)
    schema = agreed_schema(kinds.dtypes, [look.objects for look in looks])
    return Survey(urls, _by_file(parts, looks), TableReading(form, kinds), schema)


def _look(part: FilePart, form: Form) -> _Look:
    frame = form.read(part, [])
    return _Look(Schema.of(frame, str(part)), arrow_types(frame))


def _by_file(parts: Sequence[FilePart], looks: Sequence[_Look]) -> dict[str, FileParts]:
    found: dict[str, list[tuple[FilePart, int]]] = {part.url: [] for part in parts}
    for part, look in zip(parts, looks, strict=True):
        if look.schema.rows:
            found[part.url].append((part, look.schema.rows))
    return {
        url: FileParts(tuple(part for part, _ in full), tuple(accumulate((rows for _, rows in full), initial=0)))
        for url, full in found.items()
    }


def _changed(part: FilePart) -> UrlChangedError:
    text = f"{part} changed since its rows were counted; make the dataset anew"
    return UrlChangedError(text, url=str(part))
