"""``shoal info``: what is in data of every format."""

from __future__ import annotations

import json
import random
import statistics
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given

from shoal.cli import _summary
from shoal.cli._summary import Sizes, merged, summary_of
from support.shell import shell
from support.tars import write_shard


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    for shard in range(2):
        samples = [(f"{shard}/{n}", {"cls": b"%d\n" % (n % 3), "jpg": bytes(100 * (n + 1))}) for n in range(5)]
        write_shard(tmp_path / f"a-{shard}.tar", samples)
    return tmp_path


def told(text: str, folder: Path) -> str:
    done = shell(text, folder)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def facts(text: str, folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(told(text, folder))
    return loaded


def test_samples_fields_sizes_and_classes_of_tars(shards: Path) -> None:
    size = sum(path.stat().st_size for path in shards.glob("*.tar"))
    assert told("shoal info 'a-{0..1}.tar'", shards) == (
        f"10 samples in 2 shards, {size / 1000:.1f} kB\n"
        "\n"
        "field  type   samples    min  median    max  total\n"
        "cls    bytes       10    2 B     2 B    2 B   20 B\n"
        "jpg    bytes       10  100 B   300 B  500 B   3 kB\n"
        "\n"
        "3 classes in cls:\n"
        "0  4\n"
        "1  4\n"
        "2  2\n"
    )


def test_json_has_the_same_in_numbers(shards: Path) -> None:
    told_of = facts("shoal info --json -p 1 a-*.tar", shards)
    assert told_of["samples"] == 10
    assert [(shard["url"], shard["samples"]) for shard in told_of["shards"]] == [("a-0.tar", 5), ("a-1.tar", 5)]
    assert told_of["fields"]["jpg"] == {
        "samples": 10, "types": {"bytes": 10}, "min": 100, "median": 300, "max": 500, "total": 3000,
    }  # fmt: skip
    assert told_of["classes"] == {"field": "cls", "different": 3, "complete": True, "counts": {"0": 4, "1": 4, "2": 2}}


def test_a_stream_and_a_list_of_shards(shards: Path) -> None:
    assert told("cat a-1.tar | shoal info", shards).startswith("5 samples in 1 shard\n")
    assert "a-0.tar        5" in told("shoal info -v .", shards)


def test_the_most_frequent_of_many_classes(tmp_path: Path) -> None:
    samples = [(f"{n:03d}", {"cls": b"c%d" % (n if n < 50 else 7)}) for n in range(60)]
    write_shard(tmp_path / "a.tar", samples)
    text = told("shoal info a.tar", tmp_path)
    assert "50 classes in cls, the most frequent:\nc7   11\n" in text
    assert text.count("\nc") == 20 + 1  # and the line of the field


TABLE = {"name": ["Rex", "Mia", "Zoë"], "age": [3, 5, None], "label": ["dog", "cat", "dog"]}


def write_table(path: Path) -> None:
    table = pa.table(TABLE)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(table, path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        frame = table.to_pandas()
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")


@pytest.mark.parametrize("name", ["a.parquet", "a.feather", "a.csv", "a.tsv", "a.jsonl"])
def test_tables_have_columns_for_fields(name: str, tmp_path: Path) -> None:
    write_table(tmp_path / name)
    told_of = facts(f"shoal info --json --classes label {name}", tmp_path)
    assert told_of["samples"] == 3
    names = told_of["fields"]["name"]
    assert (names["samples"], names["types"], names["total"]) == (3, {"str": 3}, 10)
    assert told_of["classes"]["counts"] == {"dog": 2, "cat": 1}
    if name in ("a.parquet", "a.feather"):
        assert told_of["fields"]["age"] == {
            "samples": 2, "types": {"int": 2}, "min": None, "median": None, "max": None, "total": None,
        }  # fmt: skip


def test_records_of_examples(tmp_path: Path) -> None:
    record = "11000000000000009d6db52e0a0f0a0d0a0361676512061a040a0203050d70c26d"
    (tmp_path / "a.tfrecord").write_bytes(bytes.fromhex(record) * 3)
    assert facts("shoal info --json a.tfrecord", tmp_path)["fields"]["age"]["types"] == {"int64 array": 3}


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "cut.tar").write_bytes(b"x" * 700)
    done = shell("shoal info cut.tar", tmp_path)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"shard cut.tar, offset 0: the header's checksum is wrong" in done.stderr
    done = shell("shoal info thing.xyz", tmp_path)
    assert done.returncode == 2
    assert b"the name thing.xyz does not tell what kind of data it is; known are .tar" in done.stderr


@given(st.lists(st.lists(st.integers(0, 5000)), min_size=1, max_size=5))
def test_sizes_are_counted_exactly_however_they_are_split(parts: list[list[int]]) -> None:
    whole, values = Sizes(), [size for part in parts for size in part]
    for part in parts:
        counted = Sizes()
        for size in part:
            counted.add(size)
        whole.merge(counted)
    expected = (min(values), statistics.median_low(values), max(values)) if values else (None, None, None)
    assert (whole.smallest, whole.median, whole.largest, whole.total) == (*expected, sum(values))


def test_very_many_sizes_need_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_summary, "_EXACT", 1000)
    generator = random.Random(0)
    values = [int(10 ** generator.uniform(0, 8)) for _ in range(20_000)]
    halves = Sizes(), Sizes()
    for number, size in enumerate(values):
        halves[number % 2].add(size)
    halves[0].merge(halves[1])
    counted = halves[0]
    assert (counted.smallest, counted.largest, counted.total) == (min(values), max(values), sum(values))
    assert counted.median == pytest.approx(statistics.median_low(values), rel=0.006)
    assert len(counted._counts) < 6000


def test_classes_that_are_all_different_are_not_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_summary, "_MOST_CLASSES", 4)
    urls = [write_shard(tmp_path / f"{n}.tar", [(f"{k}", {"cls": b"%d" % (n + k)}) for k in range(3)]) for n in (0, 1)]
    whole = merged(map(summary_of, urls))
    assert (len(whole.classes), whole.all_classes) == (4, True)
    whole = merged(map(summary_of, [*urls, write_shard(tmp_path / "2.tar", [("x", {"cls": b"new"})])]))
    assert (len(whole.classes), whole.all_classes) == (4, False)
