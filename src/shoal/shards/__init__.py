"""The tar format and nothing else: read, group, index, write, and the codecs of the fields.

>>> from shoal.shards import TarWriter
>>> TarWriter.__name__
'TarWriter'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.shards._compression import detect_compression
    from shoal.shards._dali import read_dali_index, write_dali_index
    from shoal.shards._file_field import FileField
    from shoal.shards._grouping import Entry, group, split_name
    from shoal.shards._index import Extent, IndexBuilder, Lookup, ShardIndex
    from shoal.shards._index_files import beside, find_index, keep_index, load_index, save_index
    from shoal.shards._read import MappedTar, Payload, Rename, StreamedTar, owned
    from shoal.shards._renaming import renamed
    from shoal.shards._span_reader import read_spans
    from shoal.shards._spans import Span
    from shoal.shards._tar_format import Attributes
    from shoal.shards._write import ShardWriter, TarWriter, WrittenShard

__all__ = [
    "Attributes",
    "Entry",
    "Extent",
    "FileField",
    "IndexBuilder",
    "Lookup",
    "MappedTar",
    "Payload",
    "Rename",
    "ShardIndex",
    "ShardWriter",
    "Span",
    "StreamedTar",
    "TarWriter",
    "WrittenShard",
    "beside",
    "detect_compression",
    "find_index",
    "group",
    "keep_index",
    "load_index",
    "owned",
    "read_dali_index",
    "read_spans",
    "renamed",
    "save_index",
    "split_name",
    "write_dali_index",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "_compression": ("detect_compression",),
        "_dali": ("read_dali_index", "write_dali_index"),
        "_file_field": ("FileField",),
        "_grouping": ("Entry", "group", "split_name"),
        "_index": ("Extent", "IndexBuilder", "Lookup", "ShardIndex"),
        "_index_files": ("beside", "find_index", "keep_index", "load_index", "save_index"),
        "_read": ("MappedTar", "Payload", "Rename", "StreamedTar", "owned"),
        "_renaming": ("renamed",),
        "_span_reader": ("read_spans",),
        "_spans": ("Span",),
        "_tar_format": ("Attributes",),
        "_write": ("ShardWriter", "TarWriter", "WrittenShard"),
    },
)
