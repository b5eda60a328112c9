"""Parquet files as a source: files on a disk, in a cache, behind a URL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from shoal._optional import require
from shoal.sources._cache import Cache
from shoal.sources._tables import Place, TableFile, TableOptions, TableSource
from shoal.sources._tar import Urls

__all__ = ["ParquetSource"]


class ParquetSource(TableSource):
    """Parquet files by URL: braces, lists, globs, folders; any scheme that fsspec knows. A row group is a shard.

    Lengths come from the footers. A local file is mapped; of a remote one only the footer and the chunks of ``columns``
    are read, and with a ``cache`` it is first copied to the local disk. ``key`` names the column that holds the keys;
    a column ``__key__`` does so by itself, and without either, keys are made of file name and row number.

    >>> import tempfile, pyarrow, pyarrow.parquet
    >>> path = f"{tempfile.mkdtemp()}/pets.parquet"
    >>> table = pyarrow.table({"name": ["Rex", "Mia", "Tom"], "age": [3, 5, 2]})
    >>> pyarrow.parquet.write_table(table, path, row_group_size=2)
    >>> source = ParquetSource(path, columns=["age"])
    >>> [source.length(shard) for shard in source.shards()]
    [2, 1]
    >>> source.take(source.shards()[0], [1])
    [{'__key__': 'pets-000000001', 'age': 5}]
    """

    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)

    def __init__(
        self, urls: Urls, *, columns: Iterable[str] | None = None, key: str | None = None, cache: Cache = None
    ) -> None:
        super().__init__(urls, TableOptions.of(columns, key), cache)

    @property
    def seekable(self) -> bool:
        """True: row groups are found by the footer."""
        return True

    def _opened(self, place: Place) -> TableFile:
        require("pyarrow", "reading Parquet files")
        from shoal.sources._parquet_file import ParquetTable

        return ParquetTable(place, self._options)
