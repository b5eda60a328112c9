"""One Parquet file, open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from shoal.errors import CorruptShardError, PlanError
from shoal.files import display, local_path
from shoal.sources._native import explained, open_native, translated
from shoal.sources._rows import RowForm, Rows
from shoal.sources._tables import Place, TableOptions

__all__ = ["ParquetTable"]

#: A piece has at least so many rows, because each piece costs something.
_FEWEST_ROWS = 64
#: A row counts for so many bytes at least: the footer tells encoded sizes, and a decoded row may be much larger.
_ROW_BYTES = 1024


class ParquetTable:
    """A Parquet file whose footer has been read."""

    is_passing = False

    def __init__(self, place: Place, options: TableOptions) -> None:
        if place.is_passing:
            text = f"{display(place.url)} is a pipe, and Parquet is read from its end; write it to a file first"
            raise PlanError(text)
        self._place = place
        self._is_remote = local_path(place.path) is None
        self._idle: list[pa.NativeFile] = []
        self._metadata, schema = self._footer()
        self._form = RowForm.of(schema, place.url, place.stem, options.columns, options.key)
        self._columns = None if options.columns is None else self._form.columns
        self.bounds = list(accumulate(self._group_lengths(), initial=0))

    def pieces(self, group: int, size: int) -> Iterator[Rows]:
        """Decode a row group, some rows at a time."""
        first, url = self.bounds[group], self._place.url
        with translated(url), self._source() as source:
            reader = self._reader(source, self._metadata)
            for batch in reader.iter_batches(self._piece_rows(group, size), row_groups=[group], columns=self._columns):
                yield Rows(batch, first, self._form)
                first += batch.num_rows
        if first != self.bounds[group + 1]:
            text = f"row group {group} ends at row {first}, but the footer says {self.bounds[group + 1]}"
            raise CorruptShardError(text, shard=display(url))

    def stored(self, group: int) -> int:
        """Add up the bytes of the chunks that are read of a row group."""
        return sum(max(int(chunk.total_compressed_size), 0) for chunk in self._chunks(group))

    def _footer(self) -> tuple[pq.FileMetaData, pa.Schema]:
        explain = partial(explained, self._place, b"PAR1", "a Parquet file")
        with translated(self._place.url, explain), self._source() as source:
            reader = self._reader(source)
            return reader.metadata, reader.schema_arrow

    def _reader(self, source: pa.NativeFile, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
        # Of a remote file, chunks that lie side by side are fetched together; in a map, nothing needs to be fetched.
        return pq.ParquetFile(source, metadata=metadata, pre_buffer=self._is_remote, page_checksum_verification=True)

    @contextmanager
    def _source(self) -> Iterator[pa.NativeFile]:
        """Lend a handle on the file.

        All share the map of a local one, which remains what it was when its name is given to another file. A handle on
        a remote one serves one thread, so there are as many as are in use at once.
        """
        try:
            source = self._idle.pop() if self._is_remote else self._idle[0]
        except IndexError:
            source = open_native(self._place)
        yield source
        # A remote one not after an error, or for a reader who left early: pyarrow may still be fetching for them.
        if self._is_remote or not self._idle:
            self._idle.append(source)

    def _group_lengths(self) -> list[int]:
        lengths = [self._metadata.row_group(group).num_rows for group in range(self._metadata.num_row_groups)]
        if any(length < 0 for length in lengths):
            raise CorruptShardError("a row group has less than no rows", shard=display(self._place.url))
        return lengths

    def _piece_rows(self, group: int, size: int) -> int:
        """Choose the rows of a piece by the mean size of a row."""
        total = sum(int(chunk.total_uncompressed_size) for chunk in self._chunks(group))
        mean = max(total // max(self.bounds[group + 1] - self.bounds[group], 1), _ROW_BYTES)
        return max(size // mean, _FEWEST_ROWS)

    def _chunks(self, group: int) -> Iterator[pq.ColumnChunkMetaData]:
        """Go through what the footer says about the chunks of a row group that are read."""
        described = self._metadata.row_group(group)
        wanted = None if self._columns is None else {name.partition(".")[0] for name in self._columns}
        chunks = (described.column(number) for number in range(described.num_columns))
        return (chunk for chunk in chunks if wanted is None or chunk.path_in_schema.partition(".")[0] in wanted)
