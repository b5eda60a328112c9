"""Every make of tar is read to its last sample, and a damaged one is an error with a place, never a loss."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import random
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.errors import CorruptShardError, ShardError, TruncatedShardError, UnsupportedMemberError, UrlError
from shoal.shards import StreamedTar
from support.grouping import grouped
from support.tars import (
    BLOCK,
    END,
    FORMATS,
    Outcome,
    Unseekable,
    body,
    gnu_long,
    header,
    member,
    pack,
    pax,
    pax_record,
    read_both,
    read_streamed,
    samples_of,
    tarfile_members,
    with_checksum,
    without_end,
)

LONG = "folder/" * 30 + "x" * 120
TWO = [("a", {"txt": b"hello", "cls": b"7"}), ("b", {"txt": b"x" * 1000})]
TWO_MEMBERS = [(f"{key}.{field}", data) for key, fields in TWO for field, data in fields.items()]
GNU = {"magic": b"ustar  \0"}


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
}


@pytest.mark.parametrize("form", FORMATS)
def test_tars_of_pythons_tarfile_are_read(form: str) -> None:
    assert samples_of(pack(TWO_MEMBERS, form)) == TWO


@pytest.mark.parametrize("form", ["gnu", "pax"])
@pytest.mark.parametrize(
    "key", [LONG, "\u00e4\u00f6\u00fc/\u4e2d\u6587", "caf\udce9", "x" * 96, "x" * 97, "d/" * 300 + "y"]
)
def test_long_and_foreign_names_are_read_whole(form: str, key: str) -> None:
    members = [(f"{key}.txt", b"1"), (f"{key}.seg.png", b"2"), ("z.txt", b"3")]
    assert samples_of(pack(members, form)) == [(key, {"txt": b"1", "seg.png": b"2"}), ("z", {"txt": b"3"})]


@pytest.mark.parametrize("length", [100, 101, 102, 155, 156, 200, 240])
def test_a_ustar_name_may_lie_in_two_places(length: int) -> None:
    name = ("p" * 49 + "/") * 6
    name = name[: length - 5] + "x.txt" if name[length - 6] == "/" else name[: length - 6] + "/x.txt"
    assert samples_of(pack([(name, b"1")], "ustar")) == [(name[:-4], {"txt": b"1"})]


@pytest.mark.parametrize("form", ["ustar", "pax", "gnu", "v7", "oldgnu"])
def test_tars_of_the_tar_command_are_read(tmp_path: Path, form: str) -> None:
    (tmp_path / "data" / "sub.d").mkdir(parents=True)
    names = {"a.txt": b"1", "a.cls": b"2", "sub.d/b.seg.PNG": b"3" * 5000, "sub.d/b.txt": b""}
    if form != "v7":
        names["sub.d/" + "n" * 85 + ".txt"] = b"4"
    if form in ("pax", "gnu", "oldgnu"):
        names["sub.d/" + "m" * 150 + ".txt"] = b"5"
        names["sub.d/\u00e4\u4e2d.txt"] = b"6"
    for name, data in names.items():
        (tmp_path / "data" / name).write_bytes(data)
    (tmp_path / "data" / "link.txt").symlink_to("a.txt")
    (tmp_path / "data" / "zz.txt").hardlink_to(tmp_path / "data" / "a.txt")
    subprocess.run(
        ["tar", f"--format={form}", "-cf", tmp_path / "a.tar", "-C", tmp_path / "data", "--no-recursion",
         ".", "sub.d", "link.txt", *names, "zz.txt"],
        check=True,
    )  # fmt: skip
    expected, _ = grouped(names.items())
    assert samples_of((tmp_path / "a.tar").read_bytes()) == expected


def test_numbered_versions_of_v7_and_signed_checksums_are_read() -> None:
    old = member("d/", kind=b"\0", magic=b"") + member("d/a.txt", b"1", kind=b"\0", magic=b"")
    name = b"\xe4\xf6.txt"
    block = header(name, 1)
    signed = sum(block[:148]) + sum(block[156:]) + 8 * 32 - 2 * 256
    block = block[:148] + b"%06o\0 " % signed + block[156:]
    spaced = header("e.txt", 1)
    spaced = spaced[:148] + b"%6o\0 " % int(spaced[148:154], 8) + spaced[156:]
    data = old + block + body(b"2") + spaced + body(b"3") + END
    assert samples_of(data) == [("d/a", {"txt": b"1"}), ("\udce4\udcf6", {"txt": b"2"}), ("e", {"txt": b"3"})]


@pytest.mark.parametrize(
    "size",
    [
        b"\x80" + bytes(10) + b"\x05",
        b"00000000005\0",
        b"00000000005 ",
        b"          5\0",
        b"5\0" + bytes(10),
        b"000000000005",
    ],
)
def test_every_spelling_of_a_size_is_read(size: bytes) -> None:
    assert samples_of(header("a.txt", size) + body(b"12345") + END) == [("a", {"txt": b"12345"})]


def test_pax_records_win_over_the_header() -> None:
    extended = pax((b"path", b"real.txt"), (b"size", b"3"), (b"mtime", b"1.5"), (b"comment", b"a=b\nc"))
    data = extended + header("wrong.cls", 0) + body(b"123") + member("b.txt", b"4") + END
    assert samples_of(data) == [("real", {"txt": b"123"}), ("b", {"txt": b"4"})]


def test_global_pax_headers_change_nothing() -> None:
    data = pax((b"comment", b"made by hand"), kind=b"g") + member("a.txt", b"1") + END
    assert samples_of(data) == [("a", {"txt": b"1"})]
    assert samples_of(pax((b"comment", b"nothing in it"), kind=b"g") + END) == []


def test_gnu_long_names_and_links_are_read() -> None:
    long = LONG.encode()
    data = gnu_long(long + b".link", b"K") + gnu_long(long + b".txt") + member("short", b"1", **GNU) + END
    assert samples_of(data) == [(LONG, {"txt": b"1"})]
    link = gnu_long(long, b"K") + gnu_long(long + b".lnk") + header("short", kind=b"2", **GNU)
    assert samples_of(link + member("a.txt", b"1", **GNU) + END) == [("a", {"txt": b"1"})]


def test_times_in_gnu_headers_are_no_prefix() -> None:
    data = member("a.txt", b"1", prefix=b"14000000000\x00", **GNU) + END
    assert samples_of(data) == [("a", {"txt": b"1"})]


def test_what_is_no_file_is_passed_over_and_splits_no_sample() -> None:
    between = [
        header("folder", kind=b"5"), header("hard", 99, kind=b"1", link=b"a.txt"), header("soft", kind=b"2"),
        header("char", kind=b"3"), header("block", kind=b"4"), header("pipe", kind=b"6"),
        member("label", b"", kind=b"V", **GNU), member("listing", b"Ya.txt\0", kind=b"D", **GNU),
        member("__meta__", b"metadata"), member("README", b"no extension"),
    ]  # fmt: skip
    data = member("a.txt", b"1") + b"".join(between) + member("a.cls", b"2", kind=b"7") + END
    assert samples_of(data) == [("a", {"txt": b"1", "cls": b"2"})]


def test_concatenated_tars_are_read_to_the_end() -> None:
    one, two, three = (pack([(f"{name}.txt", name.encode())]) for name in "abc")
    expected = [(name, {"txt": name.encode()}) for name in "abc"]
    assert samples_of(one + two + three) == expected
    assert samples_of(one + bytes(BLOCK * 100) + two + bytes(100 * BLOCK) + three + bytes(7)) == expected
    for compress in COMPRESSIONS.values():
        assert samples_of_compressed(compress(one) + compress(two) + compress(three)) == expected
        assert samples_of_compressed(compress(one + two + three)) == expected


def samples_of_compressed(data: bytes) -> list[tuple[str, dict[str, bytes]]]:
    outcome = read_streamed(data)
    assert outcome.error is None
    return outcome.plain


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_compressed_shards_are_known_by_their_bytes(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "named-like-a-plain.tar"
    path.write_bytes(COMPRESSIONS[compression](pack(TWO_MEMBERS)))
    found = [(sample.pop("__key__"), sample) for sample in shoal.read_tar(path)]
    assert found == TWO


@pytest.mark.parametrize("compression", [None, *COMPRESSIONS])
def test_bytes_that_come_one_by_one_are_read_all_the_same(compression: str | None) -> None:
    data = pack(TWO_MEMBERS, blocking=False)
    packed = data if compression is None else COMPRESSIONS[compression](data)
    entries = list(StreamedTar(io.BufferedReader(Unseekable(packed, piece=1)), "s.tar").entries())
    assert [(entry.key, {name: payload.data for name, payload in entry.fields.items()}) for entry in entries] == TWO


def test_a_plain_tar_whose_first_name_looks_compressed_is_read(tmp_path: Path) -> None:
    for number, key in enumerate(["BZhang/1", "BZh9", "\x1f\x8a", "\x1f\udc8b"]):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(member(f"{key}.txt".encode("utf-8", "surrogateescape"), b"1") + END)
        assert [sample["__key__"] for sample in shoal.read_tar(path)] == [key]


NAMES = st.one_of(
    st.from_regex(r"[ab]{1,2}(/[ab])?\.[xy]{1,2}(\.[XY])?", fullmatch=True),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=150).map(
        lambda text: text.rstrip("/") or "slash"
    ),
)
MEMBERS = st.lists(st.tuples(NAMES, st.sampled_from([0, 1, 511, 512, 513, 1500])), max_size=8)


@settings(max_examples=150, deadline=None)
@given(members=MEMBERS, form=st.sampled_from(["gnu", "pax"]), seed=st.integers(0, 9), copies=st.integers(1, 2))
def test_any_tar_gives_what_tarfile_finds_in_it(
    members: list[tuple[str, int]], form: str, seed: int, copies: int
) -> None:
    rng = random.Random(seed)
    data = pack([(name, rng.randbytes(size)) for name, size in members], form) * copies
    found, came_through = tarfile_members(data)
    assert came_through
    expected, collision = grouped((name, data[at : at + size]) for name, at, size in found)
    outcome = read_both(data)
    assert outcome.plain == expected
    assert (outcome.error is None) == (collision is None)
    places = {(at, size) for _, at, size in found}
    assert all((offset, size) in places for sample in outcome.samples for _, offset, size in sample.places)


# Damage


def damaged(data: bytes, kind: type[ShardError]) -> Outcome:
    outcome = read_both(data, "train-7.tar")
    error = outcome.error
    assert type(error) is kind
    assert error.shard == "train-7.tar"
    assert f"shard train-7.tar, offset {error.offset}" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.offset, again.member) == (str(error), error.offset, error.member)
    return outcome


FIRST = member("a.txt", b"1") + member("b.txt", b"2")
AFTER_FIRST = [("a", {"txt": b"1"})]  # whether b is complete, nobody knows


@pytest.mark.parametrize("cut", range(0, 8 * BLOCK, 97))
def test_a_tar_cut_anywhere_gives_the_samples_before_and_says_so(cut: int) -> None:
    whole = member("a.txt", b"1" * 600) + member("b.txt", b"2") + pax((b"path", b"c.txt")) + member("x", b"3")
    assert len(whole) > 8 * BLOCK
    outcome = damaged(whole[:cut], TruncatedShardError)
    expected = 1 if cut >= 3 * BLOCK + BLOCK + 1 else 0  # a is known to be complete when b is there
    assert [sample.key for sample in outcome.samples] == ["a"][:expected]
    assert outcome.error is not None
    assert outcome.error.offset <= cut


def test_a_tar_without_its_end_marker_was_cut() -> None:
    outcome = damaged(FIRST, TruncatedShardError)
    assert outcome.plain == AFTER_FIRST
    assert outcome.error.offset == len(FIRST)


@pytest.mark.parametrize("place", [0, 50, 124, 140, 148, 156, 300, 345, 499, 511])
def test_a_wrong_checksum_is_corruption(place: int) -> None:
    block = bytearray(header("c.txt", 1))
    block[place] ^= 0x41
    outcome = damaged(FIRST + bytes(block) + body(b"3") + END, CorruptShardError)
    assert outcome.plain == AFTER_FIRST
    assert outcome.error.offset == len(FIRST)


def claiming(size: int) -> bytes:
    return header("c.txt", size if size < 8**11 else b"\x80" + size.to_bytes(11, "big"))


def claiming_by_pax(size: int) -> bytes:
    return pax((b"size", b"%d" % size)) + header("c.txt", 0)


@pytest.mark.parametrize(
    ("claim", "make"),
    [(claim, claiming) for claim in (600, 10**6, 8**11 - 1, 8**11, 2**60, 2**70)]
    + [(claim, claiming_by_pax) for claim in (600, 8**11, 2**60, 10**19 - 1)],
)
def test_a_member_that_claims_more_than_is_there_is_named(claim: int, make: Callable[[int], bytes]) -> None:
    last = make(claim)
    outcome = damaged(FIRST + last + body(b"3" * 10), TruncatedShardError)
    assert outcome.plain == AFTER_FIRST
    assert (outcome.error.member, outcome.error.offset) == ("c.txt", len(FIRST))
    assert "member 'c.txt'" in str(outcome.error)
    assert str(claim) in str(outcome.error)


@pytest.mark.parametrize(
    "extended",
    [
        header("c.txt", 1, b"S", **GNU),
        header("c.txt", 1, b"M", **GNU),
        header("c.txt", 1, b"N", **GNU),
        header("c.txt", 1, b"Z"),
        header("c.txt", 1, b"\xff"),
        pax((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0")) + header("c.txt", 1),
    ],
)
def test_members_that_cannot_be_read_are_refused_by_name(extended: bytes) -> None:
    outcome = damaged(FIRST + extended + body(b"3") + END, UnsupportedMemberError)
    assert outcome.plain == AFTER_FIRST
    assert outcome.error.member == "c.txt"


@pytest.mark.parametrize("record", [(b"path", b"x.txt"), (b"size", b"1"), (b"GNU.sparse.size", b"1")])
def test_global_headers_that_change_members_are_refused(record: tuple[bytes, bytes]) -> None:
    outcome = damaged(FIRST + pax(record, kind=b"g") + member("c.txt", b"3") + END, UnsupportedMemberError)
    assert outcome.plain == AFTER_FIRST


@pytest.mark.parametrize(
    "payload",
    [
        b"5 a=b\n", b"7 a=b\n", b"6 a=b", b"0 a=b\n", b"-6 a=b\n", b"+6 a=b\n", b"99999999999999999999 a=b\n", b"a=b\n",
        b"6 aab\n", b"5 =b\n", b"junk", b"\0" * 20, b"6 a=b\n\0", b" 6 a=b\n", pax_record(b"size", b"-1"),
        pax_record(b"size", b"1.5"), pax_record(b"size", b"9" * 5000), pax_record(b"size", b"\xc2\xb2"),
        pax_record(b"path", b"a\0b.txt"),
    ],
)  # fmt: skip
def test_records_that_are_none_are_corruption(payload: bytes) -> None:
    outcome = damaged(FIRST + member("x", payload, kind=b"x") + member("c.txt", b"3") + END, CorruptShardError)
    assert outcome.plain == AFTER_FIRST


@pytest.mark.parametrize(
    "size", [b"\xff" * 12, b"0000000008\0 ", b"-0000000001\0", b"0x000000001\0", b"junk", b"0_000000001\0"]
)
def test_sizes_that_are_none_are_corruption(size: bytes) -> None:
    outcome = damaged(FIRST + header("c.txt", size) + body(b"3") + END, CorruptShardError)
    assert outcome.plain == AFTER_FIRST
    assert outcome.error.member == "c.txt"


@pytest.mark.parametrize("junk", [b"garbage", b"g" * BLOCK, b"g" * 5000])
def test_garbage_after_the_end_is_no_silent_loss(junk: bytes) -> None:
    outcome = read_both(FIRST + END + junk)
    assert isinstance(outcome.error, CorruptShardError | TruncatedShardError)
    assert outcome.error.offset == len(FIRST + END)


def test_an_extended_header_alone_is_damage() -> None:
    for extended in (pax((b"path", b"x.txt")), gnu_long(b"x.txt"), gnu_long(b"x.txt", b"K")):
        damaged(FIRST + extended, TruncatedShardError)
        damaged(FIRST + extended + END, CorruptShardError)
        damaged(FIRST + extended[: BLOCK + 3], TruncatedShardError)


def test_empty_files_and_web_pages_are_no_tars(tmp_path: Path) -> None:
    page = b"<!DOCTYPE html><html><head><title>404 Not Found</title></head></html>"
    for name, data in {"empty": b"", "short": page, "page": page * 50, "text": b"hello\n" * 1000}.items():
        path = tmp_path / f"{name}.tar"
        path.write_bytes(data)
        with pytest.raises(ShardError) as caught:
            list(shoal.read_tar(path))
        assert caught.value.shard == str(path)
        assert caught.value.offset == 0
        assert isinstance(caught.value, tarfile.ReadError)
    assert samples_of(END) == []


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_damage_in_a_compressed_shard_is_a_shard_error(tmp_path: Path, compression: str) -> None:
    rng = random.Random(1)
    members = [(f"{number:03d}.bin", rng.randbytes(3000)) for number in range(60)]
    packed = COMPRESSIONS[compression](pack(members))
    keys = [name[:3] for name, _ in members]
    for cut in [len(packed) // 2, len(packed) // 3, 20, 7]:
        outcome = read_streamed(packed[:cut])
        assert type(outcome.error) is TruncatedShardError
        assert [sample.key for sample in outcome.samples] == keys[: len(outcome.samples)]
    for seed in range(20):
        at = random.Random(seed).randrange(len(packed) // 2)
        flipped = packed[:at] + bytes([packed[at] ^ 0x55]) + packed[at + 1 :]
        outcome = read_streamed(flipped)
        # A flip in a header's name or time may change nothing; it is never anything but a shard error.
        assert outcome.error is not None or outcome.plain == read_streamed(packed).plain or compression == "zst"
        assert outcome.error is None or isinstance(outcome.error, ShardError)


@pytest.mark.parametrize(("compression", "place"), [("gz", -8), ("bz2", 10), ("xz", -20), ("xz", -1)])
def test_a_wrong_checksum_of_the_compression_is_corruption(compression: str, place: int) -> None:
    packed = bytearray(COMPRESSIONS[compression](pack(TWO_MEMBERS)))
    packed[place] ^= 0xFF
    outcome = read_streamed(bytes(packed))
    assert type(outcome.error) is CorruptShardError
    assert "the compressed stream is damaged" in str(outcome.error)


def test_a_broken_disk_is_not_taken_for_a_damaged_tar() -> None:
    class Broken(Unseekable):
        def readinto(self, buffer: memoryview) -> int:
            raise OSError(5, "Input/output error")

    class Unreachable(Unseekable):
        def readinto(self, buffer: memoryview) -> int:
            raise UrlError("gone")

    packed = bz2.compress(pack(TWO_MEMBERS))
    for kind, expected in ((Broken, OSError), (Unreachable, UrlError)):
        stream = io.BufferedReader(Rest(packed[:10], kind(b"")))
        with pytest.raises(expected) as caught:
            list(StreamedTar(stream, "s.tar").entries())
        assert not isinstance(caught.value, ShardError)


class Rest(io.RawIOBase):
    """Some bytes, and then whatever another stream does."""

    def __init__(self, head: bytes, then: io.RawIOBase) -> None:
        self._head, self._then = head, then

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int | None:
        if not self._head:
            return self._then.readinto(buffer)
        count = len(self._head)
        buffer[:count], self._head = self._head, b""
        return count


HUGE = """
import io, resource, sys
from shoal.errors import ShardError
from shoal.shards import StreamedTar, MappedTar
data = sys.stdin.buffer.read()
open(sys.argv[1], "wb").write(data)
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
for read in (
    lambda: list(StreamedTar(io.BufferedReader(io.BytesIO(data)), "s.tar").entries()),
    lambda: list(MappedTar(open(sys.argv[1], "rb"), "s.tar").entries()),
):
    try:
        read()
    except ShardError as error:
        print(type(error).__name__)
