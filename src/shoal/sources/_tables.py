"""Files of rows that lie in groups, as a source: a group is a shard.

A format opens a file as a `TableFile`, which tells where its groups begin and reads one; all else is here.
"""

from __future__ import annotations

import os
import re
import warnings
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal._kept import Kept
from shoal.abc import Batch, Block, Columns, Picks, Sample, Shard, Source
from shoal.errors import CacheError, PlanError, UrlChangedError
from shoal.files import CachedFile, UrlInfo, display, expand, local_path, scheme, stat
from shoal.settings import processors
from shoal.sources._cache import Cache, shard_cache
from shoal.sources._tar import Urls

if TYPE_CHECKING:
    from shoal.sources._rows import Picked, Rows

__all__ = ["Place", "TableFile", "TableOptions", "TableSource"]

_BLOCK_SAMPLES = 64
_BLOCK_BYTES = 16 * 2**20

#: Which of some rows; None for all of them.
Places: TypeAlias = "NDArray[np.int64] | None"

#: Decoded bytes of a piece where a group is read through, and where it is kept as a whole.
_PIECE_BYTES = 8 * 2**20
_GROUP_PIECE_BYTES = 256 * 2**20

#: Decoded groups that a source keeps for `take`, in bytes; the one in use is kept even if it is larger.
_KEPT_BYTES = 2**30
_OPEN_FILES = 128

#: Groups decoded at once, where many are needed.
_DECODERS = 8

