"""One Parquet file of an export: what is written where, how, and how it is known again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from shoal._optional import require
from shoal.data.huggingface._embedding import embedded, holds_files
from shoal.files import Unclosed, open_seekable, open_write

__all__ = ["ShardFile", "mark_of", "write"]

In = TypeVar("In")
Out = TypeVar("Out")

#: Under this name a file says what it was made of.
_MARK = b"shoal.export"
_READERS = 8


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A file to write."""

    url: str
    mark: str
    """What it is made of: the version of the dataset, which rows, how many in a row group."""
    group_rows: int
    rows: Any
    """A ``datasets.Dataset`` that lies on a disk, or the bytes of an Arrow stream."""


def write(shard: ShardFile) -> str:
    """Write a file, all or nothing; equal rows make equal bytes."""
    rows, count, features = _opened(shard.rows)
    schema = features.arrow_schema
    with (
        ThreadPoolExecutor(_READERS, thread_name_prefix="shoal-embed") as readers,
        open_write(shard.url) as target,
        pq.ParquetWriter(Unclosed(target), schema, **_column_options(schema, features)) as writer,
    ):
        load = partial(_group, rows, shard.group_rows, features, readers)
        for table in _ahead(load, range(0, count, shard.group_rows)):
            writer.write_table(table.cast(schema), row_group_size=len(table))
        writer.add_key_value_metadata({_MARK: shard.mark.encode()})
    return shard.url


def mark_of(url: str) -> str | None:
    """Read what a file says that it was made of; None for one that is not of an export, or damaged."""
    try:
        with open_seekable(url) as file:
            found = pq.read_metadata(file).metadata or {}
    except (pa.ArrowException, OSError):
        return None
    return bytes(found[_MARK]).decode() if _MARK in found else None


def _opened(rows: Any) -> tuple[Callable[[slice], pa.Table], int, Any]:
    """Give a way to some of the rows, their number, and their features."""
    if not isinstance(rows, bytes | pa.Buffer):
        return rows.with_format("arrow").__getitem__, len(rows), rows.features
    features = require("datasets", "exporting a dataset").Features  # before the stream: it brings types
    table = pa.ipc.open_stream(rows).read_all()
    return table.__getitem__, len(table), features.from_arrow_schema(table.schema)


def _group(rows: Callable[[slice], pa.Table], count: int, features: Any, readers: Executor, first: int) -> pa.Table:
    # Rows that indices name come in a chunk each, and what is written must not depend on chunks.
    return embedded(rows(slice(first, first + count)).combine_chunks(), features, readers)


def _ahead(function: Callable[[In], Out], items: Iterable[In]) -> Iterator[Out]:
    """Call a function with each item, one ahead of what is used."""
    with ThreadPoolExecutor(1, thread_name_prefix="shoal-ahead") as pool:
        coming: Future[Out] | None = None
        for item in items:
            last, coming = coming, pool.submit(function, item)
            if last is not None:
                yield last.result()
        if coming is not None:
            yield coming.result()


def _column_options(schema: pa.Schema, features: Any) -> dict[str, Any]:
    """Leave columns of files as they are: they are compressed already, and nobody looks for one by its bytes."""
    plain = {leaf for field in schema if holds_files(features[field.name]) for leaf in _leaves(field.name, field.type)}
    others = [leaf for field in schema for leaf in _leaves(field.name, field.type) if leaf not in plain]
    compression = {**dict.fromkeys(plain, "none"), **dict.fromkeys(others, "snappy")}
    return {"compression": compression, "use_dictionary": others, "write_statistics": others}


def _leaves(path: str, kind: pa.DataType) -> list[str]:
    """Name what a column is stored as in Parquet, where nested types are taken apart."""
    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(path, kind.storage_type)
    if pa.types.is_struct(kind):
        return [leaf for field in kind for leaf in _leaves(f"{path}.{field.name}", field.type)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _leaves(f"{path}.list.element", kind.value_type)
    return [path]
