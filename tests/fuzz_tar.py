"""Damaged and hostile tars by the thousand: ``python tests/fuzz_tar.py --count 50000 --seed 1``.

Input number n of a seed is always the same bytes; ``--only n`` runs one of them again. For each input:

- reading over a map and along a stream give the same samples, and the same error or none;
- the error is of the trees of `ShardError` and `SampleError`, and nothing else is ever raised;
- if there is none, the samples are what Python's tarfile finds, grouped by an independent copy of the rule;
- if there is one, the samples are what tarfile finds before the place that the error names;
- no file is opened for writing, and no input takes more than a few seconds of processor time.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import signal
import sys
import tarfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from types import FrameType

from shoal.errors import DuplicateFieldError, SampleError, ShardError
from support.grouping import Collision, grouped
from support.tars import (
    BLOCK,
    END,
    Outcome,
    body,
    gnu_long,
    header,
    member,
    pack,
    pax,
    pax_record,
    read_mapped,
    read_streamed,
    tarfile_members,
    with_checksum,
)

SECONDS = 10
_LONG = "folder.d/" + "n" * 120
_HOSTILE_NAMES = [
    b"../../escaped.txt", b"/tmp/shoal-escaped.txt", b"a.txt\0hidden", b"", b".", b"..", b"/", b"//", b"a.", b".a",
    b"dir/.x", b"d.d/.x", b"./.x", b"__meta__", b"__x__/a.txt", b"__x__.a__", b"a.__key__", b"\xff\xfe.txt",
    b"\xc3\xa4.TXT", b"a.b/c.d", b"a\nb.txt", b"n" * 96 + b".txt", b"n" * 10_000 + b".txt", b"a.txt/", b"README",
    b"C:\\x.txt", b"\xed\xa0\x80.txt", b"a.\xc4\xb0", b"~/x.txt", b"BZhang.txt", b"BZh9.txt", b"\x1f\x8b.txt",
]  # fmt: skip
_HOSTILE_SIZES = [
    b"77777777777\0", b"777777777777", b"00000001000\0", b"00000000777\0", b"           \0", bytes(12),
    b"0000000001 \0",
    b"\x80" + bytes(10) + b"\x05", b"\x80" + b"\xff" * 11, b"\xff" * 12, b"\x80" + bytes(3) + b"\x7f" + b"\xff" * 7,
    b"-0000000001\0", b"+0000000001\0", b"0o000000001\0", b"0_000000001\0", b"00000000008\0", b"0x000000001\0",
    b"\x81" + bytes(11), b"1\0" + b"7" * 10, b" 1         \0", b"20000000000\0", b"\xb2\xb3\xb9" + bytes(9),
]  # fmt: skip
_KINDS = [bytes([kind]) for kind in b"01234567\0LKxXgSMNDVAIZ \xff"]
_SIZES_IN_PAX = [
    b"0",
    b"1",
    b"5",
    b"512",
    b"513",
    b"99999999999",
    b"9" * 19,
    b"9" * 40,
    b"-1",
    b"1.5",
    b"",
    b" 3",
    b"0x3",
]


def pax_payloads(rng: random.Random) -> bytes:
    """Make the records of an extended header, honest or not."""
    records = [
        lambda: pax_record(b"path", rng.choice(_HOSTILE_NAMES)),
        lambda: pax_record(b"size", rng.choice(_SIZES_IN_PAX)),
        lambda: pax_record(rng.choice([b"GNU.sparse.major", b"GNU.sparse.map", b"GNU.sparse.name"]), b"1"),
        lambda: pax_record(b"hdrcharset", rng.choice([b"BINARY", b"ISO-IR 10646 2000 UTF-8", b"x"])),
        lambda: pax_record(b"mtime", rng.choice([b"1.5", b"x", b"-1"])),
        lambda: pax_record(b"comment", rng.randbytes(rng.choice([0, 3, 700]))),
        lambda: pax_record(b"", b"x"),
        lambda: rng.choice(
            [b"5 a=b\n", b"6 a=b", b"0 a=b\n", b"-6 a=b\n", b"999999999999 a=b\n", b"a=b\n", b" ", b"6 aab\n"]
        ),
        lambda: rng.randbytes(rng.randrange(1, 20)),
    ]
    return b"".join(rng.choice(records[:6] if rng.random() < 0.7 else records)() for _ in range(rng.randrange(1, 4)))


@cache
def bases() -> list[bytes]:
    """Make honest archives of every format, one to four members each."""
    long, short = _LONG.encode(), [("a.txt", b"hello"), ("a.cls", b"7"), ("b.txt", b"x" * 600), ("b.cls", b"")]
    made = [pack(short, form, blocking) for form in ("ustar", "gnu", "pax") for blocking in (True, False)]
    made += [pack([(f"{_LONG}.txt", b"long"), ("c.txt", b"c")], form, False) for form in ("gnu", "pax")]
    made += [pack([("\u00e4\u00f6/\u4e2d.txt", b"u"), ("z.txt", b"z")], form, False) for form in ("gnu", "pax")]
    made += [pack([("p" * 90 + "/" + "q" * 50 + ".txt", b"p"), ("z.a", b"z" * 1025)], "ustar", False)]
    v7 = {"magic": b""}
    gnu = {"magic": b"ustar  \0"}
    made += [
        b"".join([member("d/", **v7, kind=b"\0"), member("d/a.txt", b"seven", **v7, kind=b"\0"), END]),
        b"".join([member("a.txt", b"old", **gnu), member("a.cls", b"1", **gnu), END]),
        b"".join([member("d", kind=b"5"), member("d/a.txt", b"1"), header("d/a.l", kind=b"2", link=b"a.txt"), END]),
        b"".join([member("a.txt", b"1"), header("n", kind=b"3"), member("V", kind=b"V"), member("a.cls", b"2"), END]),
        b"".join([header("a.txt", b"\x80" + bytes(10) + b"\x05"), body(b"12345"), member("b.txt", b"2"), END]),
        b"".join([pax((b"comment", b"all"), kind=b"g"), pax((b"path", long + b".txt")), member("x", b"12"), END]),
        b"".join([pax((b"size", b"3")), header("a.txt", 0), body(b"123"), member("b.txt", b"2"), END]),
        b"".join([gnu_long(long, b"K"), gnu_long(long + b".a"), member("x", b"12", **gnu), member("y.a", b"3"), END]),
        member("a.txt", b"1") + END + member("b.txt", b"2") + END,
        member("__meta__", b"1") + member("a.txt", b"2") + member("README", b"3") + member("a.cls", b"4") + END,
    ]
    return made


def headers_of(data: bytes) -> list[int]:
    """Find the blocks that are headers by their checksum, however it is spelled."""
    return [at for at in range(0, len(data) - BLOCK + 1, BLOCK) if _is_header(data[at : at + BLOCK])]


def _is_header(block: bytes) -> bool:
    try:
        stored = tarfile.nti(block[148:156])
    except tarfile.HeaderError:
        return False
    return stored in tarfile.calc_chksums(block)


def flip_bits(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def rewrite_field(data: bytes, rng: random.Random) -> bytes:
    """Write something else into a header and set its checksum right, so that what lies deeper is reached."""
    places = headers_of(data)
    if not places:
        return data
    at = rng.choice(places)
    block = data[at : at + BLOCK]
    start, end, values = rng.choice(
        [
            (0, 100, _HOSTILE_NAMES),
            (124, 136, _HOSTILE_SIZES),
            (124, 136, [b"%011o\0" % rng.choice([0, 1, 511, 512, 513, 1024, 4096])]),
            (156, 157, _KINDS),
            (157, 257, _HOSTILE_NAMES),
            (257, 265, [b"ustar\x0000", b"ustar  \0", bytes(8), b"ustar\0 1", b"GNUtar \0"]),
            (345, 500, [*_HOSTILE_NAMES, bytes(155)]),
            (100, 124, [rng.randbytes(24), bytes(24)]),
            (136, 148, [rng.randbytes(12), bytes(12), b"\xff" * 12]),
        ]
    )
    value = rng.choice(values)[: end - start].ljust(end - start, b"\0")
    return data[:at] + with_checksum(block[:start] + value + block[end:]) + data[at + BLOCK :]


def respell_checksum(data: bytes, rng: random.Random) -> bytes:
    """Write a header's checksum in another way, right or wrong."""
    places = headers_of(data)
    if not places:
        return data
    at = rng.choice(places)
    block = data[at : at + BLOCK]
    rest = block[:148] + block[156:]
    total = sum(rest) + 8 * ord(" ")
    signed = total - 256 * sum(byte > 127 for byte in rest)
    spelled = rng.choice(
        [b"%07o\0" % total, b"%6o  " % total, b"%6o\0 " % signed, b" %05o\0 " % total, b"%08o" % total]
    )
    return data[:at] + block[:148] + spelled[:8].ljust(8, b"\0") + block[156:] + data[at + BLOCK :]


