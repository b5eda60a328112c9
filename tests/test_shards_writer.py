"""What is written is read back as it was, in the same bytes every time, and never seen half."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import itertools
import lzma
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.errors import EncodeError, PlanError, SettingsError, TrustError, UrlError
from shoal.shards import Attributes, ShardWriter, TarWriter, WrittenShard
from support.tars import samples_of

SAMPLES = [{"__key__": f"{number:04d}", "txt": f"number {number}", "cls": number} for number in range(10)]


def tar_of(samples: list[dict[str, Any]], **options: Any) -> bytes:
    file = io.BytesIO()
    with TarWriter(file, **options) as writer:
        for sample in samples:
            writer.write(sample)
    return file.getvalue()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_the_same_samples_give_the_same_bytes(tmp_path: Path) -> None:
    turned = [dict(reversed(sample.items())) for sample in SAMPLES]
    assert tar_of(SAMPLES) == tar_of(turned)
    for compression in ("gz", "bz2", "xz", "zst"):
        assert tar_of(SAMPLES, compression=compression) == tar_of(turned, compression=compression)
    for name in ("a.tar", "b.tar"):
        with TarWriter(tmp_path / name) as writer:
            for sample in SAMPLES:
                writer.write(sample)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes() == tar_of(SAMPLES)


HASHING = """
import sys
from shoal.shards import TarWriter
with TarWriter("-", compression=sys.argv[1] or None) as writer:
    for number in range(20):
        fields = {name: f"{name}{number}" for name in {"txt", "a.txt", "b.txt", "c.txt", "z.txt", "text"}}
        writer.write({"__key__": f"\u00e4-{number}", "json": {"x": [1], "y": number}, **fields})
