"""Parquet as shards: a file, or some of the row groups of a large one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shoal import files
from shoal.data._file_parts import FilePart
from shoal.errors import MissingFieldError, SampleError

__all__ = ["ParquetForm"]


@dataclass(frozen=True)
class ParquetForm:
    """How Parquet files are read."""

    columns: tuple[str, ...] | None
    part_size: int
    options: Mapping[str, Any]
    suffixes: tuple[str, ...] = (".parquet", ".parq", ".pq")
    unit = "rows"
    squeeze = False
    as_text = False

    def parts(self, url: str) -> list[FilePart] | None:
        """Put row groups together up to the size of a part."""
        with _opened(url) as file:
            meta = file.metadata
            groups = [meta.row_group(number) for number in range(meta.num_row_groups)]
        parts: list[FilePart] = []
        start = size = row = first = 0
        for number, group in enumerate(groups):
            if size and size + group.total_byte_size > self.part_size:
                parts.append(FilePart(url, start, number, first))
                start, size, first = number, 0, row
            size += group.total_byte_size
            row += group.num_rows
        return [*parts, FilePart(url, start, len(groups), first)]

    def read(self, part: FilePart, texts: Sequence[Any] = ()) -> Any:
        """Decode some row groups."""
        with _opened(part.url) as file:
            known = file.schema_arrow.names
            for name in self.columns or ():
                if name not in known:
                    text = f"the file has no such column; it has {', '.join(known)}"
                    raise MissingFieldError(text, field=name, shard=str(part))
            groups = list(range(part.start, file.num_row_groups if part.stop is None else part.stop))
            return file.read_row_groups(groups, columns=self.columns and list(self.columns)).to_pandas(**self.options)

    def head(self, part: FilePart) -> Any:
        """Look at the types alone."""
        with _opened(part.url) as file:
            names = self.columns or file.schema_arrow.names
            schema = pa.schema([file.schema_arrow.field(name) for name in names if name in file.schema_arrow.names])
        return schema.empty_table().to_pandas(**self.options)


class _opened:  # noqa: N801  (used like a function)
    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> Any:
        self._file = files.open_seekable(self._url)
        try:
            return pq.ParquetFile(pa.PythonFile(self._file, mode="r"))
        except (pa.ArrowException, OSError) as error:
            self._file.close()
            raise SampleError(f"it is no Parquet file: {error}", shard=files.display(self._url)) from error

    def __exit__(self, *error: object) -> None:
        self._file.close()
