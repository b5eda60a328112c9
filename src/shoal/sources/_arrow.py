"""Arrow files and streams as a source: files on a disk, in a cache, behind a URL, in a pipe."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from shoal._optional import require
from shoal.sources._cache import Cache
from shoal.sources._tables import Place, TableFile, TableOptions, TableSource
from shoal.sources._tar import Urls

__all__ = ["ArrowSource"]


class ArrowSource(TableSource):
    """Arrow IPC files (also called Feather) and streams by URL: braces, lists, globs, folders; any scheme fsspec knows.

    A record batch of a file is a shard. A stream is one shard that is read forward only: its length, and samples picked
    from it, take a pass. What a file is, its first bytes tell. Local ones are mapped; of a remote file only ``columns``
    are read, and with a ``cache`` it is first copied to the local disk. ``-`` and, with ``trust``, ``pipe:command`` may
    bring a stream. ``key`` names the column that holds the keys; a column ``__key__`` does so by itself, and without
    either, keys are made of file name and row number.

    >>> import tempfile, pyarrow
    >>> path = f"{tempfile.mkdtemp()}/pets.arrow"
    >>> table = pyarrow.table({"name": ["Rex", "Mia", "Tom"], "age": [3, 5, 2]})
    >>> with pyarrow.ipc.new_file(path, table.schema) as writer:
    ...     writer.write_table(table, max_chunksize=2)
    >>> source = ArrowSource(path, columns=["age"], key="name")
    >>> [source.length(shard) for shard in source.shards()], source.seekable
    ([2, 1], True)
    >>> source.take(source.shards()[0], [1])
    [{'__key__': 'Mia', 'age': 5}]
    """

    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".arrows", ".feather", ".ipc")

    def __init__(
        self,
        urls: Urls,
        *,
        columns: Iterable[str] | None = None,
        key: str | None = None,
        cache: Cache = None,
        trust: bool = False,
    ) -> None:
        super().__init__(urls, TableOptions.of(columns, key, trust=trust), cache)

    def _opened(self, place: Place) -> TableFile:
        require("pyarrow", "reading Arrow files")
        from shoal.sources._arrow_file import open_arrow

        return open_arrow(place, self._options)
