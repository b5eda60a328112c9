"""Check shards: what a tar is made of, how its files group, whether fields decode, what its indexes say.

Reading goes on behind what is wrong where that can be: in a plain local tar at the next header.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias

from shoal._kinds import kind_of, source_of
from shoal.cli._at_once import Stop
from shoal.cli._problems import Problem, Report, Sighting, problem_of
from shoal.errors import (
    IndexFileError,
    MissingExtraError,
    SampleError,
    ShardError,
    ShoalError,
    TrustError,
    UrlNotFoundError,
)
from shoal.files import local_path, open_read, scheme, stat
from shoal.shards import (
    Entry,
    Extent,
    IndexBuilder,
    MappedTar,
    ShardIndex,
    StreamedTar,
    beside,
    detect_compression,
    load_index,
    read_dali_index,
    split_name,
)
from shoal.shards.codecs import DecodeOptions, decode

__all__ = ["Checks", "checked", "dali_beside"]

#: A file of a tar: its name, where its first header is, where its bytes are, and these if they are looked at.
_Member: TypeAlias = "tuple[str, int, Extent, bytes | memoryview | None]"

_BLOCK = 512
_COLUMNS = ("keys", "key_ends", "begins", "member_ends", "offsets", "sizes")


@dataclass(frozen=True, slots=True)
class Checks:
    """What is looked at, beside what is always."""

    decode: bool = False
    trust: bool = False


def checked(checks: Checks, url: str, stop: Stop | None = None) -> Report:
    """Check one shard; an error of reading is a problem as any other."""
    report, stop = Report(url), stop or Stop()
    try:
        if kind_of(url) == "tar":
            _TarCheck(report, checks, stop).run()
        else:
            _read_through(report, checks, stop)
    except ShoalError as error:
        report.add(problem_of(error, url, "reading"))
    return report


def dali_beside(path: str) -> str:
    """Name the index that DALI looks for beside a tar.

    >>> dali_beside("train-0000.tar")
    'train-0000.idx'
    """
    return path.removesuffix(".tar") + ".idx"


def _read_through(report: Report, checks: Checks, stop: Stop) -> None:
    """Read a table or records to the end; what they have of checksums is looked at on the way."""
    source = source_of(report.shard, trust=checks.trust)
    for shard in source.shards():
        try:
            for block in source.open(shard):
                stop.check()
                report.samples += len(block.samples)
        except ShoalError as error:
            report.add(problem_of(error, report.shard, "reading"))


class _TarCheck:
    """One tar on its way past: the sample that is being put together, and what was seen before."""

    def __init__(self, report: Report, checks: Checks, stop: Stop) -> None:
        self._report, self._checks, self._stop = report, checks, stop
        self._options = DecodeOptions()
        self._entry: Entry[Extent] | None = None
        self._seen: dict[str, int] = {}
        self._indexes = dict(self._found_indexes())
        self._builder = IndexBuilder() if self._indexes else None
        """Makes the index that others are compared with, as long as the shard can have one."""
        self._seekable = True

    def run(self) -> None:
        """Go through the tar once."""
        for name, begin, extent, data in self._members():
            self._stop.check()
            parts = split_name(name)
            if parts is not None:
                self._take(*parts, begin, extent)
                if data is not None:
                    self._decode(parts[0], parts[1], data, begin)
        self._finish()
        for url, index in self._indexes.items():
            self._check_index(url, index)

    def _members(self) -> Iterator[_Member]:
        url = self._report.shard
        with closing(open_read(url, trust=self._checks.trust)) as stream:
            compression, stream = detect_compression(stream)
            if compression is None and local_path(url) is not None and stream.seekable():
                yield from self._mapped(MappedTar(stream, url))
            else:
                yield from self._streamed(StreamedTar(stream, url))

    def _mapped(self, tar: MappedTar) -> Iterator[_Member]:
        begin: int | None = 0
        while begin is not None:
            try:
                for name, at, extent in tar.members(begin):
                    yield name, at, extent, tar.view(extent) if self._checks.decode else None
                return
            except ShardError as error:
                self._damaged(error)
                begin = None if error.offset is None else tar.next_header(error.offset + _BLOCK)

    def _streamed(self, tar: StreamedTar) -> Iterator[_Member]:
        self._seekable = tar.is_plain
        try:
            for name, at, payload in tar.members(lambda name: self._checks.decode):
                yield name, at, (payload.offset, payload.size), payload.data
        except ShardError as error:
            self._damaged(error)

    def _damaged(self, error: ShardError) -> None:
        self._report.add(problem_of(error, self._report.shard, "structure"))
        self._builder = None

    def _take(self, key: str, field: str, begin: int, extent: Extent) -> None:
        if self._entry is None or self._entry.key != key:
            self._finish()
            self._entry = Entry(key, begin)
            self._begun(key, begin)
        if field in self._entry.fields or field == "__key__":
            text = "two files of the sample have this field"
            self._report.add(Problem(self._report.shard, "grouping", text, begin, key, field))
            self._builder = None
        self._entry.fields[field] = extent

    def _begun(self, key: str, begin: int) -> None:
        before = self._seen.setdefault(key, begin)
        if before != begin:
            text = f"this key was at offset {before} already; the files of a sample must be neighbours"
            self._report.add(Problem(self._report.shard, "grouping", text, begin, key))

    def _finish(self) -> None:
        if self._entry is None:
            return
        entry, self._entry = self._entry, None
        self._report.samples += 1
        sighting = Sighting(self._report.shard, entry.key, entry.begin)
        self._report.field_sets.add(tuple(sorted(entry.fields)), sighting)
        if self._builder is not None:
            self._builder.add(entry)

    def _decode(self, key: str, field: str, data: bytes | memoryview, begin: int) -> None:
        try:
            decode(field, data, self._options)
        except SampleError as error:
            self._report.add(problem_of(error, self._report.shard, "decoding", key=key, offset=begin))
        except (TrustError, MissingExtraError) as error:
            self._report.unchecked.add(f"{field} was not decoded: {error}")

    def _found_indexes(self) -> Iterator[tuple[str, ShardIndex]]:
        """Find the indexes beside the shard; one that is none is a problem at once."""
        url, path = self._report.shard, local_path(self._report.shard)
        if scheme(url) in ("-", "pipe"):
            return
        for place, shard in ((beside(url), None), *([] if path is None else [(dali_beside(path), path)])):
            try:
                yield place, load_index(place) if shard is None else read_dali_index(place, shard)
            except (UrlNotFoundError, FileNotFoundError):
                continue
            except IndexFileError as error:
                self._disagrees(str(error))

    def _check_index(self, url: str, index: ShardIndex) -> None:
        """Compare an index with what was found; that of DALI names no version of its shard."""
        info = stat(self._report.shard)
        if (index.shard_size, index.version) != (info.size, info.version):
            self._disagrees(f"{url} is of another version of the shard; make it anew with shoal index")
        elif self._builder is not None:
            found = self._builder.build(shard_size=info.size or 0, version="", seekable=self._seekable)
            if not _same(index, found):
                self._disagrees(f"{url} says otherwise than the shard; make it anew with shoal index --force")

    def _disagrees(self, text: str) -> None:
        self._report.add(Problem(self._report.shard, "index", text))


def _same(one: ShardIndex, other: ShardIndex) -> bool:
    names = ([index.fields[number] for number in index.field_ids] for index in (one, other))
    columns = ([getattr(index, column).tolist() for column in _COLUMNS] for index in (one, other))
    return next(names) == next(names) and next(columns) == next(columns)
