"""Where samples come from. Each source lists shards and opens one of them as a stream of blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach
from shoal.sources._arrays import ArraySource
from shoal.sources._arrow import ArrowSource
from shoal.sources._huggingface import HuggingFaceSource
from shoal.sources._named_arrays import named_arrays
from shoal.sources._parquet import ParquetSource
from shoal.sources._tables import Place, TableFile, TableOptions, TableSource
from shoal.sources._tar import TarSource, Urls
from shoal.sources._tfrecord import TFRECORD_SUFFIXES, TFRecordSource, example_of
from shoal.sources._tfrecord_features import Features
from shoal.sources._tfrecord_file import open_record_file
from shoal.sources._tfrecord_records import open_records, read_records
from shoal.sources._tfrecord_write import pack_example, pack_record

if TYPE_CHECKING:
    from shoal.sources._rows import RowForm, Rows
    from shoal.sources._store import StoreSource

__all__ = [
    "TFRECORD_SUFFIXES",
    "ArraySource",
    "ArrowSource",
    "Features",
    "HuggingFaceSource",
    "ParquetSource",
    "Place",
    "RowForm",
    "Rows",
    "StoreSource",
    "TFRecordSource",
    "TableFile",
    "TableOptions",
    "TableSource",
    "TarSource",
    "Urls",
    "example_of",
    "named_arrays",
    "open_record_file",
    "open_records",
    "pack_example",
    "pack_record",
    "read_records",
]

__getattr__, __dir__ = attach(__name__, {"_rows": ("RowForm", "Rows"), "_store": ("StoreSource",)})
