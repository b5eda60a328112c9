"""The writers, with the arguments they have in WebDataset."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, BinaryIO

from shoal import shards
from shoal.errors import SampleError
from shoal.shards import Attributes, WrittenShard
from shoal.shards.codecs import EncodeOptions, encode

__all__ = ["ShardWriter", "TarWriter"]

#: WebDataset writes its jpegs so.
_OPTIONS = EncodeOptions(jpeg_quality=100)


class TarWriter(shards.TarWriter):
    """Writes samples into one tar; see `shoal.shards.TarWriter` for where it can write and what it promises.

    ``encoder=False`` wants bytes, a function makes a sample of bytes itself. ``mtime`` is 0 unless given, so that the
    same samples give the same bytes. ``trust`` allows ``pipe:`` targets.

    >>> import io
    >>> with TarWriter(io.BytesIO()) as writer:
    ...     writer.write({"__key__": "a", "txt": "hello", "cls": 3})
    6
    """

    def __init__(
        self,
        fileobj: str | os.PathLike[str] | BinaryIO,
        user: str = "bigdata",
        group: str = "bigdata",
        mode: int = 0o444,
        compress: bool | str | None = None,
        encoder: bool | Callable[[dict[str, Any]], Mapping[str, Any]] = True,
        keep_meta: bool = False,
        *,
        mtime: float | None = None,
        trust: bool = False,
    ) -> None:
        super().__init__(
            fileobj,
            encoder=partial(_encoded, keep_meta=keep_meta) if encoder is True else encoder,
            compression=compress,
            attributes=Attributes(int(mtime or 0), mode, user, group),
            keep_meta=keep_meta,
            trust=trust,
        )

    def dwrite(self, key: str, **fields: Any) -> int:
        """Append a sample given as arguments; an underscore stands for a dot, as in ``seg_png=mask``."""
        return self.write({"__key__": key, **{name.replace("_", "."): value for name, value in fields.items()}})


class ShardWriter(shards.ShardWriter):
    """Writes samples into a row of shards; a shard begins with its first sample, so none is empty.

    ``post`` is called with the name of each shard that is complete, ``verbose`` names it on standard error, ``opener``
    gives an open file for a name; further arguments are those of `TarWriter`.

    >>> import tempfile
    >>> with ShardWriter(tempfile.mkdtemp() + "/a-%04d.tar", maxcount=2) as writer:
    ...     for i in range(5):
    ...         _ = writer.write({"__key__": str(i), "cls": i})
    >>> [shard.count for shard in writer.shards]
    [2, 2, 1]
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        maxcount: int = 100_000,
        maxsize: float | str = 3e9,
        post: Callable[[str], object] | None = None,
        start_shard: int = 0,
        verbose: int = 0,
        opener: Callable[[str], BinaryIO] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(pattern, maxcount, maxsize, start=start_shard, on_shard=self._written, **options)
        self._post, self._verbose, self._opener = post, verbose, opener
        self._file: BinaryIO | None = None

    def dwrite(self, key: str, **fields: Any) -> int:
        """Append a sample given as arguments; an underscore stands for a dot, as in ``seg_png=mask``."""
        return self.write({"__key__": key, **{name.replace("_", "."): value for name, value in fields.items()}})

    def abort(self) -> None:
        """Throw away the shard being written, as far as the opener's file allows; those complete stay."""
        super().abort()
        self._close_file()

    def _make_writer(self, url: str) -> shards.TarWriter:
        self._file = None if self._opener is None else self._opener(url)
        return TarWriter(url if self._file is None else self._file, **self._options)

    def _written(self, shard: WrittenShard) -> None:
        self._close_file()
        if self._verbose:
            sys.stderr.write(f"# wrote {shard.url}: {shard.count} samples, {shard.size / 1e9:.2f} GB\n")
        if self._post is not None:
            self._post(shard.url)

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _encoded(sample: dict[str, Any], keep_meta: bool) -> dict[str, Any]:
    names = (name for name in sample if name != "__key__" and (keep_meta or not name.startswith("_")))
    try:
        encoded = {name: encode(name, sample[name], _OPTIONS) for name in names}
    except SampleError as error:
        error.key = sample["__key__"]
        raise
    return {"__key__": sample["__key__"], **encoded}
