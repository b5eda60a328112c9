"""One tar header at a time: ustar, PAX, GNU and V7, exact and strict.

The functions here are the last word on what a header means. `shoal.shards._walk` has a vectorised short cut for the
common case and comes here whenever a header is not plainly ordinary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from shoal.errors import CorruptShardError, TruncatedShardError, UnsupportedMemberError

__all__ = ["BLOCK", "Header", "Member", "Tape", "extended_records", "next_member", "padded", "parse_header"]

BLOCK = 512
_ZEROS = bytes(BLOCK)
_OCTAL = b"01234567"

_REGULAR = frozenset(b"0\x007")
_WITHOUT_DATA = frozenset(b"123456")  # links, devices, folders, pipes: the size field says nothing about the tape
_SKIPPED = frozenset(b"DV")  # GNU folder listings and volume labels: data that is no file
_GNU_LONG_NAME, _GNU_LONG_LINK = ord("L"), ord("K")
_PAX = frozenset(b"xX")
_PAX_GLOBAL = ord("g")

# An extended header holds a name and a few numbers. One that claims more than this is damage, and believing it
# would let a few bytes ask for gigabytes of memory.
_LARGEST_EXTENSION = 16 * 2**20


class Header(NamedTuple):
    """What the 512 bytes of one header say."""

    name: str
    size: int
    kind: int


class Member(NamedTuple):
    """A regular file in a tar, its extended headers already applied."""

    name: str
    begin: int
    """Where its first header starts, extended ones included: parsing may start here."""
    offset: int
    """Where its bytes start."""
    size: int


class Tape(Protocol):
    """What the parser needs of a tar: exact reads, one after the other."""

    shard: str
    offset: int
    marked: bool
    """Whether the last block read was zeros, as an archive must end."""
    everywhere: dict[str, str]
    """Global PAX records: what holds for every member from here to the end of the archive."""

    def read(self, size: int) -> bytes:
        """Read up to ``size`` bytes; fewer only at the end."""
        ...

    def skip(self, size: int) -> None:
        """Move over ``size`` bytes; short only at the end."""
        ...


def padded(size: int) -> int:
    """Round a size up to whole blocks.

    >>> padded(0), padded(1), padded(512), padded(513)
    (0, 512, 512, 1024)
    """
    return size + BLOCK - 1 & -BLOCK


def parse_header(block: bytes, shard: str, offset: int) -> Header:
    """Read one header, checksum included."""
    if not _checksum_holds(block):
        raise CorruptShardError("the header's checksum is wrong", shard=shard, offset=offset)
    name = block[:100].partition(b"\0")[0]
    if block[257:263] == b"ustar\0":  # GNU writes "ustar  " and keeps other things where the prefix would be
        prefix = block[345:500].partition(b"\0")[0]
        name = prefix + b"/" + name if prefix else name
    text = name.decode("utf-8", "surrogateescape")
    return Header(text, _number(block[124:136], shard, offset, text), block[156])


def next_member(tape: Tape) -> Member | None:
    """Go to the next regular file; None at the end of the archive.

    Zero blocks end an archive, but bytes may follow them (``cat a.tar b.tar``): what is a header is read on, anything
    else is an error rather than a silent loss. An archive that ends without zero blocks was cut.
    """
    begin, extension = tape.offset, _Extension()
    while True:
        at = tape.offset
        block = tape.read(BLOCK)
        if len(block) < BLOCK:
            _check_end(tape, at, block, extension)
            return None
        if block == _ZEROS and extension.is_empty:
            tape.marked, begin, tape.everywhere = True, tape.offset, {}
            continue
        header = parse_header(block, tape.shard, at)
        tape.marked = False
        if header.kind == _PAX_GLOBAL:
            tape.everywhere = tape.everywhere | _global_records(_extension_bytes(tape, header, at), tape.shard, at)
            begin = tape.offset if extension.is_empty else begin
            continue
        if header.kind in _PAX or header.kind in (_GNU_LONG_NAME, _GNU_LONG_LINK):
            extension = extension.extended(header, _extension_bytes(tape, header, at), tape.shard, at)
            continue
        member = _member(tape, header, extension, begin, at)
        if member is not None:
            return member
        begin, extension = tape.offset, _Extension()


class _Extension(NamedTuple):
    """What extended headers say about the header that follows them."""

    name: str | None = None
    size: int | None = None
    sparse: bool = False
    is_empty: bool = True

    def extended(self, header: Header, payload: bytes, shard: str, offset: int) -> _Extension:
        if header.kind == _GNU_LONG_NAME:
            name = payload.partition(b"\0")[0].decode("utf-8", "surrogateescape")
            return self._replace(name=name, is_empty=False)
        if header.kind == _GNU_LONG_LINK:
            return self._replace(is_empty=False)
        records = _pax_records(payload, shard, offset)
        size = records.get("size")
        if size is not None and not (size.isascii() and size.isdigit() and len(size) < 20):
            raise CorruptShardError(f"the PAX size {size[:40]!r} is not a number", shard=shard, offset=offset)
        return _Extension(
            name=records.get("path", self.name),
            size=int(size) if size is not None else self.size,
            sparse=self.sparse or _is_sparse(records),
            is_empty=False,
        )


def extended_records(headers: bytes, shard: str, offset: int) -> dict[str, str]:
    """Read what the extended headers before a member's own say of it, as PAX records."""
    records: dict[str, str] = {}
    at = 0
    while at < len(headers):
        header = parse_header(headers[at : at + BLOCK], shard, offset + at)
        payload = headers[at + BLOCK : at + BLOCK + header.size]
        if header.kind in _PAX:
            records |= _pax_records(payload, shard, offset + at)
        elif header.kind == _GNU_LONG_NAME:
            records["path"] = payload.partition(b"\0")[0].decode("utf-8", "surrogateescape")
        at += BLOCK + padded(header.size)
    return records


