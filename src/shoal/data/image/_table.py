"""Tables of pictures and arrays, as a user sees them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from shoal import files
from shoal._optional import require
from shoal.data.image._cells import column_of, values_of
from shoal.data.image._manifest import Manifest, read_manifest
from shoal.data.image._schema import Schema, SchemaField
from shoal.errors import DecodeError

if TYPE_CHECKING:
    from shoal.data._xshards import XShards
    from shoal.pipeline import Dataset

__all__ = ["ParquetDataset", "Path", "dataset_of", "folder_of"]

#: Where a table, or a file for it, is: a local path or a URL.
Path: TypeAlias = str | os.PathLike[str]


class ParquetDataset:
    """Writes tables of pictures and arrays, and reads them.

    >>> import tempfile, numpy as np
    >>> from shoal.data.image import DType, FeatureType, SchemaField
    >>> schema = {
    ...     "id": SchemaField(FeatureType.SCALAR, DType.STRING),
    ...     "place": SchemaField(FeatureType.NDARRAY, DType.FLOAT32, (2,)),
    ... }
    >>> folder = tempfile.mkdtemp()
    >>> records = ({"id": str(n), "place": np.full(2, n)} for n in range(5))
    >>> ParquetDataset.write(folder, records, schema, block_size=2)
    >>> [shard["id"].tolist() for shard in ParquetDataset.read_as_xshards(folder).collect()]
    [['0', '1'], ['2', '3'], ['4']]
    >>> next(ParquetDataset.read_as_dicts(folder))
    {'id': '0', 'place': array([0., 0.], dtype=float32)}
    """

    @staticmethod
    def write(
        path: Path, generator: Iterable[Any], schema: Schema, block_size: int = 1000, write_mode: str = "overwrite"
    ) -> None:
        """Write records, dicts with exactly the names of the schema, in chunks of ``block_size``.

        Of an IMAGE the record names the file; arrays and numbers are stored in the schema's type. The table appears
        when it is complete; until then, and if something fails, the one that was there stays what it was. With
        ``write_mode="append"`` chunks are added to it, with ``"error"`` (or ``"errorifexists"``) it is an error that
        there is one. A folder that holds anything else is never touched. One program at a time may write.
        """
        from shoal.data.image._writing import write_table

        write_table(folder_of(path), generator, schema, block_size, write_mode)

    @staticmethod
    def read_schema(path: Path) -> dict[str, SchemaField]:
        """Read what the columns hold."""
        return read_manifest(folder_of(path)).schema

    @staticmethod
    def read_as_dicts(path: Path) -> Iterator[dict[str, Any]]:
        """Yield the records, chunk by chunk: arrays, numbers, text, and pictures as the bytes of their files."""
        table = read_manifest(folder_of(path))
        for chunk in table.chunks:
            cells = _cells(table.url(chunk), chunk.rows, table.schema)
            values = _values(table.url(chunk), cells, table.schema).values()
            yield from (dict(zip(table.schema, row, strict=True)) for row in zip(*values, strict=True))

    @staticmethod
    def read_as_xshards(path: Path) -> XShards:
        """Read each chunk as a shard: a dict of columns, stacked. Pictures, and arrays of several shapes, are lists."""
        from shoal.data._xshards import XShards

        table = read_manifest(folder_of(path))
        chunks = XShards.from_shards([(table.url(chunk), chunk.rows) for chunk in table.chunks])
        return chunks.transform_shard(partial(_columns, schema=table.schema))

    @staticmethod
    def read_as_dataset(path: Path, *, images: str = "rgb8") -> Dataset:
        """Read records as samples. A picture becomes what ``images`` says, as in `Dataset.decode`.

        Chunks are shards: the records of a few of them can be picked, shuffled and dealt out to ranks.
        """
        return dataset_of(read_manifest(folder_of(path)), images)


def folder_of(path: Path) -> str:
    """Give the path of a table as a text without a slash at its end."""
    return os.fspath(path).rstrip("/")


def dataset_of(table: Manifest, images: str) -> Dataset:
    """Make a dataset of a table; each of its shards is a chunk."""
    from shoal.data.image._decoding import decoders
    from shoal.pipeline import Dataset
    from shoal.sources import ParquetSource

    own = decoders(table.schema, images)
    dataset = Dataset(ParquetSource(table.urls, columns=table.schema))
    return dataset.decode(images, only=own.fields, codecs=own.codecs) if own.fields else dataset


def _cells(url: str, rows: int, schema: Schema) -> dict[str, list[Any]]:
    require("pyarrow", "reading Parquet")
    from shoal.data.image._chunks import read_columns

    return read_columns(url, rows, schema)


def _values(url: str, cells: dict[str, list[Any]], schema: Schema) -> dict[str, Sequence[Any]]:
    try:
        return {name: values_of(name, schema[name], cells[name]) for name in schema}
    except DecodeError as error:
        error.shard = files.display(url)
        raise


def _columns(place: tuple[str, int], schema: Schema) -> dict[str, Any]:
    values = _values(place[0], _cells(*place, schema), schema)
    return {name: column_of(field, values[name]) for name, field in schema.items()}
