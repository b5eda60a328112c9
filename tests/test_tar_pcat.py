"""``tarpcat`` reads several tars at once and writes every sample of every one of them, once."""

from __future__ import annotations

import gzip
import itertools
import signal
import subprocess
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.cli.tar._gathering import ARRIVAL, INPUTS, TURNS, gathered
from shoal.testing.faults import Resource, http_server
from support.shell import environment, shell
from support.streams import peak_memory
from support.tars import samples_of, without_end, write_shard

Samples = list[tuple[str, dict[str, bytes]]]


def shard(number: int, count: int = 100) -> Samples:
    keys = (f"{number:02d}/{place:04d}" for place in range(count))
    return [(key, {"txt": key.encode(), "cls": b"%d" % number}) for key in keys]


def write_shards(folder: Path, count: int) -> list[Samples]:
    shards = [shard(number, 50 + 30 * number) for number in range(count)]
    for number, samples in enumerate(shards):
        write_shard(folder / f"in-{number:02d}.tar", samples)
    return shards


def concatenated(options: str, folder: Path) -> Samples:
    done = shell(f"tarpcat {options}", folder)
    assert done.returncode == 0, done.stderr
    return samples_of(done.stdout)


def test_more_tars_than_workers_are_all_read(tmp_path: Path) -> None:
    shards = write_shards(tmp_path, 7)
    found = concatenated("-p 3 'in-{00..06}.tar'", tmp_path)
    assert sorted(found) == sorted(itertools.chain(*shards))
    for samples in shards:
        assert [sample for sample in found if sample in samples] == samples


def test_ordered_is_one_after_the_other(tmp_path: Path) -> None:
    shards = write_shards(tmp_path, 5)
    expected = list(itertools.chain(*reversed(shards)))
    assert concatenated("--ordered -p 3 in-0{4,3,2,1,0}.tar", tmp_path) == expected
    assert concatenated("-p 1 in-0{4,3,2,1,0}.tar", tmp_path) == expected


@pytest.mark.parametrize("options", ["", "--ordered", "--shuffle 50", "-p 1"])
def test_the_count_is_exact(options: str, tmp_path: Path) -> None:
    write_shards(tmp_path, 4)
    found = concatenated(f"{options} -c 123 'in-*.tar'", tmp_path)
    assert len(found) == 123
    assert len({key for key, _ in found}) == 123


def test_a_seeded_shuffle_mixes_tars_the_same_way_each_time(tmp_path: Path) -> None:
    shards = write_shards(tmp_path, 6)
    first = concatenated("-p 4 --shuffle 40 --seed 1 'in-*.tar'", tmp_path)
    assert first == concatenated("-p 4 --shuffle 40 --seed 1 'in-*.tar'", tmp_path)
    second = concatenated("-p 4 --shuffle 40 --seed 2 'in-*.tar'", tmp_path)
    assert second != first
    assert sorted(second) == sorted(first) == sorted(itertools.chain(*shards))
    assert len({fields["cls"] for _, fields in first[:100]}) > 1
    unseeded = concatenated("--shuffle 40 'in-*.tar'", tmp_path)
    assert sorted(unseeded) == sorted(first)


def test_a_list_of_files_and_some_samples_of_one(tmp_path: Path) -> None:
    shards = write_shards(tmp_path, 2)
    (tmp_path / "list.txt").write_text("in-00.tar\n\nin-01.tar#3,5\n")
    assert concatenated("-b --ordered -T list.txt", tmp_path) == [*shards[0], *shards[1][3:6]]


