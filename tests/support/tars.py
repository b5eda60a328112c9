"""Small tars of every make, and reading them both ways."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal.errors import SampleError, ShardError
from shoal.shards import MappedTar, StreamedTar

BLOCK = 512
END = bytes(2 * BLOCK)
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


@dataclass(frozen=True)
class Found:
    """One sample as it was found: its fields' places and bytes."""

    key: str
    begin: int
    places: tuple[tuple[str, int, int], ...]
    fields: dict[str, bytes]


@dataclass(frozen=True)
class Outcome:
    """What reading gave: samples, and the error that ended it, if one did."""

    samples: list[Found]
    error: ShardError | SampleError | None = None

    @property
    def plain(self) -> list[tuple[str, dict[str, bytes]]]:
        return [(sample.key, sample.fields) for sample in self.samples]


def read_mapped(data: bytes, name: str = "s.tar") -> Outcome:
    """Read a tar over a memory map."""
    file = os.memfd_create("tar")
    try:
        os.write(file, data)
        with open(file, "rb", closefd=False) as opened:
            return _outcome(lambda: _mapped(MappedTar(opened, name)))
    finally:
        os.close(file)


def read_streamed(data: bytes, name: str = "s.tar", keep: frozenset[str] | None = None) -> Outcome:
    """Read a tar along a stream that cannot seek."""
    return _outcome(lambda: _streamed(io.BufferedReader(Unseekable(data)), name, keep))


def read_both(data: bytes, name: str = "s.tar") -> Outcome:
    """Read a tar both ways, which must agree in every sample, place and word."""
    mapped, streamed = read_mapped(data, name), read_streamed(data, name)
    assert mapped.samples == streamed.samples
    assert (type(mapped.error), str(mapped.error)) == (type(streamed.error), str(streamed.error))
    return mapped


def samples_of(data: bytes) -> list[tuple[str, dict[str, bytes]]]:
    """Read a sound tar both ways."""
    outcome = read_both(data)
    assert outcome.error is None
    return outcome.plain


def _mapped(tar: MappedTar) -> Iterator[Found]:
    for entry in tar.entries():
        sample = tar.sample(entry, None)
        places = tuple((field, *extent) for field, extent in entry.fields.items())
        yield Found(entry.key, entry.begin, places, {field: bytes(sample[field]) for field in entry.fields})


def _streamed(stream: io.BufferedReader, name: str, keep: frozenset[str] | None) -> Iterator[Found]:
    for entry in StreamedTar(stream, name).entries(keep):
        places = tuple((field, payload.offset, payload.size) for field, payload in entry.fields.items())
        fields = {field: payload.data for field, payload in entry.fields.items() if payload.data is not None}
        yield Found(entry.key, entry.begin, places, fields)


def _outcome(read: Callable[[], Iterator[Found]]) -> Outcome:
    samples: list[Found] = []
    try:
        for sample in read():
            samples.append(sample)
    except (ShardError, SampleError) as error:
        return Outcome(samples, error)
    return Outcome(samples)


class Unseekable(io.RawIOBase):
    """Bytes that come once, in pieces of at most ``piece``."""

    def __init__(self, data: bytes, piece: int = 1 << 20) -> None:
        self._data = memoryview(data)
        self._piece = piece

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        count = min(len(buffer), len(self._data), self._piece)
        buffer[:count] = self._data[:count]
        self._data = self._data[count:]
        return count


def header(
    name: bytes | str,
    size: int | bytes = 0,
    kind: bytes = b"0",
    *,
    magic: bytes = b"ustar\x0000",
    prefix: bytes = b"",
    link: bytes = b"",
) -> bytes:
    """Make one header block by hand; a size given as bytes goes in as it is."""
    raw = name.encode() if isinstance(name, str) else name
    digits = size if isinstance(size, bytes) else b"%011o\0" % size
    block = b"".join(
        [
            raw.ljust(100, b"\0"),
            b"0000644\0" + b"0001750\0" * 2,
            digits.ljust(12, b"\0"),
            b"00000000000\0" + b" " * 8 + kind,
            link.ljust(100, b"\0"),
            magic.ljust(8, b"\0"),
            bytes(80),
            prefix.ljust(155, b"\0"),
        ]
    )
    return with_checksum(block.ljust(BLOCK, b"\0"))


def with_checksum(block: bytes) -> bytes:
    """Set a header's checksum right."""
    total = sum(block[:148]) + sum(block[156:]) + 8 * ord(" ")
    return block[:148] + b"%06o\0 " % total + block[156:]


def body(data: bytes) -> bytes:
    """Fill up to whole blocks."""
    return data + bytes(-len(data) % BLOCK)


def member(name: bytes | str, data: bytes = b"", **options: bytes) -> bytes:
    """Make a member by hand."""
    return header(name, len(data), **options) + body(data)


def pax_record(name: bytes, value: bytes) -> bytes:
    """Make a record that begins with its own length."""
    rest = b" " + name + b"=" + value + b"\n"
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return b"%d" % length + rest


def pax(*records: tuple[bytes, bytes], kind: bytes = b"x") -> bytes:
    """Make an extended header."""
    return member("PaxHeaders/x", b"".join(pax_record(name, value) for name, value in records), kind=kind)


def gnu_long(name: bytes, kind: bytes = b"L") -> bytes:
    """Make GNU's header for a long name or link."""
    return member("././@LongLink", name + b"\0", kind=kind, magic=b"ustar  \0")


def pack(members: Iterable[tuple[str, bytes]], form: str = "pax", blocking: bool = True) -> bytes:
    """Make a tar with Python's tarfile."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=FORMATS[form], encoding="utf-8", errors="surrogateescape") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    data = file.getvalue()
    return data if blocking else without_end(data) + END


def without_end(data: bytes) -> bytes:
    """Cut the zeros that end an archive."""
    blocks = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    while blocks and not any(blocks[-1]):
        blocks.pop()
    return b"".join(blocks)


def tarfile_members(data: bytes) -> tuple[list[tuple[str, int, int]], bool]:
    """Ask Python's tarfile for name, offset and size of the regular files; and whether it came through."""
    members: list[tuple[str, int, int]] = []
    try:
        with tarfile.open(
            fileobj=io.BytesIO(data), ignore_zeros=True, encoding="utf-8", errors="surrogateescape"
        ) as tar:
            for info in tar:
                if info.isreg():
                    members.append((info.name, info.offset_data, info.size))
                tar.members = []  # it keeps them all, and looks through all of them
    except (tarfile.TarError, ValueError, OverflowError):  # the latter two are its own bugs
        return members, False
    return members, True


def write_shard(path: Path, samples: Sequence[tuple[str, dict[str, bytes]]]) -> str:
    """Write samples with Python's tarfile; give back the path as a str."""
    path.write_bytes(pack([(f"{key}.{field}", data) for key, fields in samples for field, data in fields.items()]))
    return str(path)
