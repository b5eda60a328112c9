"""Where indexes are kept: beside their shard, or in the cache folder. One that is not of the shard as it is now is
never used, except beside a remote shard of the same size, where reads check themselves against it.
"""

from __future__ import annotations

import hashlib
import os

from shoal import settings
from shoal.errors import IndexFileError, UrlError
from shoal.files import UrlInfo, local_path, open_read, open_write, stat
from shoal.shards._index import IndexBuilder, ShardIndex

__all__ = ["beside", "find_index", "keep_index", "load_index", "save_beside", "save_index"]


def beside(url: str) -> str:
    """Name the index file that lies beside a shard.

    >>> beside("s3://data/train-0000.tar")
    's3://data/train-0000.tar.index'
    """
    return f"{url}.index"


def load_index(url: str) -> ShardIndex:
    """Read an index file.

    >>> import shoal, tempfile
    >>> path = f"{tempfile.mkdtemp()}/a.tar"
    >>> with shoal.shards.TarWriter(path) as writer:
    ...     _ = writer.write({"__key__": "a", "txt": "hello"})
    >>> source = shoal.sources.TarSource(path)
    >>> save_index(source.index(source.shards()[0]), beside(path))
    >>> load_index(beside(path)).entry(0).key
    'a'
    """
    with open_read(url) as file:
        return ShardIndex.from_bytes(file.read(), url)


def save_index(index: ShardIndex, url: str) -> None:
    """Write an index file; no reader ever sees half of it.

    >>> import tempfile
    >>> from shoal.shards import IndexBuilder
    >>> url = f"{tempfile.mkdtemp()}/a.tar.index"
    >>> save_index(IndexBuilder().build(shard_size=1024, version="v1"), url)
    >>> len(load_index(url))
    0
    """
    with open_write(url) as target:
        target.write(index.to_bytes())


def save_beside(url: str, builder: IndexBuilder, *, seekable: bool) -> None:
    """Make the index of a shard that has just been written, and put it beside it."""
    info = stat(url)
    index = builder.build(shard_size=info.size or 0, version=info.version or "", seekable=seekable)
    save_index(index, beside(url))


def find_index(url: str, info: UrlInfo, *, verified_by_reads: bool = False) -> ShardIndex | None:
    """Find the index of a shard as it is now: beside it, else in the cache.

    A reader that compares what it reads with the index may take one beside a remote shard of the same size.

    >>> find_index("memory://doc/never-read.tar", UrlInfo(1024, "v1")) is None
    True
    """
    places = [_cached(url), beside(url)] if local_path(url) is None else [beside(url), _cached(url)]
    for place in places:
        try:
            index = load_index(place)
        except (UrlError, IndexFileError):
            continue  # not there, or not usable: it is built again, which loses nothing but a little time
        trusting = verified_by_reads and local_path(url) is None and place == beside(url)
        if _belongs(index, info, verified_by_reads=trusting):
            return index
    return None


def keep_index(url: str, index: ShardIndex) -> None:
    """Put an index into the cache. A cache that cannot be written is no reason to stop reading.

    >>> from shoal.shards import IndexBuilder
    >>> keep_index("memory://doc/kept.tar", IndexBuilder().build(shard_size=1024, version="v1"))
    >>> len(find_index("memory://doc/kept.tar", UrlInfo(1024, "v1")))
    0
    """
    try:
        save_index(index, _cached(url))
    except OSError:
        return


def _belongs(index: ShardIndex, info: UrlInfo, *, verified_by_reads: bool) -> bool:
    if index.shard_size != info.size:
        return False
    return verified_by_reads or (bool(info.version) and index.version == info.version)


def _cached(url: str) -> str:
    path = local_path(url)
    name = url if path is None else os.path.realpath(path)
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:40]
    return str(settings.current().cache / "index" / f"{digest}.index")