def test_keys_and_sources_without_a_tar(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.tar", [("x", {"txt": b""})])
    write_shard(tmp_path / "b.tar", [("y", {"txt": b""})])
    done = shell("tarpcat --ordered --dummy a.tar b.tar", tmp_path)
    assert done.stdout == b"x\ta.tar\ny\tb.tar\n"


def test_standard_input_among_others_may_go_on_for_ever(tmp_path: Path) -> None:
    write_shards(tmp_path, 2)
    command = ["tarpcat", "-", "in-01.tar", "--dummy", "-c", "60"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(without_end((tmp_path / "in-00.tar").read_bytes()))
        process.stdin.flush()
        assert process.wait(60) == 0
        assert len(process.stdout.readlines()) == 60
        assert process.stderr.read() == b""


def test_the_same_tar_twice_keeps_both_of_each_sample(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.tar", [("x", {"txt": b"1", "cls": b"2"})])
    done = shell("tarpcat a.tar a.tar a.tar -v", tmp_path)
    assert samples_of(done.stdout) == [(key, {"txt": b"1", "cls": b"2"}) for key in ("x", "x-1", "x-2")]
    assert b"2 samples had the key of the one before them and got another: 'x' is now 'x-1'" in done.stderr
    assert b"# 3 samples" in done.stderr


def test_damage_in_one_tar_ends_with_its_place(tmp_path: Path) -> None:
    write_shards(tmp_path, 4)
    whole = (tmp_path / "in-02.tar").read_bytes()
    (tmp_path / "in-02.tar").write_bytes(whole[:30_000])
    for options in ("", "--ordered", "-p 1"):
        done = shell(f"tarpcat {options} 'in-*.tar' -o out.tar", tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith(b"tarpcat: shard in-02.tar, offset ")
        assert len(done.stderr.splitlines()) == 1
        assert not (tmp_path / "out.tar").exists()
    assert b"could not read missing.tar" in shell("tarpcat in-00.tar missing.tar in-01.tar", tmp_path).stderr


def test_a_reader_that_leaves_ends_it_quietly(tmp_path: Path) -> None:
    write_shards(tmp_path, 6)
    done = shell("tarpcat 'in-*.tar' 'in-*.tar' 'in-*.tar' | head -c 10000 | wc -c; echo ${PIPESTATUS[0]}", tmp_path)
    assert done.stdout.split() == [b"10000", b"141"]
    assert done.stderr == b""


def test_compressed_tars_commands_and_servers(tmp_path: Path) -> None:
    shards = write_shards(tmp_path, 3)
    (tmp_path / "in-00.tgz").write_bytes(gzip.compress((tmp_path / "in-00.tar").read_bytes()))
    with http_server() as server:
        server.resources["/in-02.tar"] = Resource((tmp_path / "in-02.tar").read_bytes(), cut_after=[5000])
        url = server.url("/in-02.tar")
        found = concatenated(f"--trust --ordered in-00.tgz 'pipe:cat in-01.tar' {url}", tmp_path)
    assert found == list(itertools.chain(*shards))


def test_others_read_what_was_written(tmp_path: Path) -> None:
    write_shards(tmp_path, 3)
    done = shell("tarpcat 'in-*.tar' | tee out.tar | tar tf - | wc -l", tmp_path)
    assert int(done.stdout) == 2 * (50 + 80 + 110)
    with tarfile.open(tmp_path / "out.tar") as tar:
        assert len(tar.getnames()) == 2 * (50 + 80 + 110)


@pytest.mark.slow
def test_memory_stays_flat(tmp_path: Path) -> None:
    """300 MB along a pipe, and twice as much from where it was written."""
    assert peak_memory(["tarpcat"], 3000, tmp_path / "out.tar") < 200e6
    command = ["tarpcat", "-p", "4", "-", *[str(tmp_path / "out.tar")] * 2]
    assert peak_memory(command, 300, tmp_path / "more.tar") < 300e6


def test_a_kill_leaves_nothing_that_looks_complete(tmp_path: Path) -> None:
    write_shards(tmp_path, 2)
    command = ["tarpcat", "-v", "-", "-o", "out.tar"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(without_end((tmp_path / "in-00.tar").read_bytes()))
        process.stdin.flush()
        while not list(tmp_path.glob(".out.tar*")):
            time.sleep(0.02)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "out.tar").exists()


@given(st.lists(st.integers(0, 300), max_size=9), st.integers(1, 4))
def test_every_order_gives_everything(counts: list[int], workers: int) -> None:
    inputs = [range(1000 * number, 1000 * number + count) for number, count in enumerate(counts)]
    expected = list(itertools.chain(*inputs))
    assert list(gathered(inputs, iter, int, workers=workers, order=INPUTS)) == expected
    assert sorted(gathered(inputs, iter, int, workers=workers, order=ARRIVAL)) == expected
    turns = list(gathered(inputs, iter, int, workers=workers, order=TURNS))
    assert sorted(turns) == expected
    assert turns == list(gathered(inputs, iter, int, workers=workers, order=TURNS))


def test_inputs_are_read_at_the_same_time() -> None:
    """Each of three waits for the others to have begun."""
    together = threading.Barrier(3, timeout=60)

    def read(number: int) -> Iterator[int]:
        together.wait()
        yield number

    assert sorted(gathered([1, 2, 3], read, int, workers=3, order=ARRIVAL)) == [1, 2, 3]


@pytest.mark.parametrize("order", [ARRIVAL, INPUTS, TURNS])
def test_little_is_read_ahead(order: str) -> None:
    drawn: Counter[int] = Counter()

    def read(number: int) -> Iterator[bytes]:
        while True:
            drawn[number] += 1
            yield bytes(2**20)

    samples = gathered([1, 2, 3, 4, 5], read, len, workers=2, order=order)
    assert sum(len(next(samples)) for _ in range(50)) == 50 * 2**20
    samples.close()
    assert drawn.total() <= 50 + 2 * (4 + 2)
    assert len(drawn) <= 2


def test_what_goes_wrong_in_a_thread_is_raised() -> None:
    def read(number: int) -> Iterator[int]:
        yield from range(number)
        raise OSError(f"no more of {number}")

    samples = gathered([3, 4], read, int, workers=2, order=INPUTS)
    assert list(itertools.islice(samples, 3)) == [0, 1, 2]
    with pytest.raises(OSError, match="no more of 3"):
        next(samples)