"""


def test_the_bytes_depend_on_no_hash_seed_and_no_clock() -> None:
    for compression in ("", "gz"):
        digests = set()
        for seed in ("0", "1", "77"):
            done = subprocess.run(
                [sys.executable, "-c", HASHING, compression],
                env=os.environ | {"PYTHONHASHSEED": seed},
                capture_output=True,
                check=True,
            )
            digests.add(hashlib.sha256(done.stdout).hexdigest())
            assert len(done.stdout) > 500
        assert len(digests) == 1


def test_other_programs_read_what_was_written(tmp_path: Path) -> None:
    keys = ["a", "dir.d/b", "n" * 150, "d/" * 90 + "x", "\u00e4\u4e2d", "p" * 90 + "/" + "q" * 90]
    with TarWriter(tmp_path / "a.tar") as writer:
        for key in keys:
            writer.write({"__key__": key, "txt": key, "cls": 1})
    expected = [f"{key}.{field}" for key in keys for field in ("cls", "txt")]
    listed = subprocess.run(
        ["tar", "--quoting-style=literal", "-tf", tmp_path / "a.tar"], capture_output=True, check=True
    )
    assert listed.stdout.decode().splitlines() == expected
    assert listed.stderr == b""
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert tar.getnames() == expected
        for info in tar:
            content = tar.extractfile(info)
            assert content is not None
            assert content.read().decode() in (info.name[:-4], "1")
            assert (info.mtime, info.mode, info.uname, info.uid) == (0, 0o444, "shoal", 0)


def test_attributes_can_be_chosen_within_what_a_header_holds() -> None:
    data = tar_of(SAMPLES[:1], attributes=Attributes(mtime=12345, mode=0o600, user="me", group="us"))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        info = tar.getmembers()[0]
    assert (info.mtime, info.mode, info.uname, info.gname) == (12345, 0o600, "me", "us")
    for wrong in (
        {"mtime": -1},
        {"mtime": 8**11},
        {"mode": -1},
        {"mode": 8**7},
        {"user": "u" * 32},
        {"group": "\u00e4" * 16},
    ):
        with pytest.raises(PlanError):
            Attributes(**wrong)


def test_fields_are_written_sorted_and_underscored_ones_left_out() -> None:
    sample = {"__key__": "a", "txt": "1", "cls": 2, "_private": 3, "__url__": "x", "b.txt": "4"}
    assert samples_of(tar_of([sample])) == [("a", {"b.txt": b"4", "cls": b"2", "txt": b"1"})]
    with tarfile.open(fileobj=io.BytesIO(tar_of([sample]))) as tar:
        assert tar.getnames() == ["a.b.txt", "a.cls", "a.txt"]
    kept = tar_of([{"__key__": "a", "_txt": b"1", "__key2__": b"2"}], keep_meta=True)
    assert samples_of(kept) == [("a", {"__key2__": b"2", "_txt": b"1"})]


KEYS = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=300),
    st.text(st.sampled_from("ab/._\udcff\udce4\ud800\u00e4"), min_size=1, max_size=12),
    st.integers(90, 270).map(lambda length: "k" * length),
    st.tuples(st.integers(1, 160), st.integers(1, 110)).map(lambda sizes: "p" * sizes[0] + "/" + "k" * sizes[1]),
)
FIELDS = st.one_of(st.sampled_from(["txt", "TXT", "seg.png", "", "__key__", "a/b", "b__"]), st.text(max_size=8))


@settings(max_examples=500, deadline=None)
@given(
    key=KEYS.filter(lambda key: key not in {"before", "after"}),  # keys of the neighbours, taken from this source
    field=FIELDS,
    size=st.sampled_from([0, 1, 512, 513]),
)
def test_what_is_accepted_is_read_back_as_it_was(key: str, field: str, size: int) -> None:
    file = io.BytesIO()
    with TarWriter(file) as writer:
        writer.write({"__key__": "before", "x": b"0"})
        try:
            writer.write_fields(key, {field: bytes(size), "zzz": b"1"})
        except EncodeError:
            expected = []
        else:
            expected = [(key, {field.lower(): bytes(size), "zzz": b"1"})]
        writer.write({"__key__": "after", "x": b"2"})
    assert samples_of(file.getvalue()) == [("before", {"x": b"0"}), *expected, ("after", {"x": b"2"})]


@pytest.mark.parametrize(
    "key", ["n" * 500, "\u00e4\u00f6", "caf\udce9", "\udcff\udc80" * 60, "a b\nc", "x" * 97, "d.d/x"]
)
def test_long_foreign_and_broken_names_make_the_round_trip(key: str) -> None:
    assert samples_of(tar_of([{"__key__": key, "txt": "1", "seg.PNG": b"2"}])) == [
        (key, {"txt": b"1", "seg.png": b"2"})
    ]


@pytest.mark.parametrize(
    "sample",
    [
        {"txt": "no key"},
        {"__key__": "a"},
        {"__key__": "a", "_only": b"private"},
        {"__key__": "", "txt": "1"},
        {"__key__": "a.b", "txt": "1"},
        {"__key__": ".a", "txt": "1"},
        {"__key__": "d.d/", "txt": "1"},
        {"__key__": "a\0b", "txt": "1"},
        {"__key__": "a", "t\0t": b"1"},
        {"__key__": "a", "t/t": b"1"},
        {"__key__": "__x__/a", "txt": "1"},
        {"__key__": "__a__", "b__": b"1"},
        {"__key__": "a", "txt": b"1", "TXT": b"2"},
        {"__key__": "a", "__KEY__": b"1"},
        {"__key__": "\ud800", "txt": b"1"},
        {"__key__": "a", "ok": b"1", "zz\ud800": b"1"},
        {"__key__": "\udcc3\udca4", "txt": b"1"},
        {"__key__": 7, "txt": b"1"},
        {"__key__": None, "txt": b"1"},
        {"__key__": b"bytes", "txt": b"1"},
        {"__key__": "a", "unknown": Ellipsis},
        {"__key__": "a", "cls": "no number \u00e4", "json": Ellipsis},
    ],
    ids=repr,
)
@pytest.mark.parametrize("kind", [TarWriter, ShardWriter])
def test_a_sample_that_would_be_lost_or_changed_is_refused_and_leaves_no_trace(
    tmp_path: Path, sample: dict[str, Any], kind: type[Any]
) -> None:
    target = tmp_path / ("a-%d.tar" if kind is ShardWriter else "a-0.tar")
    with kind(target, keep_meta="__KEY__" in sample) as writer:
        writer.write({"__key__": "before", "x": b"0"})
        with pytest.raises(EncodeError):
            writer.write(sample)
        writer.write({"__key__": "after", "x": b"1"})
    assert [(s["__key__"], s["x"]) for s in shoal.read_tar(tmp_path / "a-0.tar")] == [("before", b"0"), ("after", b"1")]


def test_fields_that_are_no_bytes_are_refused_before_anything_is_written() -> None:
    file = io.BytesIO()
    with TarWriter(file) as writer:
        with pytest.raises(EncodeError):
            writer.write_fields("a", {"a": b"1", "b": "text"})  # type: ignore[dict-item]
        writer.write_fields("b", {"a": b"2"})
    assert samples_of(file.getvalue()) == [("b", {"a": b"2"})]


def test_the_same_key_twice_in_a_row_is_refused_but_not_later() -> None:
    with TarWriter(io.BytesIO()) as writer:
        writer.write({"__key__": "a", "x": b"0"})
        with pytest.raises(EncodeError, match="twice in a row"):
            writer.write({"__key__": "a", "y": b"0"})
        writer.write({"__key__": "b", "x": b"0"})
        writer.write({"__key__": "a", "x": b"0"})


def test_an_encoder_of_ones_own_makes_the_bytes() -> None:
    def encoder(sample: Mapping[str, Any]) -> dict[str, bytes]:
        return {"bin": bytes(sample["values"])}

    assert samples_of(tar_of([{"__key__": "a", "values": [1, 2]}], encoder=encoder)) == [("a", {"bin": b"\1\2"})]
    with pytest.raises(EncodeError, match="encoding is off"):
        tar_of([{"__key__": "a", "txt": "text"}], encoder=False)
    assert samples_of(tar_of([{"__key__": "a", "txt": b"raw"}], encoder=False)) == [("a", {"txt": b"raw"})]


def test_write_tells_bytes_count_and_size() -> None:
    file = io.BytesIO()
    writer = TarWriter(file)
    assert writer.write({"__key__": "a", "txt": "hello", "cls": 12}) == 7
    assert (writer.count, writer.size) == (1, 2048)
    writer.close()
    writer.close()
    assert writer.size == len(file.getvalue())
    with pytest.raises(ValueError, match="closed"):
        writer.write({"__key__": "b", "txt": "x"})


# Nothing half


@pytest.mark.parametrize("name", ["a.tar", "a.tgz", "a.tar.zst", "a.tar.xz"])
@pytest.mark.parametrize("how", ["exception", "abort", "interrupt"])
def test_a_writer_that_fails_leaves_no_shard(tmp_path: Path, name: str, how: str) -> None:
    error = KeyboardInterrupt if how == "interrupt" else ZeroDivisionError
    writer = TarWriter(tmp_path / name, index=True)
    if how == "abort":
        writer.write(SAMPLES[0])
        writer.abort()
        writer.close()
    else:
        with pytest.raises(error):
            fail_after(writer, SAMPLES, error)
    assert names(tmp_path) == []


def fail_after(writer: TarWriter | ShardWriter, samples: list[dict[str, Any]], error: type[BaseException]) -> None:
    with writer:
        for sample in samples:
            writer.write(sample)
        raise error


def test_the_old_shard_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with TarWriter(path) as writer:
        writer.write(SAMPLES[0])
    with pytest.raises(ZeroDivisionError):
        fail_after(TarWriter(path), SAMPLES[1:2], ZeroDivisionError)
    assert [sample["__key__"] for sample in shoal.read_tar(path)] == ["0000"]


def test_shards_complete_before_an_error_stay(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path / "a-%d.tar", maxcount=3)
    with pytest.raises(ZeroDivisionError):
        fail_after(writer, SAMPLES[:8], ZeroDivisionError)
    assert names(tmp_path) == ["a-0.tar", "a-1.tar"]
    assert [shard.count for shard in writer.shards] == [3, 3]


WRITER = """
import itertools, sys
from shoal.shards import ShardWriter
print("ready", flush=True)
with ShardWriter(sys.argv[1] + "/a-%06d" + sys.argv[2], maxcount=7, index=True) as writer:
    for number in itertools.count():
        writer.write({"__key__": str(number), "bin": bytes([number % 256]) * (number * 7919 % 60000)})
