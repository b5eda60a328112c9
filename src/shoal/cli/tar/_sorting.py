"""Sort samples that do not fit into memory.

Samples are held until they fill the memory, then sorted and put away: their bytes into one file, in this order, and
what they are compared by into another, which is all that merging looks at. A sample's bytes are written once and read
once, whatever their number, and only one sample is in memory while they are put out. Both files have no name, so they
are gone with the process, however it ends. What fits into memory touches no disk.
"""

from __future__ import annotations

import heapq
import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from operator import itemgetter
from types import TracebackType
from typing import IO, Self, TypeAlias

from shoal.abc import Sample

__all__ = ["Sorter"]

#: What a sample costs in memory beside its bytes, and each of its fields, as measured with small ones.
_PER_SAMPLE, _PER_FIELD = 500, 120
#: Runs that are merged at once; more are merged into one first.
_MOST_RUNS = 256
_CHUNK = 2**16
_RECORD = struct.Struct("<IQQ")
_HEAD = struct.Struct("<I")

#: What a sample is compared by, and where its bytes are.
_Place: TypeAlias = "tuple[bytes, int, int]"


@dataclass(frozen=True, slots=True)
class _Run:
    """Sorted places: bytes of the file that holds them."""

    begin: int
    end: int


class Sorter:
    """Takes samples in any order and gives them back sorted; those that compare equal as they came.

    >>> with Sorter(lambda sample: sample["txt"], memory=2000) as sorter:
    ...     for key, text in [("a", b"3"), ("b", b"1"), ("c", b"2"), ("d", b"1"), ("e", b"0")]:
    ...         sorter.add({"__key__": key, "txt": text})
    ...     [sample["__key__"] for _, sample in sorter.sorted()], sorter.runs
    (['e', 'b', 'd', 'c', 'a'], 2)
    """

    def __init__(
        self, rank: Callable[[Sample], bytes], *, memory: int, folder: str | None = None, reverse: bool = False
    ) -> None:
        self._rank, self._memory, self._reverse = rank, memory, reverse
        self._folder = folder
        self._files = ExitStack()
        self._bytes: _Spool | None = None
        self._places: _Spool | None = None
        self._held: list[tuple[bytes, Sample]] = []
        self._weight = 0
        self._runs: list[_Run] = []
        self.runs = 0
        """How many times samples were put on the disk."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.close()

    def add(self, sample: Sample) -> None:
        """Take a sample."""
        rank = self._rank(sample)
        self._held.append((rank, sample))
        self._weight += _PER_SAMPLE + len(rank) + sum(_PER_FIELD + len(value) for value in sample.values())
        if self._weight >= self._memory:
            self._put_away()

    def sorted(self) -> Iterator[tuple[bytes, Sample]]:
        """Give all samples, each with what it was compared by."""
        if not self._runs:
            yield from self._sorted_held()
            return
        if self._held:
            self._put_away()
        assert self._bytes is not None
        for rank, offset, size in self._merged(self._runs):
            yield rank, _unpacked(self._bytes.read(offset, size))

    def _sorted_held(self) -> list[tuple[bytes, Sample]]:
        held, self._held, self._weight = self._held, [], 0
        held.sort(key=itemgetter(0), reverse=self._reverse)
        return held

    def _put_away(self) -> None:
        if self._bytes is None:
            self._bytes = _Spool(self._files, self._folder)
            self._places = _Spool(self._files, self._folder)
        spool = self._bytes
        # Sample by sample, so that what is written is let go.
        held = self._sorted_held()
        held.reverse()
        places = ((rank, *spool.append(_packed(sample))) for rank, sample in _emptied(held))
        self._runs.append(self._written(places))
        self.runs += 1
        if len(self._runs) >= _MOST_RUNS:
            self._runs = [self._written(self._merged(self._runs))]

    def _written(self, places: Iterable[_Place]) -> _Run:
        spool = self._places
        assert spool is not None
        begin = spool.end
        for rank, offset, size in places:
            spool.append(_RECORD.pack(len(rank), offset, size) + rank)
        return _Run(begin, spool.end)

    def _merged(self, runs: list[_Run]) -> Iterator[_Place]:
        return heapq.merge(*map(self._read, runs), key=itemgetter(0), reverse=self._reverse)

    def _read(self, run: _Run) -> Iterator[_Place]:
        spool = self._places
        assert spool is not None
        position, data, at = run.begin, b"", 0
        while at < len(data) or position < run.end:
            wanted = _RECORD.size
            if len(data) - at >= wanted:
                wanted += _RECORD.unpack_from(data, at)[0]
            if len(data) - at < wanted:
                more = spool.read(position, min(max(_CHUNK, wanted), run.end - position))
                data, at, position = data[at:] + more, 0, position + len(more)
                continue
            length, offset, size = _RECORD.unpack_from(data, at)
            at += wanted
            yield data[at - length : at], offset, size


class _Spool:
    """A file without a name that grows at its end and is read anywhere."""

    def __init__(self, files: ExitStack, folder: str | None) -> None:
        opened: IO[bytes] = tempfile.TemporaryFile(prefix="tarsort-", dir=folder)  # noqa: SIM115  (closed with them)
        self._file = files.enter_context(opened)
        self.end = 0

    def append(self, data: bytes) -> tuple[int, int]:
        """Write bytes; give back where they are."""
        begin, self.end = self.end, self.end + len(data)
        self._file.write(data)
        return begin, len(data)

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes that were written."""
        self._file.flush()
        parts = []
        while size:
            part = os.pread(self._file.fileno(), size, offset)
            assert part, "nobody else knows the file, so nobody can have cut it"
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)


def _emptied(held: list[tuple[bytes, Sample]]) -> Iterator[tuple[bytes, Sample]]:
    while held:
        yield held.pop()


def _packed(sample: Sample) -> bytes:
    fields = {name: value for name, value in sample.items() if isinstance(value, bytes)}
    told = {name: value for name, value in sample.items() if not isinstance(value, bytes)}
    head = json.dumps([told, [[name, len(value)] for name, value in fields.items()]]).encode()
    return b"".join([_HEAD.pack(len(head)), head, *fields.values()])


def _unpacked(data: bytes) -> Sample:
    at = _HEAD.size + _HEAD.unpack_from(data)[0]
    sample, fields = json.loads(data[_HEAD.size : at])
    for name, size in fields:
        sample[name] = data[at : at + size]
        at += size
    return dict(sample)
