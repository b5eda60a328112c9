"""``shoal verify`` and ``shoal index``: what is wrong with shards, and where."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import tempfile
from itertools import accumulate, count, islice
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from shoal.cli._checking import Checks, checked
from shoal.shards import load_index, read_dali_index
from shoal.sources import TarSource
from support.shell import environment, shell
from support.tars import END, member, pack, with_checksum, write_shard

PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def shard(path: Path, count: int = 10) -> Path:
    write_shard(path, [(f"{n:03d}", {"cls": b"%d" % n, "txt": b"text"}) for n in range(count)])
    return path


def problems(path: Path, **checks: Any) -> list[tuple[str, int | None, str | None, str | None]]:
    found = checked(Checks(**checks), str(path)).problems
    return [(problem.kind, problem.offset, problem.key, problem.field) for problem in found]


def test_sound_shards_are_called_so(tmp_path: Path) -> None:
    shard(tmp_path / "a-0.tar")
    (tmp_path / "a-1.tgz").write_bytes(gzip.compress(shard(tmp_path / "x").read_bytes()))
    done = shell("shoal verify --decode a-0.tar a-1.tgz && cat a-0.tar | shoal verify", tmp_path)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"# 20 samples in 2 shards: all sound\n# 10 samples in 1 shard: all sound\n"


def test_every_damaged_header_is_found_not_only_the_first(tmp_path: Path) -> None:
    data = bytearray(shard(tmp_path / "a.tar").read_bytes())
    for block in (4, 12, 30):  # headers: each member is a header and a block
        data[block * 512] ^= 1
    (tmp_path / "a.tar").write_bytes(data)
    found = problems(tmp_path / "a.tar")
    assert [(kind, offset) for kind, offset, *_ in found if kind == "structure"] == [
        ("structure", 4 * 512), ("structure", 12 * 512), ("structure", 30 * 512),
    ]  # fmt: skip
    done = shell("shoal verify a.tar", tmp_path)
    assert done.returncode == 1
    assert b"a.tar, offset 2048: the header's checksum is wrong\n" in done.stdout
    assert b"# 10 samples in 1 shard: " in done.stderr  # the other field of each is still there


def test_a_stream_is_read_up_to_the_damage(tmp_path: Path) -> None:
    data = bytearray(shard(tmp_path / "a.tar").read_bytes())
    data[4 * 512] ^= 1
    (tmp_path / "a.tgz").write_bytes(gzip.compress(data))
    report = checked(Checks(), str(tmp_path / "a.tgz"))
    assert [(problem.kind, problem.offset) for problem in report.problems] == [("structure", 2048)]
    assert report.samples == 1
    whole = gzip.compress(shard(tmp_path / "b.tar").read_bytes())
    (tmp_path / "cut.tgz").write_bytes(whole[: len(whole) - 40])
    assert [kind for kind, *_ in problems(tmp_path / "cut.tgz")] == ["structure"]


@given(st.data())
def test_damage_anywhere_in_headers_is_found_and_what_is_behind_it_read(data: st.DataObject) -> None:
    members = [member(f"{n:03d}.txt", bytes(n * 300)) for n in range(8)]
    begins = list(accumulate(map(len, members), initial=0))[:-1]
    wrong = data.draw(st.sets(st.integers(0, 7), min_size=1))
    tar = bytearray(b"".join(members) + END)
    for number in wrong:
        place = begins[number] + data.draw(st.integers(0, 99))
        tar[place] ^= data.draw(st.integers(1, 255))
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        file.write(tar)
        file.flush()
        report = checked(Checks(), file.name)
    # A damaged header directly behind another cannot be told from what belongs to it.
    expected = {begins[number] for number in wrong if number - 1 not in wrong}
    assert {problem.offset for problem in report.problems} == expected
    assert report.samples == 8 - len(wrong)


@given(st.binary(max_size=3000), st.booleans())
def test_no_bytes_at_all_end_it_otherwise_than_with_a_report(data: bytes, headed: bool) -> None:
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        file.write(member("a.txt", data) + data if headed else data)
        file.flush()
        assert checked(Checks(decode=True), file.name).problems


@pytest.mark.parametrize("cut", [700, 512, 1024 * 10, 1])
def test_a_tar_that_was_cut_is_found(cut: int, tmp_path: Path) -> None:
    data = shard(tmp_path / "a.tar").read_bytes()[:cut]
    (tmp_path / "a.tar").write_bytes(data)
    assert [kind for kind, *_ in problems(tmp_path / "a.tar")] == ["structure"]


def test_an_empty_file_is_no_tar(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"")
    assert len(problems(tmp_path / "a.tar")) == 1
    assert len(problems(tmp_path / "absent.tar")) == 1


def test_duplicates_and_samples_torn_apart(tmp_path: Path) -> None:
    names = ["a.txt", "a.txt", "b.txt", "a.cls", "c.txt", "c.TXT", "c.cls"]
    (tmp_path / "a.tar").write_bytes(pack([(name, b"1") for name in names], "ustar"))
    assert problems(tmp_path / "a.tar") == [
        ("grouping", 1024, "a", "txt"),
        ("grouping", 3 * 1024, "a", None),
        ("grouping", 5 * 1024, "c", "txt"),
    ]


def test_samples_that_lack_what_others_have(tmp_path: Path) -> None:
    samples = [(f"{n:03d}", {"cls": b"1", "txt": b"x"} if n != 7 else {"cls": b"1"}) for n in range(20)]
    write_shard(tmp_path / "a.tar", samples[:10])
    write_shard(tmp_path / "b.tar", samples[10:])
    done = shell("shoal verify a.tar b.tar", tmp_path)
    assert (done.returncode, done.stdout) == (1, b"a.tar, offset 14336, sample '007': there is no txt, only cls\n")
    assert done.stderr == b"# 20 samples in 2 shards: 1 problem in 1 of them\n"


def test_what_samples_must_have_can_be_said(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.tar", [("a", {"jpg": b"1"}), ("b", {"png": b"1"}), ("c", {"cls": b"1"})])
    assert shell("shoal verify a.tar", tmp_path).returncode == 0
    done = shell("shoal verify -f 'jpg;png' a.tar", tmp_path)
    assert (done.returncode, done.stdout) == (1, b"a.tar, offset 2048, sample 'c': there is no jpg or png, only cls\n")


def test_fields_that_do_not_decode(tmp_path: Path) -> None:
    samples = [
        ("a", {"cls": b"x", "png": b"no"}),
        ("b", {"cls": b"1", "json": b"{"}),
        ("c", {"pkl": b"N.", "raw": b"?"}),
    ]
    path = Path(write_shard(tmp_path / "a.tar", samples))
    assert problems(path) == []
    for name in ("a.tar", "a.tgz"):
        if name == "a.tgz":
            (tmp_path / name).write_bytes(gzip.compress(path.read_bytes()))
        assert [(kind, key, field) for kind, _, key, field in problems(tmp_path / name, decode=True)] == [
            ("decoding", "a", "cls"),
            ("decoding", "a", "png"),
            ("decoding", "b", "json"),
        ]
    done = shell("shoal verify --decode a.tar", tmp_path)
    assert done.stderr.startswith(b"# pkl was not decoded: ")
    assert b"a.tar, offset 1024, sample 'a', field 'png': expected a picture" in done.stdout


def test_escape_sequences_in_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(member("a\x1b[2J.txt") * 2 + END)
    done = shell("shoal verify a.tar", tmp_path)
    assert done.returncode == 1
    assert b"\x1b" not in done.stdout + done.stderr


def test_json_names_places(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(pack([("a.txt", b"1"), ("a.txt", b"2")], "ustar"))
    done = shell("shoal verify --json a.tar", tmp_path)
    told = json.loads(done.stdout)
    assert (done.returncode, told["sound"], told["shards"]) == (1, False, [{"url": "a.tar", "samples": 1}])
    assert {name: told["problems"][0][name] for name in ("shard", "kind", "offset", "key", "field")} == {
        "shard": "a.tar", "kind": "grouping", "offset": 1024, "key": "a", "field": "txt",
    }  # fmt: skip


def test_very_many_problems_are_counted_and_not_all_kept(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(pack([("a.txt", b"")] * 1500, "ustar"))
    report = checked(Checks(), str(tmp_path / "a.tar"))
    assert (len(report.problems), report.unnamed) == (1000, 499)


def test_other_formats_are_read_to_their_end(tmp_path: Path) -> None:
    record = bytes.fromhex("11000000000000009d6db52e0a0f0a0d0a0361676512061a040a0203050d70c26d")
    (tmp_path / "good.tfrecord").write_bytes(record * 2)
    (tmp_path / "bad.tfrecord").write_bytes(record + record[:20] + b"\xff" + record[21:])
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    done = shell("shoal verify good.tfrecord bad.tfrecord bad.parquet", tmp_path)
    assert done.returncode == 1
    assert b"good.tfrecord" not in done.stdout
    assert b"bad.tfrecord" in done.stdout
    assert b"bad.parquet" in done.stdout


def test_an_index_is_made_used_and_left_alone(tmp_path: Path) -> None:
    shard(tmp_path / "a-0.tar", 3)
    shard(tmp_path / "a-1.tar", 4)
    done = shell("shoal index -v 'a-{0..1}.tar' && shoal verify a-*.tar", tmp_path)
    assert done.returncode == 0
    assert b"# a-1.tar.index: 4 samples\n# 2 shards: 2 indexed, 0 up to date, 0 failed\n" in done.stderr
    assert len(load_index(str(tmp_path / "a-1.tar.index"))) == 4
    assert b"0 indexed, 2 up to date" in shell("shoal index a-*.tar", tmp_path).stderr
    shard(tmp_path / "a-1.tar", 5)
    assert b"1 indexed, 1 up to date" in shell("shoal index a-*.tar", tmp_path).stderr
    assert len(load_index(str(tmp_path / "a-1.tar.index"))) == 5
    assert b"2 indexed" in shell("shoal index --force a-*.tar", tmp_path).stderr


def test_indexes_in_another_folder_have_names_of_their_own(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        shard(tmp_path / name / "a.tar")
    assert shell("shoal index --to indexes x/a.tar", tmp_path).returncode == 0
    assert (tmp_path / "indexes" / "a.tar.index").exists()
    assert not (tmp_path / "x" / "a.tar.index").exists()
    done = shell("shoal index --to indexes x/a.tar y/a.tar", tmp_path)
    assert done.returncode == 2
    assert b"the indexes of x/a.tar and y/a.tar would both be indexes/a.tar.index" in done.stderr


def test_dali_has_a_format_of_its_own(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar")
    assert b"1 indexed" in shell("shoal index --dali a.tar", tmp_path).stderr
    index = read_dali_index(tmp_path / "a.idx", path)
    assert list(index.entries()) == list(TarSource(str(path)).index(TarSource(str(path)).shards()[0]).entries())
    assert b"1 up to date" in shell("shoal index --dali a.tar", tmp_path).stderr
    assert problems(path) == []
    lines = (tmp_path / "a.idx").read_text().splitlines()
    (tmp_path / "a.idx").write_text("\n".join([lines[0].replace("10", "9"), *lines[1:-1]]) + "\n")
    assert problems(path) == [("index", None, None, None)]


def test_a_shard_that_cannot_be_indexed_does_not_stop_the_others(tmp_path: Path) -> None:
    shard(tmp_path / "a.tar")
    (tmp_path / "b.tar").write_bytes(b"x" * 600)
    shard(tmp_path / "c.tar")
    done = shell("shoal index a.tar b.tar c.tar; ls", tmp_path)
    assert b"shoal: shard b.tar, offset 0: the header's checksum is wrong\n" in done.stderr
    assert b"2 indexed, 0 up to date, 1 failed" in done.stderr
    assert done.stdout.split() == [b"a.tar", b"a.tar.index", b"b.tar", b"c.tar", b"c.tar.index"]
    assert shell("shoal index b.tar", tmp_path).returncode == 1


def test_indexes_that_do_not_agree_are_problems(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar")
    shell("shoal index a.tar", tmp_path)
    assert problems(path) == []
    before = path.stat()
    data = path.read_bytes().replace(b"003.txt", b"003.tex", 1)
    header = data.index(b"003.tex")
    path.write_bytes(data[:header] + with_checksum(data[header : header + 512]) + data[header + 512 :])
    assert [kind for kind, *_ in problems(path)] == ["index"]
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    (problem,) = checked(Checks(), str(path)).problems
    assert "says otherwise than the shard; make it anew with shoal index --force" in problem.text
    shell("shoal index --force a.tar", tmp_path)
    assert problems(path) == []
    (tmp_path / "a.tar.index").write_bytes(b"no index")
    assert [kind for kind, *_ in problems(path)] == ["index"]


def test_pipes_have_no_index(tmp_path: Path) -> None:
    done = shell("shoal index - < /dev/null", tmp_path)
    assert done.returncode == 2
    assert b"can be read only once" in done.stderr


@pytest.mark.parametrize("name", ["verify", "info"])
def test_an_interrupt_ends_it_soon_with_130(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "endless.tar")
    numbers = count()
    with (
        subprocess.Popen(
            ["shoal", name, "endless.tar"], cwd=tmp_path, env=environment(), stderr=-1, stdout=-1
        ) as process,
        open(tmp_path / "endless.tar", "wb", buffering=0) as pipe,
    ):
        for number in islice(numbers, 2000):
            pipe.write(member(f"{number}.txt", bytes(5000)))
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(BrokenPipeError):
            while process.poll() is None:
                pipe.write(member(f"{next(numbers)}.txt", bytes(5000)))
        words, errors = process.communicate(timeout=60)
    assert (process.returncode, words, errors) == (130, b"", b"")