"""


@pytest.mark.parametrize("ending", [".tar", ".tgz"])
def test_readers_never_see_half_a_shard_even_when_the_writer_is_killed(tmp_path: Path, ending: str) -> None:
    rng = random.Random(7)
    for attempt in range(4):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        process = subprocess.Popen([sys.executable, "-c", WRITER, folder, ending], stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            wanted, seen = rng.randrange(1, 12), 0
            while seen < wanted:
                seen = check_complete(folder, ending)
            time.sleep(rng.random() * 0.02)
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        assert check_complete(folder, ending) >= wanted
        with ShardWriter(f"{folder}/a-%06d{ending}", maxcount=7, start=500) as writer:
            writer.write({"__key__": "0", "bin": b""})


def check_complete(folder: Path, ending: str) -> int:
    """Read every shard that can be seen; each holds the seven samples that its number says."""
    shards = sorted(path for path in folder.iterdir() if path.name.endswith(ending) and path.name[0] != ".")
    for path in shards[-3:]:
        first = int(path.name[2:8]) * 7
        samples = list(shoal.read_tar(path))
        assert [sample["__key__"] for sample in samples] == [str(number) for number in range(first, first + 7)]
        assert [len(s["bin"]) for s in samples] == [number * 7919 % 60000 for number in range(first, first + 7)]
    return len(shards)


# Rolling


def test_shards_are_begun_by_count(tmp_path: Path) -> None:
    done: list[WrittenShard] = []
    with ShardWriter(tmp_path / "t-%03d.tar", maxcount=4, on_shard=done.append, start=5) as writer:
        for sample in SAMPLES:
            writer.write(sample)
    assert names(tmp_path) == ["t-005.tar", "t-006.tar", "t-007.tar"]
    assert [shard.count for shard in writer.shards] == [4, 4, 2]
    assert done == writer.shards
    assert [Path(shard.url).stat().st_size for shard in done] == [shard.size for shard in done]
    assert [s["cls"] for s in shoal.read_tar(tmp_path).decode()] == list(range(10))


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 512, 600, 3000, 9000]), min_size=1, max_size=20),
    maxsize=st.sampled_from([1, 2048, 4096, 5000, 8192, 10_000, 20_000]),
    stem=st.sampled_from(["", "n" * 120, "\u00e4" * 100, "p" * 90 + "/"]),
)
def test_no_shard_is_larger_than_asked_for_unless_one_sample_is(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], maxsize: int, stem: str
) -> None:
    folder = tmp_path_factory.mktemp("roll")
    with ShardWriter(folder / "a-%04d.tar", maxsize=maxsize) as writer:
        for number, size in enumerate(sizes):
            writer.write({"__key__": f"{stem}{number}", "bin": bytes(size), "cls": number})
    files = sorted(folder.iterdir())
    assert [str(path) for path in files] == [shard.url for shard in writer.shards]
    for path, shard in zip(files, writer.shards, strict=True):
        assert path.stat().st_size == shard.size
        assert path.stat().st_size <= maxsize or shard.count == 1
    for one, two in itertools.pairwise(files):
        # Not one shard more than needed: the next one's first sample would not have fitted.
        with tarfile.open(two) as tar:
            second = tar.getmembers()
        begin, until = second[0].offset, second[2].offset if len(second) > 2 else two.stat().st_size - 1024
        assert one.stat().st_size + until - begin > maxsize
    assert [s["__key__"] for s in shoal.read_tar(folder)] == [f"{stem}{number}" for number in range(len(sizes))]


def test_equal_keys_may_stand_on_both_sides_of_a_border(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "a-%d.tar", maxcount=1) as writer:
        for number in range(3):
            writer.write({"__key__": "same", "cls": number})
    assert [s["cls"] for s in shoal.read_tar(tmp_path).decode()] == [0, 1, 2]


def test_an_empty_writer_leaves_no_shard(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "a-%d.tar"):
        pass
    assert names(tmp_path) == []
    with ShardWriter(tmp_path / "a-%d.tar") as writer, pytest.raises(EncodeError):
        writer.write({"__key__": "a.b", "txt": "1"})
    assert names(tmp_path) == []
    assert writer.shards == []
    with ShardWriter(tmp_path / "a-%d.tar", maxcount=1) as writer:
        writer.write(SAMPLES[0])
        with pytest.raises(EncodeError):
            writer.write({"__key__": "a.b", "txt": "1"})
    assert names(tmp_path) == ["a-0.tar"]


@pytest.mark.parametrize(
    "pattern", ["a.tar", "a-%d-%d.tar", "100%.tar", "a-%%.tar", "%(x)d.tar", "a-%z.tar", "%", "a-%.0s.tar"]
)
def test_a_pattern_that_numbers_nothing_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(PlanError, match="train-%06d"):
        ShardWriter(tmp_path / pattern)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "options", [{"maxcount": 0}, {"maxcount": -1}, {"maxsize": 0}, {"maxsize": "none"}, {"maxsize": -5}]
)
def test_limits_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises((PlanError, SettingsError)):
        ShardWriter(tmp_path / "a-%d.tar", **options)


# Where to


UNPACK = {
    "a.tar": bytes,
    "a.tar.gz": gzip.decompress,
    "a.tgz": gzip.decompress,
    "a.TGZ": gzip.decompress,
    "a.tar.bz2": bz2.decompress,
    "a.tar.xz": lzma.decompress,
    "a.tar.zst": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
}


@pytest.mark.parametrize("name", UNPACK)
@pytest.mark.parametrize("remote", [False, True])
def test_compression_follows_the_name(tmp_path: Path, name: str, remote: bool) -> None:
    url = f"memory://{tmp_path.name}/{name}" if remote else str(tmp_path / name)
    with TarWriter(url) as writer:
        for sample in SAMPLES:
            writer.write(sample)
    with fsspec.open(url, "rb") as file:
        assert UNPACK[name](file.read()) == tar_of(SAMPLES)
    assert [s["cls"] for s in shoal.read_tar(url).decode()] == list(range(10))
    with TarWriter(url, compression=False) as writer:
        writer.write(SAMPLES[0])
    with fsspec.open(url, "rb") as file:
        assert file.read() == tar_of(SAMPLES[:1])


def test_a_compression_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="known are gz, bz2, xz and zst"):
        TarWriter(tmp_path / "a.tar", compression="rar")
    assert names(tmp_path) == []


STDOUT = """
from shoal.shards import TarWriter
with TarWriter("-") as writer:
    writer.write({"__key__": "a", "txt": "hello"})