"""


@pytest.mark.parametrize("kind", [b"0", b"x", b"g", b"L", b"K", b"D", b"V"])
@pytest.mark.parametrize("size", [b"77777777777\0", b"\x80" + bytes(3) + b"\x7f" + b"\xff" * 7])
def test_a_lying_size_asks_for_no_memory(tmp_path: Path, kind: bytes, size: bytes) -> None:
    data = member("a.txt", b"1") + header("b.txt", size, kind) + body(b"2") + END
    limit = 1200 * 2**20  # what numpy reserves for its threads, and not a fraction of what is claimed
    done = subprocess.run(
        [sys.executable, "-c", HUGE, tmp_path / "s.tar", str(limit)], input=data, capture_output=True, check=False
    )
    assert done.stderr.decode() == ""
    lines = done.stdout.decode().split()
    assert len(lines) == 2
    assert lines[0] == lines[1]
    assert lines[0] in ("TruncatedShardError", "CorruptShardError")


def test_a_header_changed_with_a_right_checksum_is_believed() -> None:
    block = with_checksum(header("a.txt", 1)[:100] + bytes(24) + header("a.txt", 1)[124:])
    assert samples_of(block + body(b"1") + END) == [("a", {"txt": b"1"})]
    assert without_end(block + body(b"1") + END) == block + body(b"1")
