"""Find the members of a tar: quickly over a memory map, or along a stream.

Over a map, ordinary headers are chained by their sizes alone and then checked hundreds at a time with numpy; whatever
is not plainly ordinary (a long name, a folder, a wrong checksum) goes through `shoal.shards._header`. Members before a
damaged place are always delivered before the error is raised.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal.errors import CorruptShardError, ShardError, TruncatedShardError
from shoal.shards._compression import is_damage
from shoal.shards._header import BLOCK, Member, next_member, padded, parse_header

__all__ = ["Buffer", "Run", "check_length", "find_header", "mapped_members", "plain_run", "stream_members", "whole"]

Buffer: TypeAlias = "mmap.mmap | bytes"

_RUN = 1024  # headers checked at once, enough to hide numpy's cost
_FIRST_RUN = 64  # the first time fewer, so that the first sample is quick
_CHUNK = 16 * 2**20  # a stream's member is read in pieces of this, so that a lying size cannot ask for all memory
_MAGIC = 257  # where in a header "ustar" stands
_REGULAR = ord("0")
_OCTAL_PLACES = 8 ** np.arange(5, -1, -1, dtype=np.int64)


class Run(NamedTuple):
    """Consecutive regular members, as columns: an object for each would cost more than finding it."""

    names: list[str]
    begins: list[int]
    offsets: list[int]
    sizes: list[int]

    def member(self, number: int) -> Member:
        """Look at one member."""
        return Member(self.names[number], self.begins[number], self.offsets[number], self.sizes[number])

    def append(self, member: Member) -> None:
        """Add a member at the end."""
        self.names.append(member.name)
        self.begins.append(member.begin)
        self.offsets.append(member.offset)
        self.sizes.append(member.size)

    def cut(self, length: int) -> Run:
        """Keep the first members."""
        return Run(self.names[:length], self.begins[:length], self.offsets[:length], self.sizes[:length])


def mapped_members(buffer: Buffer, shard: str, start: int = 0) -> Iterator[Run]:
    """Yield the regular members of a mapped tar in runs, from the header at ``start`` on."""
    tape = _MappedTape(buffer, shard, start)
    limit = _FIRST_RUN
    while True:
        run, error = _plain_run(buffer, tape, limit)
        limit = _RUN
        if error is None:
            # Where the run stopped there is something else than a plain header, or the run was simply full.
            error = _append_next(tape, run)
        if run.names:
            yield run
        if error is not None:
            raise error
        if tape.ended:
            return


def find_header(buffer: Buffer, begin: int) -> int | None:
    """Find the first block from ``begin`` on that is a header by its magic and checksum; None if there is none.

    Bytes that only look like one, as those of a tar in a tar, are taken for it.
    """
    at = begin - 1
    while (at := buffer.find(b"ustar", at + 1)) >= 0:
        start = at - _MAGIC
        if start < begin or (start - begin) % BLOCK or start + BLOCK > len(buffer):
            continue
        try:
            parse_header(buffer[start : start + BLOCK], "", start)
        except ShardError:
            continue
        return start
    return None


def stream_members(
    stream: BinaryIO, shard: str, wanted: Callable[[str], bool], start: int = 0
) -> Iterator[tuple[Member, bytes | None]]:
    """Yield the members of a stream with their bytes, or None where the name is not wanted.

    ``start`` is where in the tar the stream begins, for the places that errors name.
    """
    tape = _StreamTape(stream, shard, start)
    while (member := next_member(tape)) is not None:
        if wanted(member.name):
            data = tape.read(member.size)
            check_length(len(data), member, shard)
            tape.skip(padded(member.size) - member.size)
            yield member, data
        else:
            tape.skip(padded(member.size))
            check_length(tape.offset - member.offset, member, shard)
            yield member, None


class _MappedTape:
    """A tar in memory; nothing is copied but headers."""

    def __init__(self, buffer: Buffer, shard: str, start: int) -> None:
        self.buffer = buffer
        self.shard = shard
        self.offset = start
        self.marked = False
        self.everywhere: dict[str, str] = {}
        self.ended = False

    def read(self, size: int) -> bytes:
        data = self.buffer[self.offset : self.offset + size]
        self.offset += len(data)
        return data

    def skip(self, size: int) -> None:
        self.offset = min(self.offset + size, len(self.buffer))


class _StreamTape:
    """A tar that can only be read forward; the decompressor's complaints become shard errors here."""

    def __init__(self, stream: BinaryIO, shard: str, start: int) -> None:
        self.stream = stream
        self.shard = shard
        self.offset = start
        self.marked = False
        self.everywhere: dict[str, str] = {}

    def read(self, size: int) -> bytes:
        data = self._read(min(size, _CHUNK))
        if size <= _CHUNK or len(data) < _CHUNK:
            return data
        pieces = [data]
        left = size - len(data)
        while left and (piece := self._read(min(left, _CHUNK))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def skip(self, size: int) -> None:
        while size and (piece := self._read(min(size, _CHUNK))):
            size -= len(piece)

    def _read(self, size: int) -> bytes:
        with whole(self.shard, self.offset):
            data = self.stream.read(size)
        self.offset += len(data)
        return data


@contextmanager
def whole(shard: str, offset: int) -> Iterator[None]:
    """Make a decompressor's complaints errors of the shard."""
    try:
        yield
    except EOFError as error:
        text = f"the compressed stream ends too early: {error}"
        raise TruncatedShardError(text, shard=shard, offset=offset) from error
    except Exception as error:
        if not is_damage(error):
            raise
        text = f"the compressed stream is damaged: {error}"
        raise CorruptShardError(text, shard=shard, offset=offset) from error


def _append_next(tape: _MappedTape, run: Run) -> ShardError | None:
    """Add the one member at the tape's place to a run; an error is returned, so that the run still gets out."""
    try:
        member = next_member(tape)
        if member is None:
            tape.ended = True
            return None
        check_length(len(tape.buffer) - member.offset, member, tape.shard)
    except ShardError as error:
        return error
    run.append(member)
    tape.skip(padded(member.size))
    return None


def plain_run(
    buffer: Buffer | bytearray, position: int, limit: int, shard: str, *, stop: int, base: int = 0
) -> tuple[Run, int, ShardError | None]:
    """Read ordinary members from a position on, whose headers lie before ``stop``; tell where the last of them ends.

    ``base`` is where in the tar the buffer begins. The bytes of the last member may be missing; nothing else is.
    """
    positions, sizes, end = _chain(buffer, position, stop, limit)
    if not positions:
        return Run([], [], [], []), position + base, None
    headers = _gather(buffer, positions)
    begins = [position + base for position in positions] if base else positions
    run = Run(_names(headers), begins, [begin + BLOCK for begin in begins], sizes)
    for number in np.flatnonzero(~_plainly_right(headers)).tolist():
        block = bytes(buffer[positions[number] : positions[number] + BLOCK])
        try:
            run.names[number] = parse_header(block, shard, begins[number]).name
        except ShardError as error:
            return run.cut(number), begins[number], error
    return run, end + base, None


def _plain_run(buffer: Buffer, tape: _MappedTape, limit: int) -> tuple[Run, ShardError | None]:
    """Read ordinary members from the tape's place on; stop before anything else."""
    run, end, error = plain_run(buffer, tape.offset, limit, tape.shard, stop=len(buffer))
    if error is not None or not run.names:
        return run, error
    # Each member but the last ends before a header that was read, so only the last can claim too much.
    try:
        check_length(len(buffer) - run.offsets[-1], run.member(-1), tape.shard)
    except ShardError as cut:
        return run.cut(len(run.names) - 1), cut
    tape.offset, tape.marked = min(end, len(buffer)), False
    return run, None


def _chain(buffer: Buffer | bytearray, position: int, stop: int, limit: int) -> tuple[list[int], list[int], int]:
    """Follow header after header by size alone, as long as each is a regular file with an ordinary size."""
    positions: list[int] = []
    sizes: list[int] = []
    last = stop - BLOCK
    while position <= last and len(positions) < limit and buffer[position + 156] == _REGULAR:
        digits = buffer[position + 124 : position + 135]
        if not digits.isdigit() or buffer[position + 135] not in b"\0 ":
            break
        try:
            size = int(digits, 8)
        except ValueError:
            break
        positions.append(position)
        sizes.append(size)
        position += BLOCK + (size + BLOCK - 1 & -BLOCK)
    return positions, sizes, position


def _gather(buffer: Buffer | bytearray, positions: list[int]) -> NDArray[np.uint8]:
    origin = positions[0]  # headers are whole blocks apart, wherever the first one lies
    whole = (len(buffer) - origin) // BLOCK
    blocks = np.frombuffer(buffer, np.uint8, whole * BLOCK, origin).reshape(whole, BLOCK)
    rows: NDArray[np.uint8] = blocks[(np.array(positions) - origin) // BLOCK]
    return rows


def _plainly_right(headers: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Tell the headers whose checksum is right in its usual spelling and whose name is all in the name field."""
    stored = headers[:, 148:156].astype(np.int64)
    digits = stored[:, :6] - ord("0")
    usual = ((digits >= 0) & (digits < 8)).all(axis=1) & (stored[:, 6] == 0) & (stored[:, 7] == ord(" "))
    sums = np.add.reduce(headers, axis=1, dtype=np.uint32).astype(np.int64) - stored.sum(axis=1) + 8 * ord(" ")
    right: NDArray[np.bool_] = usual & (digits @ _OCTAL_PLACES == sums) & (headers[:, 345] == 0)
    return right


def _names(headers: NDArray[np.uint8]) -> list[str]:
    names: list[bytes] = np.ascontiguousarray(headers[:, :100]).view("S100")[:, 0].tolist()
    return [name.partition(b"\0")[0].decode("utf-8", "surrogateescape") for name in names]


def check_length(available: int, member: Member, shard: str) -> None:
    """Refuse a member of which not all bytes are there."""
    if member.size > available:
        text = f"the member claims {member.size} bytes, but only {max(available, 0)} are left"
        raise TruncatedShardError(text, shard=shard, offset=member.begin, member=member.name)
