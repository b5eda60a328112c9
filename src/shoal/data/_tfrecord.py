"""TFRecord files as shards: a frame for each file, or for some of the records of a large one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from typing import Any

import numpy as np
import pandas as pd

from shoal import files
from shoal.data._cutting import Mapped
from shoal.data._file_parts import FilePart
from shoal.sources import TFRECORD_SUFFIXES, Features, example_of, open_record_file, open_records, read_records

__all__ = ["TFRecordForm"]

#: Records that are looked at to see what a file has.
_LOOKED_AT = 64


@dataclass(frozen=True)
class TFRecordForm:
    """How TFRecord files are read."""

    features: Features
    part_size: int
    suffixes: tuple[str, ...] = TFRECORD_SUFFIXES
    unit = "rows"
    squeeze = False
    as_text = False

    def parts(self, url: str) -> list[FilePart] | None:
        """Take a small file as one part, and one without bytes, which has no columns, as none."""
        size = files.stat(url).size
        if size == 0:
            return []
        return [FilePart(url)] if size is None or size <= self.part_size else None

    def cut(self, urls: list[str], mapped: Mapped) -> list[list[FilePart]]:
        """Cut large files between records."""
        return list(mapped(partial(_cut, size=self.part_size), urls))

    def read(self, part: FilePart, texts: Sequence[Any] = ()) -> Any:
        """Parse the records of a part."""
        return self._frame(self._examples(part))

    def head(self, part: FilePart) -> Any:
        """Parse the first records of a file."""
        return self._frame(islice(self._examples(part), _LOOKED_AT))

    def _examples(self, part: FilePart) -> Iterator[dict[str, Any]]:
        with open_records(part.url, part.start) as read:
            records = read_records(read, part.url, offset=part.start, number=part.first)
            wanted = takewhile(lambda record: part.stop is None or record.offset < part.stop, records)
            yield from (example_of(record, self.features, part.url) for record in wanted)

    def _frame(self, examples: Iterator[dict[str, Any]]) -> pd.DataFrame:
        rows = list(examples)
        if self.features.named is None:
            names = dict.fromkeys(name for row in rows for name in sorted(row))
            return pd.DataFrame({name: _column([row.get(name) for row in rows]) for name in names})
        kinds = {each.name: _dtype(each.kind) if each.shape == () else None for each in self.features.named}
        columns = {name: [row[name] for row in rows] for name in kinds}
        return pd.DataFrame({name: _column(columns[name], kind) for name, kind in kinds.items()})


def _cut(url: str, size: int) -> list[FilePart]:
    """Put records together up to the size of a part; a compressed file stays one."""
    file = open_record_file(url)
    if not file.plain:
        return [FilePart(url)]
    places = file.offsets()
    cuts = np.unique(np.searchsorted(places, np.arange(0, places[-1], size)))
    ends = [*cuts[1:].tolist(), len(places) - 1]
    return [
        FilePart(url, int(places[low]), int(places[high]), low) for low, high in zip(cuts.tolist(), ends, strict=True)
    ]


def _dtype(kind: type) -> Any:
    if kind is str:
        return pd.Series(["text"]).dtype
    return {int: np.dtype(np.int64), float: np.dtype(np.float32)}.get(kind, np.dtype(object))


def _column(values: list[Any], kind: Any = None) -> pd.Series:
    if kind is not None:
        return pd.Series(values, dtype=kind)
    made = np.empty(len(values), object)
    for place, value in enumerate(values):  # all at once, numpy would look into arrays
        made[place] = value
    return pd.Series(made)
