"""Read a tar as samples: over a memory map where there is a plain local file, along a stream otherwise."""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from typing import BinaryIO, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from shoal.abc import Columns, Sample
from shoal.errors import TruncatedShardError
from shoal.shards._compression import decompressed, detect_compression
from shoal.shards._grouping import Entry, group, split_name
from shoal.shards._index import Extent, Lookup, ShardIndex
from shoal.shards._walk import find_header, mapped_members, stream_members

__all__ = ["MappedTar", "Payload", "Rename", "StreamedTar", "owned"]

T = TypeVar("T")

#: Where the lines of the processor's cache begin that hold the first bytes of a field.
_LINES = np.arange(0, 256, 64)

#: Rewrites a member's name before grouping; None leaves the member out.
Rename: TypeAlias = Callable[[str], str | None]


class Payload(NamedTuple):
    """A field that came along a stream: where it was, and its bytes unless nobody wants them.

    >>> Payload(offset=512, size=5, data=b"hello").data
    b'hello'
    """

    offset: int
    size: int
    data: bytes | None


class MappedTar:
    """A plain tar file, mapped. Samples are views into the map, which lives as long as any of them does.

    >>> import tempfile
    >>> from shoal.shards import TarWriter
    >>> path = f"{tempfile.mkdtemp()}/a.tar"
    >>> with TarWriter(path) as writer:
    ...     _ = writer.write({"__key__": "a", "txt": "hello"})
    >>> with open(path, "rb") as file:
    ...     tar = MappedTar(file, path)
    >>> [(entry.key, bytes(tar.view(entry.fields["txt"]))) for entry in tar.entries()]
    [('a', b'hello')]
    """

    def __init__(self, file: BinaryIO, name: str, rename: Rename | None = None) -> None:
        try:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise TruncatedShardError("the file is empty", shard=name, offset=0) from error
        self._view = memoryview(self._map)
        self._rename = rename
        self.name = name
        self.size = len(self._map)

    def entries(self, begin: int = 0) -> Iterator[Entry[Extent]]:
        """Find the samples by walking the headers, from the one at ``begin`` on."""
        return group(self.members(begin), self.name)

    def members(self, begin: int = 0) -> Iterator[tuple[str, int, Extent]]:
        """Find the regular files one by one: name, place of the first header, place of the bytes."""
        runs = mapped_members(self._map, self.name, begin)
        members: Iterator[tuple[str, int, Extent]] = chain.from_iterable(
            zip(run.names, run.begins, zip(run.offsets, run.sizes, strict=True), strict=True) for run in runs
        )
        return members if self._rename is None else _renamed(members, self._rename)

    def next_header(self, begin: int) -> int | None:
        """Find the first header at or behind a place, where reading may go on behind damage; None if there is none."""
        return find_header(self._map, begin)

    def view(self, extent: Extent) -> memoryview:
        """Look at the bytes of a member."""
        offset, size = extent
        return self._view[offset : offset + size]

    def indexed_samples(self, index: ShardIndex, first: int, keep: Collection[str] | None) -> Iterator[Sample]:
        """Make samples of views from an index, without looking at the headers."""
        view = self._view
        for rows in index.rows(first):
            names, offsets, sizes, member = rows.names, rows.offsets, rows.sizes, 0
            for key, end in zip(rows.keys, rows.member_ends, strict=True):
                sample: Sample = {"__key__": key}
                while member < end:
                    if keep is None or names[member] in keep:
                        offset = offsets[member]
                        sample[names[member]] = view[offset : offset + sizes[member]]
                    member += 1
                yield sample

    def picked_samples(
        self, lookup: Lookup, positions: Iterable[int], keep: Collection[str] | None = None
    ) -> list[Sample]:
        """Make samples at any positions, of views."""
        view, samples = self._view, []
        for position in positions:
            key, fields = lookup.fields(position)
            sample: Sample = {"__key__": key}
            for name, offset, size in fields:
                if keep is None or name in keep:
                    sample[name] = view[offset : offset + size]
            samples.append(sample)
        return samples

    def picked_columns(
        self, lookup: Lookup, positions: NDArray[np.int64], keep: Collection[str] | None = None
    ) -> Columns | None:
        """Make columns of samples at any positions, of bytes; None where samples differ in their fields."""
        fields = lookup.columns(positions, keep)
        if fields is None:
            return None
        mapped = self._map
        columns: Columns = {"__key__": lookup.keys(positions)}
        for name, begins, ends in fields:
            # numpy waits for many places of memory at once and Python for one after the other, so it goes first.
            np.frombuffer(mapped, np.uint8).take(begins[:, None] + _LINES, mode="clip")
            columns[name] = [mapped[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        return columns

    def sample(self, entry: Entry[Extent], keep: Collection[str] | None) -> Sample:
        """Make a sample of views; of all fields, or of those to keep."""
        view = self._view
        sample: Sample = {"__key__": entry.key}
        for field, (offset, size) in entry.fields.items():
            if keep is None or field in keep:
                sample[field] = view[offset : offset + size]
        return sample


class StreamedTar:
    """A tar that can only be read forward, compressed or not. Samples have the bytes of the fields that are kept.

    ``begin`` is where in the tar the stream starts; one that starts in the middle is not compressed.

    >>> from shoal.shards import TarWriter
    >>> buffer = io.BytesIO()
    >>> with TarWriter(buffer) as writer:
    ...     _ = writer.write({"__key__": "a", "txt": "hello"})
    >>> tar = StreamedTar(io.BufferedReader(io.BytesIO(buffer.getvalue())), "a.tar")
    >>> [tar.sample(entry) for entry in tar.entries()]
    [{'__key__': 'a', 'txt': b'hello'}]
    """

    def __init__(self, stream: io.BufferedReader, name: str, rename: Rename | None = None, *, begin: int = 0) -> None:
        compression, stream = (None, stream) if begin else detect_compression(stream)
        self._stream = decompressed(stream, compression)
        self._rename = rename
        self._begin = begin
        self.name = name
        self.is_plain = compression is None
        """Whether the offsets of its members are those of the stream itself."""

    def entries(self, keep: Collection[str] | None = None) -> Iterator[Entry[Payload]]:
        """Read the samples, with the bytes of all fields or of those to keep."""

        def wanted(member: str) -> bool:
            parts = split_name(self._renamed(member) or "")
            return parts is not None and (keep is None or parts[1] in keep)

        return group(self.members(wanted), self.name)

    def members(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, int, Payload]]:
        """Read the regular files one by one, with the bytes of those whose names are wanted."""
        return (
            (new, member.begin, Payload(member.offset, member.size, data))
            for member, data in stream_members(self._stream, self.name, wanted, self._begin)
            if (new := self._renamed(member.name)) is not None
        )

    @staticmethod
    def sample(entry: Entry[Payload]) -> Sample:
        """Make a sample of the bytes that were kept."""
        sample: Sample = {"__key__": entry.key}
        for field, payload in entry.fields.items():
            if payload.data is not None:
                sample[field] = payload.data
        return sample

    def _renamed(self, member: str) -> str | None:
        return member if self._rename is None else self._rename(member)


def owned(sample: Sample) -> Sample:
    """Copy, in place, what is still a view into a shard: user code expects bytes, and a view keeps the whole shard.

    >>> owned({"__key__": "a", "txt": memoryview(b"hello")})
    {'__key__': 'a', 'txt': b'hello'}
    """
    for name, value in sample.items():
        if type(value) is memoryview:
            sample[name] = bytes(value)
    return sample


def _renamed(members: Iterable[tuple[str, int, T]], rename: Rename) -> Iterator[tuple[str, int, T]]:
    return ((new, begin, value) for name, begin, value in members if (new := rename(name)) is not None)
