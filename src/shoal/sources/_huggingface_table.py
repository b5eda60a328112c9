"""A Hugging Face dataset, open: groups of rows of its table, or what its stream brings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from shoal.errors import CorruptShardError
from shoal.files import display
from shoal.sources._rows import RowForm, Rows
from shoal.sources._sound import check_sound
from shoal.sources._tables import Place, TableOptions

__all__ = ["DatasetStream", "DatasetTable"]

#: A group has about so many bytes, but not more rows than that, for a row may name files; and there are not too many.
_GROUP_BYTES = 16 * 2**20
_GROUP_ROWS = 1000
_GROUPS = 10_000

#: With fewer rows in a chunk, as indices leave them, chunks are put together.
_CHUNK_ROWS = 64

_STREAM_ROWS = 64


class DatasetTable:
    """A dataset with random access."""

    is_passing = False

    def __init__(self, dataset: Any, place: Place, options: TableOptions) -> None:
        self._url = place.url
        self._form = RowForm.of(dataset.features.arrow_schema, place.url, place.stem, options.columns, options.key)
        self._rows = dataset.with_format("arrow", columns=self._form.columns)
        self._row_bytes = int(dataset.data.nbytes) / max(len(dataset.data), 1)
        count = len(dataset)
        self.bounds = [*range(0, count, _group_rows(count, self._row_bytes)), count]
        self._sound: set[int] = set()

    def pieces(self, group: int, size: int) -> Iterator[Rows]:
        """Give the chunks of a group as they lie; rows that indices name are copied together."""
        first, stop = self.bounds[group], self.bounds[group + 1]
        table = self._rows[first:stop]
        if group not in self._sound:
            _check(table, self._url)
            self._sound.add(group)
        for batch in _batches(table):
            yield SlicedRows(batch, first, self._form)
            first += batch.num_rows

    def stored(self, group: int) -> int:
        """Give the share that a group has of the bytes of the table."""
        return int(self._row_bytes * (self.bounds[group + 1] - self.bounds[group]))


class DatasetStream:
    """A dataset that is read forward, from its beginning."""

    bounds = None
    is_passing = False

    def __init__(self, dataset: Any, place: Place, options: TableOptions) -> None:
        self._rows, self._place, self._options = dataset.with_format("arrow"), place, options

    def pieces(self, group: int, size: int) -> Iterator[Rows]:
        """Read the stream."""
        first = 0
        for table in self._rows.iter(batch_size=_STREAM_ROWS):
            place, options = self._place, self._options
            form = RowForm.of(table.schema, place.url, place.stem, options.columns, options.key)
            for batch in _batches(table):
                yield SlicedRows(batch, first, form)
                first += batch.num_rows

    def stored(self, group: int) -> None:
        """Nobody knows: the stream tells nothing beforehand."""


class SlicedRows(Rows):
    """Rows that are part of a larger chunk, which is there anyway."""

    @property
    def nbytes(self) -> int:
        """The memory of these rows alone."""
        return int(self._batch.nbytes)


def _group_rows(count: int, row_bytes: float) -> int:
    fitting = min(_GROUP_ROWS, int(_GROUP_BYTES / max(row_bytes, 1)))
    return max(1, fitting, -(-count // _GROUPS))


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    chunks = max((column.num_chunks for column in table.columns), default=0)
    batches: list[pa.RecordBatch] = (
        table.combine_chunks() if chunks * _CHUNK_ROWS > table.num_rows else table
    ).to_batches()
    return batches


def _check(table: pa.Table, url: str) -> None:
    try:
        for column in table.columns:
            for chunk in column.chunks:
                check_sound(chunk)
    except (pa.ArrowException, ValueError) as error:
        raise CorruptShardError(f"its table is damaged: {error}", shard=display(url)) from error
