"""``tarsort`` puts samples into another order, however many they are, and loses none of them."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.cli.tar._apart import Apart
from shoal.cli.tar._order import Order
from shoal.cli.tar._sorting import Sorter
from support.shell import shell
from support.streams import peak_memory
from support.tars import samples_of, write_shard

LETTERS = [("0", {"txt": b"c"}), ("1", {"txt": b"b"}), ("2", {"txt": b"a"})]


def sorted_tar(options: str, folder: Path) -> list[tuple[str, dict[str, bytes]]]:
    done = shell(f"tarsort {options} -o sorted.tar", folder)
    assert done.returncode == 0, done.stderr
    return samples_of((folder / "sorted.tar").read_bytes())


def test_by_a_field_as_text(tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", LETTERS)
    assert sorted_tar("-s txt in.tar", tmp_path) == LETTERS[::-1]


def test_by_key_unless_told_otherwise_and_over_all_inputs(tmp_path: Path) -> None:
    write_shard(tmp_path / "in-0.tar", [("b", {"txt": b"1"}), ("d", {"txt": b"2"})])
    write_shard(tmp_path / "in-1.tar", [("c", {"txt": b"3"}), ("a", {"txt": b"4"})])
    assert [key for key, _ in sorted_tar("'in-{0..1}.tar'", tmp_path)] == ["a", "b", "c", "d"]
    assert [key for key, _ in sorted_tar("-r -c 3 in-1.tar in-0.tar", tmp_path)] == ["d", "c", "b"]


def test_numbers_are_compared_as_numbers(tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", [("a", {"cls": b"10"}), ("b", {"cls": b"9\n"}), ("c", {"cls": b"-1"})])
    assert [key for key, _ in sorted_tar("-s cls in.tar", tmp_path)] == ["c", "a", "b"]
    assert [key for key, _ in sorted_tar("-s cls --sorttype int in.tar", tmp_path)] == ["c", "b", "a"]
    assert [key for key, _ in sorted_tar("-s cls -S float -r in.tar", tmp_path)] == ["a", "b", "c"]


def test_what_compares_equal_stays_as_it_came(tmp_path: Path) -> None:
    samples = [(f"{number:03d}", {"cls": b"%d" % (number % 3), "bin": bytes([number])}) for number in range(60)]
    write_shard(tmp_path / "in.tar", samples)
    assert sorted_tar("-s cls in.tar", tmp_path) == sorted(samples, key=lambda sample: sample[1]["cls"])
    backwards = sorted(samples, key=lambda sample: sample[1]["cls"], reverse=True)
    assert sorted_tar("-s cls -r --memory 5KB in.tar", tmp_path) == backwards


def test_update_keeps_the_last_of_equal_ones(tmp_path: Path) -> None:
    samples = [(f"{number:03d}", {"cls": b"%d" % (number % 3)}) for number in range(10)]
    write_shard(tmp_path / "in.tar", samples)
    assert [key for key, _ in sorted_tar("-s cls --update in.tar", tmp_path)] == ["009", "007", "008"]
    assert [key for key, _ in sorted_tar("-s cls --update -r --memory 1KB in.tar", tmp_path)] == ["008", "007", "009"]


def test_samples_of_one_key_are_all_kept(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.tar", [("x", {"txt": b"first"}), ("y", {"txt": b"other"})])
    write_shard(tmp_path / "b.tar", [("x", {"txt": b"second"})])
    done = shell("tarsort a.tar b.tar", tmp_path)
    assert samples_of(done.stdout) == [("x", {"txt": b"first"}), ("x-1", {"txt": b"second"}), ("y", {"txt": b"other"})]
    assert done.stderr == b"tarsort: 1 sample had the key of the one before it and got another: 'x' is now 'x-1'\n"


def test_a_key_that_was_given_may_be_there_already() -> None:
    apart = Apart()
    keys = [apart.sample({"__key__": key, "txt": b""})["__key__"] for key in ["a", "a", "a-1", "a", "a", "a"]]
    assert keys == ["a", "a-1", "a-1-1", "a", "a-1", "a-2"]
    assert apart.words() == "4 samples had the key of the one before them and got another: 'a' is now 'a-1'"


def test_a_shuffle_is_the_same_each_time_and_another_with_another_seed(tmp_path: Path) -> None:
    samples = [(f"{number:03d}", {"txt": b"%d" % number}) for number in range(50)]
    write_shard(tmp_path / "in.tar", samples)
    write_shard(tmp_path / "turned.tar", samples[::-1])
    first = sorted_tar("-S shuffle --seed 3 in.tar", tmp_path)
    assert first == sorted_tar("-S shuffle --seed 3 --memory 3KB turned.tar", tmp_path)
    second = sorted_tar("-S shuffle --seed 4 in.tar", tmp_path)
    assert first != second
    assert sorted(first) == sorted(second) == samples


def test_a_sample_that_cannot_be_compared_is_named(tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", [("a", {"cls": b"7"}), ("b", {"cls": b"seven"}), ("c", {"txt": b""})])
    done = shell("tarsort -s cls -S int in.tar -o out.tar", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(b"tarsort: shard in.tar, sample 'b', field 'cls': b'seven' is not a number")
    done = shell("tarsort -s cls in.tar -o out.tar", tmp_path)
    assert done.stderr == (
        b"tarsort: shard in.tar, sample 'c', field 'cls': there is no such field to sort by; the sample has txt\n"
    )
    assert not (tmp_path / "out.tar").exists()


def test_a_damaged_tar_is_refused_or_taken_as_far_as_it_goes(tmp_path: Path) -> None:
    write_shard(tmp_path / "whole.tar", LETTERS)
    (tmp_path / "cut.tar").write_bytes((tmp_path / "whole.tar").read_bytes()[: 2 * 1024 + 300])
    done = shell("tarsort -s txt cut.tar -o out.tar", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(b"tarsort: shard cut.tar, offset 2048")
    assert not (tmp_path / "out.tar").exists()
    write_shard(tmp_path / "more.tar", [("9", {"txt": b"aa"})])
    kept = sorted_tar("-s txt --tolerate cut.tar more.tar", tmp_path)
    assert [key for key, _ in kept] == ["9", "0"]  # nobody knows whether what stands at the damage was all of "1"


def test_a_tar_may_be_sorted_into_its_own_place(tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", LETTERS)
    assert shell("tarsort -s txt in.tar -o in.tar", tmp_path).returncode == 0
    assert samples_of((tmp_path / "in.tar").read_bytes()) == LETTERS[::-1]


def test_others_read_what_was_written(tmp_path: Path) -> None:
    samples = [(f"folder/{'long' * 40}-{number}", {"txt": b"%d" % number}) for number in (2, 1, 3)]
    write_shard(tmp_path / "in.tar", samples)
    done = shell("tarsort < in.tar | tee out.tar | tar tf -", tmp_path)
    expected = [f"{key}.txt" for key, _ in sorted(samples)]
    assert done.stdout.decode().split() == expected
    with tarfile.open(tmp_path / "out.tar") as tar:
        assert tar.getnames() == expected


def test_what_the_disk_is_used_for_has_no_name(tmp_path: Path) -> None:
    samples = [(f"{number:03d}", {"bin": bytes(1000)}) for number in range(100, 0, -1)]
    write_shard(tmp_path / "in.tar", samples)
    (tmp_path / "room").mkdir()
    done = shell("tarsort --memory 10KB --tmpdir room -v in.tar -o out.tar; ls -A room", tmp_path)
    assert done.stdout == b""
    assert b"100 samples, put on the disk in" in done.stderr
    assert samples_of((tmp_path / "out.tar").read_bytes()) == samples[::-1]


def test_a_reader_that_leaves_is_no_failure_to_talk_about(tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", [(f"{number:05d}", {"bin": bytes(1000)}) for number in range(2000)])
    done = shell("tarsort in.tar | head -c 10 | wc -c; echo ${PIPESTATUS[0]}", tmp_path)
    assert done.stdout.split() == [b"10", b"141"]
    assert done.stderr == b""


@given(
    st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=300)), max_size=60),
    st.integers(1, 20_000),
    st.booleans(),
)
def test_the_memory_makes_no_difference(pairs: Sequence[tuple[bytes, bytes]], memory: int, reverse: bool) -> None:
    samples = [{"__key__": f"{number}\udcff", "txt": text, "bin": data} for number, (text, data) in enumerate(pairs)]
    with Sorter(Order("txt").rank, memory=memory, reverse=reverse) as sorter:
        for sample in samples:
            sorter.add(sample)
        assert [sample for _, sample in sorter.sorted()] == sorted(
            samples, key=lambda each: each["txt"], reverse=reverse
        )


@pytest.mark.parametrize("reverse", [False, True])
def test_more_parts_than_are_merged_at_once(reverse: bool) -> None:
    samples = [{"__key__": f"{number}", "cls": b"%d" % (number * 7919 % 101)} for number in range(1500)]
    with Sorter(Order("cls", "int").rank, memory=1, reverse=reverse) as sorter:
        for sample in samples:
            sorter.add(sample)
        found = [sample for _, sample in sorter.sorted()]
    assert sorter.runs == 1500
    assert found == sorted(samples, key=lambda each: int(each["cls"]), reverse=reverse)


@given(st.integers(), st.integers())
def test_whole_numbers_compare_as_such(one: int, other: int) -> None:
    assert (rank("int", one) < rank("int", other), rank("int", one) == rank("int", other)) == (
        one < other,
        one == other,
    )


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_numbers_compare_as_such(one: float, other: float) -> None:
    ranks = rank("float", one), rank("float", other)
    assert (ranks[0] < ranks[1], ranks[0] == ranks[1]) == (one < other, one == other)
    assert rank("float", float("nan")) > ranks[0]


def rank(kind: str, value: float) -> bytes:
    return Order("cls", kind).rank({"__key__": "a", "cls": str(value).encode()})


@pytest.mark.slow
def test_much_more_than_the_memory_is_sorted_in_little(tmp_path: Path) -> None:
    """400 MB with 20 MB for samples; most of the rest is the interpreter."""
    command = ["tarsort", "--memory", "20MB", "--tmpdir", str(tmp_path)]
    assert peak_memory(command, 4000, tmp_path / "out.tar") < 200e6
    with tarfile.open(tmp_path / "out.tar") as tar:
        names = [info.name for info in tar]
    assert names == sorted(names)
    assert len(names) == 4000
