"""One TFRecord file, open: mapped if it is plain and here, read as a stream if not."""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.files import CachedFile, local_path, open_read
from shoal.sources._tfrecord_records import (
    HEAD_BYTES,
    Record,
    compression_of,
    open_records,
    read_records,
    reader_of,
    record_offsets,
)

__all__ = ["RecordFile", "open_record_file"]


def open_record_file(url: str, copy: CachedFile | None = None) -> RecordFile:
    """Open a file where it is, or its copy in a cache.

    >>> import pathlib, tempfile
    >>> from shoal.sources import pack_record
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.tfrecord")
    >>> _ = path.write_bytes(pack_record(b"one") + pack_record(b"two"))
    >>> open_record_file(str(path)).mapped
    True
    """
    place = url if copy is None else copy.path
    with open_read(place) as file:
        plain = compression_of(file.read(HEAD_BYTES)) is None
    path = local_path(place)
    return MappedRecords(url, path, copy) if plain and path is not None else StreamedRecords(url, copy, plain)


class RecordFile(ABC):
    """A file of records."""

    mapped: bool
    """Whether any record is at hand."""
    plain: bool
    """Whether it is not compressed, so that one can begin to read at any record."""

    def __init__(self, url: str, copy: CachedFile | None) -> None:
        self.url, self._copy = url, copy
        self._known: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.offsets()) - 1

    def offsets(self) -> NDArray[np.int64]:
        """Give where each record begins, and at last the end of all; found out once."""
        if self._known is None:
            self._known = self._find_offsets()
        return self._known

    @abstractmethod
    def _find_offsets(self) -> NDArray[np.int64]:
        """Find where records begin."""

    @abstractmethod
    def records(self, first: int) -> Iterator[Record]:
        """Read the records from one on."""

    @abstractmethod
    def pick(self, numbers: Sequence[int]) -> list[Record]:
        """Read some records, in this order."""


class MappedRecords(RecordFile):
    """A plain local file."""

    mapped = plain = True

    def __init__(self, url: str, path: str, copy: CachedFile | None) -> None:
        super().__init__(url, copy)
        with open(path, "rb") as file:
            empty = os.fstat(file.fileno()).st_size == 0
            self._data = memoryview(b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def records(self, first: int) -> Iterator[Record]:
        """Read the records from one on; of a damaged file, those before the damage."""
        place = int(self.offsets()[first]) if first else 0
        return read_records(reader_of(self._data, place), self.url, offset=place, number=first)

    def pick(self, numbers: Sequence[int]) -> list[Record]:
        """Read some records, in this order."""
        places = self.offsets()
        return [self._record(int(places[number]), number) for number in numbers]

    def _find_offsets(self) -> NDArray[np.int64]:
        return record_offsets(self._data, self.url)

    def _record(self, place: int, number: int) -> Record:
        return next(read_records(reader_of(self._data, place), self.url, offset=place, number=number))


class StreamedRecords(RecordFile):
    """A file that is compressed, or elsewhere: read from its beginning, whatever is wanted of it."""

    mapped = False

    def __init__(self, url: str, copy: CachedFile | None, plain: bool) -> None:
        super().__init__(url, copy)
        self.plain = plain

    def records(self, first: int) -> Iterator[Record]:
        """Read the records from one on."""
        path = self.url if self._copy is None else self._copy.path
        with open_records(path) as read:
            yield from (record for record in read_records(read, self.url) if record.number >= first)

    def pick(self, numbers: Sequence[int]) -> list[Record]:
        """Read some records, in this order, in one pass up to the last of them."""
        found: dict[int, Record] = {}
        wanted, last = set(numbers), max(numbers, default=-1)
        for record in self.records(0) if wanted else ():
            if record.number in wanted:
                found[record.number] = record
            if record.number >= last:
                break
        return [found[number] for number in numbers]

    def _find_offsets(self) -> NDArray[np.int64]:
        return np.array([0, *(record.stop for record in self.records(0))], np.int64)