print("still open", flush=True)
"""


def test_standard_output_gets_the_tar_and_stays_open() -> None:
    done = subprocess.run([sys.executable, "-c", STDOUT], capture_output=True, check=True)
    assert done.stdout == tar_of([{"__key__": "a", "txt": "hello"}]) + b"still open\n"


def test_a_pipe_needs_trust(tmp_path: Path) -> None:
    url = f"pipe:cat > {tmp_path}/a.tar"
    with pytest.raises(TrustError):
        TarWriter(url)
    with TarWriter(url, trust=True) as writer:
        writer.write(SAMPLES[0])
    assert (tmp_path / "a.tar").read_bytes() == tar_of(SAMPLES[:1])


def test_an_open_file_stays_open_and_can_have_no_index() -> None:
    file = io.BytesIO()
    with TarWriter(file) as writer:
        writer.write(SAMPLES[0])
    assert not file.closed
    with pytest.raises(PlanError, match="no place beside it"):
        TarWriter(io.BytesIO(), index=True)


def test_a_remote_shard_appears_when_it_is_complete(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}/a.tar"
    fs = fsspec.filesystem("memory")
    with TarWriter(url) as writer:
        writer.write(SAMPLES[0])
        assert not fs.exists(url)
    assert fs.exists(url)
    with pytest.raises(ZeroDivisionError):
        fail_after(TarWriter(f"memory://{tmp_path.name}/b.tar"), SAMPLES[:1], ZeroDivisionError)
    assert fs.find(f"/{tmp_path.name}") == [f"/{tmp_path.name}/a.tar"]


@pytest.mark.parametrize("ending", [".tar", ".tgz"])
def test_a_disk_that_is_full_is_an_error_that_names_it(ending: str) -> None:
    samples = [{"__key__": str(number), "bin": random.Random(number).randbytes(100_000)} for number in range(40)]
    with pytest.raises(UrlError, match="/dev/full"):
        fail_after(TarWriter("/dev/full", compression=ending == ".tgz"), samples, ZeroDivisionError)