def _global_records(payload: bytes, shard: str, offset: int) -> dict[str, str]:
    records = _pax_records(payload, shard, offset)
    if {"path", "size"} & records.keys() or _is_sparse(records):
        raise UnsupportedMemberError("a global PAX header sets path, size or sparseness", shard=shard, offset=offset)
    records.pop("comment", None)  # of the archive, and not of its members
    return records


def _is_sparse(records: Mapping[str, str]) -> bool:
    return any(name.startswith("GNU.sparse.") for name in records)


def _member(tape: Tape, header: Header, extension: _Extension, begin: int, at: int) -> Member | None:
    name = header.name if extension.name is None else extension.name
    size = header.size if extension.size is None else extension.size
    if header.kind in _REGULAR and not extension.sparse:
        if "\0" in name:
            raise CorruptShardError("the member's name holds a NUL", shard=tape.shard, offset=at, member=name)
        return Member(name, begin, tape.offset, size)
    if header.kind in _WITHOUT_DATA:
        return None
    if header.kind in _SKIPPED:
        tape.skip(padded(size))
        return None
    kind = "sparse file" if extension.sparse or header.kind == ord("S") else f"member of type {chr(header.kind)!r}"
    raise UnsupportedMemberError(f"a {kind} cannot be read", shard=tape.shard, offset=at, member=name)


def _check_end(tape: Tape, at: int, rest: bytes, extension: _Extension) -> None:
    if not extension.is_empty:
        raise TruncatedShardError("the tar ends after an extended header", shard=tape.shard, offset=at)
    if rest and (not tape.marked or any(rest)):
        raise TruncatedShardError(f"the tar ends {len(rest)} bytes into a header", shard=tape.shard, offset=at)
    if not tape.marked:
        what = "the file is empty" if at == 0 else "the tar ends without its end-of-archive blocks: it was cut"
        raise TruncatedShardError(what, shard=tape.shard, offset=at)


def _extension_bytes(tape: Tape, header: Header, at: int) -> bytes:
    if header.size > _LARGEST_EXTENSION:
        raise CorruptShardError(f"an extended header claims {header.size} bytes", shard=tape.shard, offset=at)
    payload = tape.read(padded(header.size))
    if len(payload) < header.size:
        raise TruncatedShardError("the tar ends inside an extended header", shard=tape.shard, offset=at)
    return payload[: header.size]


def _pax_records(payload: bytes, shard: str, offset: int) -> dict[str, str]:
    records, position = {}, 0
    while position < len(payload):
        space = payload.find(b" ", position, position + 20)
        digits = payload[position:space] if space > 0 else b""
        end = position + int(digits) if digits.isdigit() else 0
        name, equals, value = payload[space + 1 : end - 1].partition(b"=")
        if not (space < end <= len(payload)) or payload[end - 1 : end] != b"\n" or not (name and equals):
            raise CorruptShardError("a PAX header holds a record that is none", shard=shard, offset=offset)
        records[name.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        position = end
    return records


def _number(field: bytes, shard: str, offset: int, member: str) -> int:
    """Read a size: octal digits, or binary for what octal cannot hold (a GNU extension)."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip(b" ")
    if digits.strip(_OCTAL):
        text = f"the size field {field!r} is not a number"
        raise CorruptShardError(text, shard=shard, offset=offset, member=member)
    return int(digits or b"0", 8)


def _checksum_holds(block: bytes) -> bool:
    digits = block[148:156].partition(b"\0")[0].strip(b" ")
    if not digits or digits.strip(_OCTAL):
        return False
    stored = int(digits, 8)
    rest = block[:148] + block[156:]
    total = sum(rest) + 8 * ord(" ")
    if stored == total:
        return True
    return stored == total - 256 * sum(byte > 127 for byte in rest)  # some old tars summed signed bytes
