"""Bytes by URL: list them, read them from any byte on, write them all or nothing, keep them near, remove them.

A URL is a local path, ``file:``, ``http(s)://``, anything fsspec knows (``s3://``, ``gs://``, ``hf://``, ``memory://``),
``pipe:command``, or ``-`` for the standard streams. What the bytes mean is nobody's business here.

>>> expand("shard-{000..002}.tar")
['shard-000.tar', 'shard-001.tar', 'shard-002.tar']
"""

from shoal.files._braces import expand_braces
from shoal.files._cache import CachedFile, CacheStatistics, ShardCache
from shoal.files._expand import SHARD_SUFFIXES, expand
from shoal.files._folders import exists, is_file, list_folder, make_folder, remove, remove_folder
from shoal.files._open import open_read, open_seekable, stat, stat_open
from shoal.files._remote import UrlInfo
from shoal.files._urls import display, local_path, scheme
from shoal.files._write import Target, Unclosed, open_write

__all__ = [
    "SHARD_SUFFIXES",
    "CacheStatistics",
    "CachedFile",
    "ShardCache",
    "Target",
    "Unclosed",
    "UrlInfo",
    "display",
    "exists",
    "expand",
    "expand_braces",
    "is_file",
    "list_folder",
    "local_path",
    "make_folder",
    "open_read",
    "open_seekable",
    "open_write",
    "remove",
    "remove_folder",
    "scheme",
    "stat",
    "stat_open",
]