#: Footers read at once: each is some requests, and a dataset may have thousands of files.
_FOOTERS = 16


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How files of rows are read.

    >>> TableOptions.of(["name", "age"], key="name")
    TableOptions(columns=('name', 'age'), key='name', trust=False)
    """

    columns: tuple[str, ...] | None = None
    """The columns to read; None for all."""
    key: str | None = None
    """The column that holds the keys."""
    trust: bool = False

    @classmethod
    def of(cls, columns: Iterable[str] | None, key: str | None, *, trust: bool = False) -> TableOptions:
        """Check what a user gave."""
        chosen = None if columns is None else tuple(columns)
        if isinstance(columns, str) or chosen == ():
            raise PlanError(f"columns is {columns!r}, but must be a list of names, as in ['image', 'label']")
        return cls(chosen, key, trust)


@dataclass(frozen=True, slots=True)
class Place:
    """A file: its URL, where its bytes are (there, or in a cached copy), and which version of it is meant.

    >>> place = Place("s3://pets/2024.parquet", "s3://pets/2024.parquet", UrlInfo(1000, "etag"))
    >>> place.stem, place.is_passing
    ('2024', False)
    """

    url: str
    path: str
    info: UrlInfo
    copy: CachedFile | None = None
    """Keeps the cached copy in its place."""

    @property
    def is_passing(self) -> bool:
        """Whether the bytes go by once: those of a pipe do."""
        return self.info.size is None and (self.url == "-" or scheme(self.url) in ("pipe", "file"))

    @property
    def stem(self) -> str:
        """The name of the file without folder and extension; and without dots, which a key in a tar must not have."""
        kind, path = scheme(self.url), local_path(self.url)
        if kind in ("-", "pipe"):
            return "stdin" if kind == "-" else "pipe"
        if path is None:
            # Of names inside each other (zip://a.parquet::s3://b.zip) it is the first.
            path = next((part for part in self.url.split("::") if "://" in part), self.url)
            path = re.split(r"[?#]", path)[0] if kind in ("http", "https") else path
        return os.path.splitext(os.path.basename(path.rstrip("/")))[0].replace(".", "-") or "row"


class TableFile(Protocol):
    """An open file. Several threads may read groups of it at the same time.

    >>> class Empty:
    ...     bounds, is_passing = (0,), False
    ...     def pieces(self, group, size): return iter(())
    ...     def stored(self, group): return None
    >>> file: TableFile = Empty()
    >>> list(file.pieces(0, 1000))
    []
    """

    @property
    def bounds(self) -> Sequence[int] | None:
        """The row at which each group begins, and at last their number; None for one that ends nobody knows where."""

    @property
    def is_passing(self) -> bool:
        """Whether it can be read only once."""

    def pieces(self, group: int, size: int) -> Iterator[Rows]:
        """Read a group in pieces of about so many bytes."""

    def stored(self, group: int) -> int | None:
        """Give the bytes of a group in the file, as far as they are read; None if nobody knows."""


class TableSource(Source):
    """What Parquet and Arrow files have in common.

    >>> import tempfile, pandas
    >>> from shoal.sources import ParquetSource
    >>> path = f"{tempfile.mkdtemp()}/pets.parquet"
    >>> pandas.DataFrame({"name": ["Rex", "Mia"], "age": [3, 5]}).to_parquet(path)
    >>> source = ParquetSource(path, columns=["age"], key="name")
    >>> isinstance(source, TableSource), [source.length(shard) for shard in source.shards()]
    (True, [2])
    """

    suffixes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, urls: Urls, options: TableOptions, cache: Cache) -> None:
        self.urls = [os.fspath(urls)] if isinstance(urls, str | os.PathLike) else [os.fspath(url) for url in urls]
        self._options = options
        self._cache = shard_cache(cache)
        self._shards: tuple[Shard, ...] | None = None
        self._fingerprints: dict[str, str] = {}
        self._lengths: dict[str, int] = {}
        self._files: Kept[TableFile] = Kept(_OPEN_FILES, _one)
        self._groups: Kept[list[Rows]] = Kept(_KEPT_BYTES, _bytes_of)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.urls[:3]))}{', ...' if len(self.urls) > 3 else ''})"

    @abstractmethod
    def _opened(self, place: Place) -> TableFile:
        """Open a file of the format."""

    @property
    def seekable(self) -> bool:
        """Whether a sample can be picked without reading its shard from the beginning."""
        return all(shard.stop is not None for shard in self.shards())

    @property
    def counted(self) -> bool:
        """Whether all shards have told their lengths while they were listed."""
        return self.seekable

    @property
    def waits(self) -> bool:
        """Whether the files are elsewhere; groups of those here are decoded by pyarrow's own threads."""
        return any(local_path(shard.url) is None for shard in self.shards()[:1])

    def shards(self) -> Sequence[Shard]:
        """List the groups of all files, as ranges of rows; the footers are read the first time."""
        if self._shards is None:
            urls = self._listed()
            with ThreadPoolExecutor(_FOOTERS, thread_name_prefix="shoal-footers") as pool:
                found = list(pool.map(self._shards_of, urls))
            self._shards = tuple(shard for shards in found for shard in shards)
        return self._shards

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        """Yield a shard's samples in blocks, from its sample ``start`` on."""
        file, first = self._file(shard.url), shard.start + start * shard.step
        for piece in _pieces(file, first, shard.stop):
            stop = piece.stop if shard.stop is None else min(piece.stop, shard.stop)
            # The first row of the piece that is as many steps after the first one as it takes.
            low = first + -(-max(piece.first - first, 0) // shard.step) * shard.step
            rows = range(low, stop, shard.step)
            for at in range(0, len(rows), count := _block_rows(piece)):
                yield Block(piece.samples(rows[at : at + count]), (shard,))

    def length(self, shard: Shard) -> int:
        """Count the samples of a shard; only a stream has to be read for it, once."""
        return len(range(shard.start, self._rows(shard.url) if shard.stop is None else shard.stop, shard.step))

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        """Read the samples at these positions of a shard, in this order.

        A group is decoded once and kept for the calls to come, as long as those that are kept have less than 1 GiB.
        """
        file = self._file(shard.url)
        length = self._picked_length(shard, file)
        wrong = next((index for index in indices if not 0 <= index < length), None)
        if wrong is not None:
            raise _no_such_sample(shard, wrong, length)
        rows = [shard.start + index * shard.step for index in indices]
        if file.bounds is None:
            return _taken_from_stream(file, rows)
        homes = [bisect_right(file.bounds, row) - 1 for row in rows]
        return _gathered(rows, homes, partial(self._taken_from_group, shard.url, file))

    def take_columns(self, shard: Shard, indices: NDArray[np.int64]) -> Columns | None:
        """Read the samples at these positions, in this order, as columns; None for a stream, and for odd types.

        Groups are kept as they are for `take`.
        """
        file = self._file(shard.url)
        if file.bounds is None or not len(indices):
            return None
        rows = self._rows_at(shard, indices, file)
        parts, places = [], []
        for piece, here in self._homes(shard.url, file, rows):
            parts.append(piece.picked(rows if here is None else rows[here]))
            places.append(here)
        return _joined_columns(parts, places)

    def take_batches(self, picks: Picks, sizes: NDArray[np.int64]) -> list[Batch] | None:
        """Read samples of several shards as batches of so many, each as `take_columns` gives it; None as there."""
        from shoal.sources._batches import RowsAt, cut_into_batches  # brings pyarrow, which only reading needs

        wanted = picks.by_shard(in_order=False)
        self._decode_groups([shard for shard, _ in wanted])
        parts: list[RowsAt] = []
        for shard, here in wanted:
            file = self._file(shard.url)
            if file.bounds is None:
                return None
            rows = self._rows_at(shard, picks.offsets[here], file)
            for piece, some in self._homes(shard.url, file, rows):
                pool = piece.pool()
                if pool is None:
                    return None
                places = (rows, here) if some is None else (rows[some], here[some])
                parts.append(RowsAt(pool, places[0] - piece.first, places[1]))
        return cut_into_batches(parts, sizes) if parts else None

    def size(self, shard: Shard) -> int | None:
        """Give the bytes of a shard in its file, of columns that are read where the footer tells, or its share of them.

        A stream whose rows are dealt out in turn has equal shares.
        """
        file = self._file(shard.url)
        if file.bounds is None:
            size = None if shard.stop is not None else stat(shard.url).size
            return None if size is None else size // shard.step
        total = 0.0
        for group in _groups(file.bounds, shard.start, shard.stop):
            low, high = file.bounds[group], file.bounds[group + 1]
            stored = file.stored(group)
            if stored is None:
                return None
            rows = min(high, high if shard.stop is None else shard.stop) - max(low, shard.start)
            total += stored * rows / (high - low)
        return round(total / shard.step)

    def split(self, shard: Shard, parts: int) -> list[Shard]:
        """Cut a shard into ranges of rows; a stream, in which nobody can seek, is dealt out in turn."""
        known = shard.step == 1 and self._file(shard.url).bounds is not None
        return shard.split(parts, self.length(shard) if known else None)

    def fingerprint(self, shard: Shard) -> str:
        """Give a short text that changes when the shard's file does: its size, or what a store calls its version."""
        if shard.url not in self._fingerprints:
            self._check_version(shard.url, stat(shard.url))
        return self._fingerprints[shard.url]

    def _listed(self) -> list[str]:
        """List the files."""
        return expand(self.urls, suffixes=self.suffixes)

    def _shards_of(self, url: str) -> list[Shard]:
        bounds = self._file(url).bounds
        if bounds is None:
            return [Shard(url)]
        # A file without rows is a shard, too: it is part of the dataset.
        return [Shard(url, low, high) for low, high in pairwise(bounds) if low < high] or [Shard(url, 0, 0)]

    def _taken_from_group(self, url: str, file: TableFile, group: int, rows: list[int]) -> list[Sample]:
        pieces = self._group(url, file, group)
        homes = [bisect_right(pieces, row, key=_first) - 1 for row in rows]
        return _gathered(rows, homes, lambda home, here: pieces[home].samples(here))

    def _group(self, url: str, file: TableFile, group: int) -> list[Rows]:
        return self._groups.get((url, group), lambda: list(file.pieces(group, _GROUP_PIECE_BYTES)))

    def _homes(self, url: str, file: TableFile, rows: NDArray[np.int64]) -> Iterator[tuple[Rows, Places]]:
        """Find the pieces that rows lie in, and for each which of the rows; None for all."""
        assert file.bounds is not None
        for group, here in _parted(file.bounds, rows):
            pieces = self._group(url, file, group)
            inner = rows if here is None else rows[here]
            for number, place in _parted([piece.first for piece in pieces], inner):
                yield pieces[number], place if here is None else here if place is None else here[place]

    def _decode_groups(self, shards: Sequence[Shard]) -> None:
        """Decode the groups that shards lie in, several at a time, if more than one is not there yet."""
        wanted = [
            (shard.url, file, group)
            for shard in shards
            if (file := self._file(shard.url)).bounds is not None
            for group in _groups(file.bounds, shard.start, shard.stop)
            if (shard.url, group) not in self._groups
        ]
        if len(wanted) > 1:
            with ThreadPoolExecutor(min(processors(), _DECODERS), thread_name_prefix="shoal-groups") as pool:
                list(pool.map(lambda place: self._group(*place), wanted))

    def _rows_at(self, shard: Shard, indices: NDArray[np.int64], file: TableFile) -> NDArray[np.int64]:
        """Give the rows of a file that are at positions of a shard."""
        length = self._picked_length(shard, file)
        if int(indices.min()) < 0 or int(indices.max()) >= length:
            raise _no_such_sample(shard, int(indices[(indices < 0) | (indices >= length)][0]), length)
        return shard.start + indices * shard.step

    def _picked_length(self, shard: Shard, file: TableFile) -> int:
        """Count the samples that can be picked: a shard may name more rows than there are."""
        length, bounds = self.length(shard), file.bounds
        return length if bounds is None else min(length, len(range(shard.start, bounds[-1], shard.step)))

    def _rows(self, url: str) -> int:
        file = self._file(url)
        if file.bounds is not None:
            return file.bounds[-1]
        if file.is_passing:
            raise PlanError(f"{display(url)!r} can be read only once: it has no length and no random access")
        if url not in self._lengths:
            self._lengths[url] = sum(piece.stop - piece.first for piece in file.pieces(0, _PIECE_BYTES))
        return self._lengths[url]

    def _file(self, url: str) -> TableFile:
        return self._files.get(url, lambda: self._opened(self._place(url)))

    def _place(self, url: str) -> Place:
        info = stat(url)
        self._check_version(url, info)
        if self._cache is not None and local_path(url) is None and info.size is not None:
            try:
                copy = self._cache.open(url)
                return Place(url, copy.path, info, copy)
            except CacheError as error:
                warnings.warn(f"{error}; the file is read where it is instead", stacklevel=2)
        return Place(url, url, info)

    def _check_version(self, url: str, info: UrlInfo) -> None:
        """Refuse a file that is not the one whose rows were counted."""
        # A copy on another host is the same file, and its time is another one.
        identity = info.version if local_path(url) is None and info.version is not None else info.size
        seen = "" if identity is None else str(identity)
        before = self._fingerprints.setdefault(url, seen)
        if before != seen:
            text = f"{display(url)} changed since it was first looked at: it was {before} and is now {seen}"
            raise UrlChangedError(f"{text}; make the dataset anew", url=display(url))


def _pieces(file: TableFile, first: int, stop: int | None) -> Iterator[Rows]:
    """Read the groups that hold the rows from ``first`` to ``stop``, leaving out pieces that hold none of them."""
    for group in range(1) if file.bounds is None else _groups(file.bounds, first, stop):
        for piece in file.pieces(group, _PIECE_BYTES):
            if piece.stop > first:
                yield piece
            # A group that is wanted to its end is read to its end, where its reader makes sure that it was all.
            if stop is not None and piece.stop >= stop and (file.bounds is None or stop < file.bounds[group + 1]):
                return


def _groups(bounds: Sequence[int], first: int, stop: int | None) -> range:
    last = bounds[-1] if stop is None else min(stop, bounds[-1])
    return range(bisect_right(bounds, first) - 1, bisect_right(bounds, last - 1)) if first < last else range(0)


def _block_rows(piece: Rows) -> int:
    rows = piece.stop - piece.first
    return max(1, min(_BLOCK_SAMPLES, _BLOCK_BYTES * rows // max(piece.nbytes, 1)))


def _taken_from_stream(file: TableFile, rows: list[int]) -> list[Sample]:
    wanted = sorted(set(rows))
    found: dict[int, Sample] = {}
    for piece in _pieces(file, wanted[0], wanted[-1] + 1) if wanted else ():
        here = [row for row in wanted if piece.first <= row < piece.stop]
        found.update(zip(here, piece.samples(here), strict=True))
    if len(found) < len(wanted):
        raise IndexError(f"the stream ends before row {wanted[len(found)]}")
    return [dict(found[row]) for row in rows]


def _gathered(rows: list[int], homes: list[int], read: Callable[[int, list[int]], list[Sample]]) -> list[Sample]:
    """Read rows home by home, and put them in the order in which they were asked for."""
    places: dict[int, list[int]] = {}
    for place, home in enumerate(homes):
        places.setdefault(home, []).append(place)
    samples: list[Sample] = [{}] * len(rows)
    for home, here in places.items():
        for place, sample in zip(here, read(home, [rows[place] for place in here]), strict=True):
            samples[place] = sample
    return samples


def _parted(firsts: Sequence[int], rows: NDArray[np.int64]) -> Iterator[tuple[int, Places]]:
    """Sort rows by the part that they lie in, of parts that begin at ``firsts``."""
    low, high = (bisect_right(firsts, int(row)) - 1 for row in (rows.min(), rows.max()))
    if low == high:
        yield low, None
        return
    homes = np.searchsorted(np.asarray(firsts), rows, side="right") - 1
    for home in np.unique(homes).tolist():
        yield home, np.flatnonzero(homes == home)


def _joined_columns(parts: Sequence[Picked | None], places: Sequence[Places]) -> Columns | None:
    picked = [part for part in parts if part is not None]
    if len(picked) < len(parts):
        return None
    whole: Picked | None = picked[0]
    if len(picked) > 1:
        whole = picked[0].joined(picked, np.argsort(np.concatenate([here for here in places if here is not None])))
    return None if whole is None else whole.columns()


def _no_such_sample(shard: Shard, index: int, length: int) -> IndexError:
    return IndexError(f"there is no sample {index} in shard {display(shard.url)}, which has {length}")


def _one(file: TableFile) -> int:
    return 1


def _first(piece: Rows) -> int:
    return piece.first


def _bytes_of(pieces: list[Rows]) -> int:
    return sum(piece.nbytes for piece in pieces)
