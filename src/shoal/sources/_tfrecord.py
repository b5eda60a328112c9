"""TFRecord files as a source: files on a disk, in a cache, behind a URL."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from shoal._kept import Kept
from shoal._optional import require
from shoal.abc import Block, Sample, Shard, Source
from shoal.errors import CacheError, CorruptShardError, PlanError, SampleError
from shoal.files import UrlInfo, display, expand, local_path, stat
from shoal.sources._blocks import blocks
from shoal.sources._cache import Cache, shard_cache
from shoal.sources._tables import Place
from shoal.sources._tar import Urls
from shoal.sources._tfrecord_features import Features
from shoal.sources._tfrecord_file import RecordFile, open_record_file
from shoal.sources._tfrecord_records import Record

__all__ = ["TFRECORD_SUFFIXES", "TFRecordSource", "example_of"]

#: The ends of names of files that a folder stands for.
TFRECORD_SUFFIXES = tuple(f".{name}{end}" for end in ("", ".gz") for name in ("tfrecord", "tfrecords", "tfrec"))
_OPEN_FILES = 128


class TFRecordSource(Source):
    """TFRecord files of ``tf.train.Example`` by URL: braces, lists, globs, folders; any scheme that fsspec knows.

    A file is a shard. A plain local file is mapped, and its records are found by their lengths; a compressed or remote
    one is read forward, unless it is plain and kept in a ``cache``. What ``features`` are is said as in
    ``{"image": bytes, "label": int, "box": [float]}``; without it all are read, numbers as arrays and bytes in lists,
    whatever their number. ``key`` names the feature that holds the keys; a feature ``__key__`` does so by itself, and
    without either, keys are made of file name and number.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pets.tfrecord")
    >>> record = "11000000000000009d6db52e0a0f0a0d0a0361676512061a040a0203050d70c26d"
    >>> _ = path.write_bytes(bytes.fromhex(record) * 3)
    >>> source = TFRecordSource(path)
    >>> source.take(source.shards()[0], [2])
    [{'__key__': 'pets-000000002', 'age': array([3, 5])}]
    """

    def __init__(
        self, urls: Urls, *, features: Mapping[str, Any] | None = None, key: str | None = None, cache: Cache = None
    ) -> None:
        require("google_crc32c", "reading TFRecord files")
        self.urls = [os.fspath(urls)] if isinstance(urls, str | os.PathLike) else [os.fspath(url) for url in urls]
        self._features, self._key, self._cache = Features.of(features), key, shard_cache(cache)
        if key is not None and features is not None and features.get(key) not in (str, bytes, int):
            raise PlanError(f"the feature {key!r} makes no keys: features must say that it is str, bytes or int")
        self._shards: tuple[Shard, ...] | None = None
        self._files: Kept[RecordFile] = Kept(_OPEN_FILES, _one)

    def __repr__(self) -> str:
        return f"TFRecordSource({', '.join(map(repr, self.urls[:3]))}{', ...' if len(self.urls) > 3 else ''})"

    @property
    def seekable(self) -> bool:
        """Whether records can be picked, as the first file tells: plain and local, or cached."""
        first = next(iter(self.shards()), None)
        return first is None or self._file(first).mapped

    @property
    def waits(self) -> bool:
        """Whether there is more to it than looking at a map, as the first file tells."""
        return not self.seekable

    def shards(self) -> Sequence[Shard]:
        """List the files; braces, globs and folders are expanded the first time."""
        if self._shards is None:
            self._shards = tuple(Shard(url) for url in expand(self.urls, suffixes=TFRECORD_SUFFIXES))
        return self._shards

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        """Yield a shard's samples in blocks, from its sample ``start`` on."""
        first = shard.start + start * shard.step
        count = None if shard.stop is None else max(shard.stop - first, 0)
        stem = _stem(shard.url)
        records = islice(self._file(shard).records(first), 0, count, shard.step)
        yield from blocks(shard, (self._sample(record, shard.url, stem) for record in records))

    def length(self, shard: Shard) -> int:
        """Count the samples of a shard; a file that is not mapped is read for it, once."""
        return len(self._numbers(shard))

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        """Read the samples at these positions of a shard, in this order."""
        numbers, stem = self._numbers(shard), _stem(shard.url)
        wrong = next((index for index in indices if not 0 <= index < len(numbers)), None)
        if wrong is not None:
            raise IndexError(f"there is no sample {wrong} in shard {display(shard.url)}, which has {len(numbers)}")
        records = self._file(shard).pick([numbers[index] for index in indices])
        return [self._sample(record, shard.url, stem) for record in records]

    def fingerprint(self, shard: Shard) -> str:
        """Give the size of a local file, or the version of a remote one."""
        info = stat(shard.url)
        return str(info.size) if local_path(shard.url) is not None else info.version or str(info.size)

    def size(self, shard: Shard) -> int | None:
        """Give the bytes of a whole file; those of a range of records only where it is mapped."""
        if shard == Shard(shard.url):
            return stat(shard.url).size
        file = self._file(shard)
        if not file.mapped:
            return None
        numbers, places = self._numbers(shard), file.offsets()
        return int(sum(places[number + 1] - places[number] for number in numbers))

    def split(self, shard: Shard, parts: int) -> list[Shard]:
        """Cut a shard into ranges where it is mapped, else deal its records out in turn."""
        known = self._file(shard).mapped and shard.step == 1
        return shard.split(parts, self.length(shard) if known else None)

    def _numbers(self, shard: Shard) -> range:
        return shard.numbers(len(self._file(shard)))

    def _sample(self, record: Record, url: str, stem: str) -> Sample:
        fields = example_of(record, self._features, url)
        name = "__key__" if self._key is None and "__key__" in fields else self._key
        if name is None:
            return {"__key__": f"{stem}-{record.number:09d}", **fields}
        key = _key_of(fields.get(name), name, record, url)
        fields.pop("__key__", None)
        return {"__key__": key, **fields}

    def _file(self, shard: Shard) -> RecordFile:
        return self._files.get(shard.url, lambda: self._opened(shard.url))

    def _opened(self, url: str) -> RecordFile:
        if self._cache is None or local_path(url) is not None:
            return open_record_file(url)
        try:
            return open_record_file(url, self._cache.open(url))
        except CacheError as error:
            warnings.warn(f"{error}; the file is read where it is instead", stacklevel=2)
            return open_record_file(url)


def example_of(record: Record, features: Features, url: str) -> dict[str, Any]:
    r"""Parse a record; what is wrong with it is told with its place.

    >>> example_of(Record(0, 7, b"\n\x0f\n\r\n\x03age\x12\x06\x1a\x04\n\x02\x03\x05"), Features(), "a.tfrecord")
    {'age': array([3, 5])}
    """
    try:
        return features.parsed(record.data)
    except CorruptShardError as error:
        text = f"record {record.number} is no tf.train.Example: {error.args[0]}"
        raise CorruptShardError(text, shard=display(url), offset=record.offset) from None
    except SampleError as error:
        raise type(error)(f"record {record.number}: {error.args[0]}", field=error.field, shard=display(url)) from None


def _key_of(found: Any, name: str, record: Record, url: str) -> str:
    values = [] if found is None else [found] if isinstance(found, str | bytes | int) else list(found)
    if len(values) != 1:
        text = f"record {record.number} has {len(values)} values here, and a key is one"
        raise SampleError(text, field=name, shard=display(url))
    return values[0].decode("utf-8", "surrogateescape") if isinstance(values[0], bytes) else str(values[0])


def _stem(url: str) -> str:
    return Place(url, url, UrlInfo()).stem


def _one(file: RecordFile) -> int:
    return 1