def rewrite_extension(data: bytes, rng: random.Random) -> bytes:
    """Put an extended header before a member: PAX, GNU, global, or one that lies about its own length."""
    places = headers_of(data)
    at = rng.choice(places) if places else 0
    payload = pax_payloads(rng)
    extension = rng.choice(
        [
            lambda: member("PaxHeaders/x", payload, kind=rng.choice([b"x", b"X", b"g"])),
            lambda: gnu_long(rng.choice(_HOSTILE_NAMES), rng.choice([b"L", b"K"])),
            lambda: header("x", rng.choice(_HOSTILE_SIZES), rng.choice([b"x", b"L", b"g"])) + body(payload),
            lambda: member("x", payload, kind=rng.choice([b"L", b"D", b"V"])),
        ]
    )()
    return data[:at] + extension + data[at:]


def truncate(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[: at if rng.random() < 0.5 else at - at % BLOCK]


def splice(data: bytes, rng: random.Random) -> bytes:
    """Put blocks of another archive, or of this one, somewhere."""
    other = rng.choice([data, rng.choice(bases())])
    blocks, place = len(other) // BLOCK, rng.randrange(len(data) // BLOCK + 1) * BLOCK
    start = rng.randrange(blocks + 1)
    piece = other[start * BLOCK : (start + rng.randrange(1, 4)) * BLOCK]
    over = rng.choice([0, 0, len(piece)])
    return data[:place] + piece + data[place + over :]


def remove_blocks(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) // BLOCK + 1) * BLOCK
    return data[:at] + data[at + rng.randrange(1, 3) * BLOCK :]


def insert_junk(data: bytes, rng: random.Random) -> bytes:
    size = rng.choice([BLOCK, BLOCK, 2 * BLOCK, 1, 100])
    junk = rng.choice([rng.randbytes(size), bytes(size), b"<!DOCTYPE html>".ljust(size)[:size]])
    at = rng.choice([len(data), rng.randrange(len(data) // BLOCK + 1) * BLOCK])
    return data[:at] + junk + data[at:]


def concatenate(data: bytes, rng: random.Random) -> bytes:
    return data + rng.choice(bases())


MUTATIONS: list[Callable[[bytes, random.Random], bytes]] = [
    flip_bits, rewrite_field, rewrite_field, rewrite_field, respell_checksum, rewrite_extension, rewrite_extension,
    truncate, splice, remove_blocks, insert_junk, concatenate,
]  # fmt: skip


def input_of(seed: int, number: int) -> bytes:
    """Make one input."""
    rng = random.Random(f"{seed}/{number}")
    data = rng.choice(bases())
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3])):
        data = rng.choice(MUTATIONS)(data, rng)
    return data


_UNREAD_NUMBERS = [(100, 108), (108, 116), (116, 124), (136, 148), (329, 337), (337, 345)]


def difference(data: bytes) -> str | None:
    """Name the reason why Python's tarfile may see another archive in these bytes than Shoal does; None for no reason.

    - "owner, time or device": tarfile reads these numbers too, and with ``ignore_zeros`` passes over a header in which
      one is none as if it were not there. They say nothing about the bytes, and Shoal does not look at them.
    - "prefix": tarfile puts what lies at 345 before the name whatever the magic says; in GNU archives times lie there.
    - "V7 folder": for tarfile an old member without a type whose name ends in a slash has no bytes, whatever its size
      and whatever name an extended header gives it.
    - "slash": tarfile takes slashes off the end of a PAX path; for Shoal it is the name of a folder, so of no field.
    - "long name without end": tarfile reads GNU's long name up to a NUL, also beyond the size that its header gives.
    - "several extensions": of two extended headers before one member tarfile believes the first, Shoal the last.
    """
    extensions, payload_end = 0, 0
    for at in headers_of(data):
        block = data[at : at + BLOCK]
        kind, size = block[156:157], _number(block[124:136]) or 0
        if any(_number(block[start:end]) is None for start, end in _UNREAD_NUMBERS):
            return "owner, time or device"
        if block[257:263] != b"ustar\0" and block[345]:
            return "prefix"
        if kind == b"\0" and block[:100].partition(b"\0")[0].endswith(b"/") and (extensions or size):
            return "V7 folder"
        if kind == b"L" and b"\0" not in data[at + BLOCK : at + BLOCK + max(size, 0)]:
            return "long name without end"
        if at >= payload_end and kind not in (b"g", b"K"):
            extensions = extensions + 1 if kind in (b"x", b"X", b"L") else 0
        if kind in (b"x", b"X", b"L", b"g", b"K"):
            payload_end = at + BLOCK + size
        if extensions > 1:
            return "several extensions"
    return "slash" if b"/\n" in data else None


def _number(field: bytes) -> int | None:
    try:
        return int(tarfile.nti(field))
    except tarfile.HeaderError:
        return None


def check(data: bytes) -> str:
    """Read one input in every way and compare; say what it was."""
    mapped, streamed = read_mapped(data), read_streamed(data)
    assert mapped.samples == streamed.samples, "the map and the stream give different samples"
    assert repr(mapped.error) == repr(streamed.error), f"{mapped.error!r} and {streamed.error!r}"
    assert str(mapped.error) == str(streamed.error), f"{mapped.error} and {streamed.error}"
    places = read_streamed(data, keep=frozenset())
    assert [(s.begin, s.places) for s in places.samples] == [(s.begin, s.places) for s in mapped.samples]
    error = mapped.error
    if error is None:
        return _check_complete(data, mapped)
    assert error.shard == "s.tar"
    if isinstance(error, ShardError):
        assert error.offset is not None
        assert 0 <= error.offset <= len(data)
        return _check_before(data[: error.offset] + END, mapped)
    assert isinstance(error, DuplicateFieldError)
    assert error.key is not None
    assert error.field is not None
    return _check_complete(data, mapped)


def _check_complete(data: bytes, outcome: Outcome) -> str:
    if (reason := difference(data)) is not None:
        return reason
    members, came_through = tarfile_members(data)
    if not came_through:
        return "tarfile gives up"
    samples, collision = grouped((name, data[at : at + size]) for name, at, size in members)
    assert samples == outcome.plain, f"tarfile finds {members}"
    assert (collision is None) == (outcome.error is None)
    return "read" if collision is None else "collision"


def _check_before(data: bytes, outcome: Outcome) -> str:
    """The sample that was open when the error came may be incomplete, so it is not delivered; all others are."""
    if (reason := difference(data)) is not None:
        return reason
    members, _ = tarfile_members(data)
    samples, collision = grouped((name, data[at : at + size]) for name, at, size in members)
    assert not isinstance(collision, Collision)
    assert samples[:-1] == outcome.plain, f"tarfile finds {members}"
    return f"{type(outcome.error).__name__}"


class Hang(BaseException):
    """An input takes too long."""


def watch() -> None:
    """Make the process complain about files opened for writing and about inputs that never end."""

    def hung(number: int, frame: FrameType | None) -> None:
        raise Hang

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        writes = (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        )
        if writes or event in (
            "os.mkdir",
            "os.rename",
            "os.link",
            "os.symlink",
            "os.remove",
            "os.system",
            "subprocess.Popen",
        ):
            raise PermissionError(f"the reader did {event}{arguments}")

    signal.signal(signal.SIGVTALRM, hung)
    sys.addaudithook(audit)


def run(seed: int, numbers: range) -> Counter[str]:
    """Check inputs; raise with the number of the first that fails."""
    kinds: Counter[str] = Counter()
    for number in numbers:
        data = input_of(seed, number)
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            kinds[check(data)] += 1
            if number % 16 == 0:
                _check_compressed(data)
        except BaseException as error:
            error.add_note(f"seed {seed}, input {number}: python tests/fuzz_tar.py --seed {seed} --only {number}")
            raise
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return kinds


def _check_compressed(data: bytes) -> None:
    plain, unpacked = read_streamed(data), read_streamed(gzip.compress(data, 1))
    assert plain.samples == unpacked.samples
    assert str(plain.error) == str(unpacked.error)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only", type=int)
    chosen = parser.parse_args()
    first, count = (chosen.first, chosen.count) if chosen.only is None else (chosen.only, 1)
    _ = bases(), SampleError
    watch()
    kinds = run(chosen.seed, range(first, first + count))
    for kind, times in kinds.most_common():
        print(f"{times:7d} {kind}")


if __name__ == "__main__":
    main()
