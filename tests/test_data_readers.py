"""CSV, JSON and Parquet as shards of frames: what pandas reads of the whole is what the shards hold."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal.data._csv_cuts import cuts, look_at
from shoal.data.pandas import read_csv, read_json, read_parquet
from shoal.errors import MissingFieldError, PlanError, SampleError, SchemaError, UrlNotFoundError


@pytest.fixture(autouse=True)
def _engine() -> Iterator[None]:
    with shoal.init("local", workers=2, mode="thread"):
        yield


def write(folder: Path, **files: str) -> str:
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return str(folder)


def test_a_file_a_folder_a_wildcard_and_lists(tmp_path: Path) -> None:
    folder = write(tmp_path, a="x\n1\n", b="x\n2\n3\n")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".b.csv.crc").touch()
    for path, count, rows in (
        (folder, 2, 3),
        (f"{folder}/a.csv", 1, 1),
        (tmp_path / "b.csv", 1, 2),
        (f"{folder}/*.csv", 2, 3),
        ([f"{folder}/b.csv", tmp_path / "a.csv"], 2, 3),
        (f"{folder}/{{a,b}}.csv", 2, 3),
    ):
        shards = read_csv(path)
        assert (shards.num_partitions(), len(shards)) == (count, rows)
    assert [frame["x"].tolist() for frame in read_csv([f"{folder}/b.csv", f"{folder}/a.csv"]).collect()] == [
        [2, 3],
        [1],
    ]


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises((UrlNotFoundError, FileNotFoundError), match="nowhere"):
        read_csv(str(tmp_path / "nowhere.csv"))
    with pytest.raises(FileNotFoundError):
        read_csv(str(tmp_path))


def test_options_are_pandas_own(tmp_path: Path) -> None:
    path = write(tmp_path, a="1;2.5;x\n3;4.5;y\n") + "/a.csv"
    frame = read_csv(path, sep=";", header=None).to_pandas()
    assert list(frame) == ["0", "1", "2"]
    frame = read_csv(path, sep=";", names=["user", "item"], usecols=[0, 1]).to_pandas()
    assert frame.to_dict("list") == {"user": [1, 3], "item": [2.5, 4.5]}
    kinds = read_csv(
        path, sep=";", names=["user", "item", "c"], dtype={"user": "float32", "item": "float32"}
    ).to_pandas()
    assert kinds.dtypes.tolist()[:2] == [np.float32, np.float32]
    named = write(tmp_path, b="ID,price\n7,1\n8,2\n").rstrip("/") + "/b.csv"
    assert (
        8 in read_csv(named, index_col="ID").to_pandas().index
        or 8 in read_csv(named, index_col="ID").collect()[0].index
    )
    assert list(read_csv(named, usecols=lambda name: name == "price").to_pandas()) == ["price"]
    assert isinstance(read_csv(named, usecols=["price"], squeeze=True).collect()[0], pd.Series)
    with pytest.raises(PlanError, match="Found duplicate names"):
        read_csv(named, names=["a", "a"])
    with pytest.raises(PlanError, match="Passed names did not match usecols"):
        read_csv(named, names=["x", "y"], usecols=["ID"], header=0)
    with pytest.raises(PlanError, match="chunksize"):
        read_csv(named, chunksize=10)


rows = st.lists(
    st.tuples(st.integers(-99, 99), st.text('ab,"\n\r ;', max_size=6), st.floats(allow_nan=False, width=16)),
    min_size=1,
    max_size=30,
)


@given(rows, st.integers(1, 80))
def test_a_large_file_is_cut_between_records(tmp_path_factory: pytest.TempPathFactory, records: Any, size: int) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    pd.DataFrame(records, columns=["n", "text", "x"]).to_csv(path, index=False)
    expected = pd.read_csv(path)
    shards = read_csv(str(path), part_size=size)
    pd.testing.assert_frame_equal(shards.to_pandas(), expected)


def test_parts_know_their_lines(tmp_path: Path) -> None:
    text = "a,b\n" + "".join(f'{n},"line\nbreak"\n' for n in range(50))
    shards = read_csv(write(tmp_path, a=text) + "/a.csv", part_size=100)
    assert shards.num_partitions() > 5
    assert shards.to_pandas()["a"].tolist() == list(range(50))

    def fail(df: pd.DataFrame) -> None:
        if 49 in set(df["a"]):
            raise ValueError("here")

    with pytest.raises(ValueError, match="here") as caught:
        shards.transform_shard(fail).collect()
    assert "lines" in "\n".join(caught.value.__notes__)


@given(st.text('a"\n', max_size=40), st.integers(1, 7))
def test_cuts_are_outside_quotes(text: str, size: int) -> None:
    data = text.encode()
    starts = list(range(0, len(data), size))
    found = cuts(starts, [look_at(data[start : start + size]) for start in starts])
    for place, line in found:
        assert data[:place].count(b'"') % 2 == 0
        assert place == 0 or data[place - 1 : place] == b"\n"
        assert line == data[:place].count(b"\n")


def test_types_are_those_of_the_whole_file(tmp_path: Path) -> None:
    """The beginning of a file looks like whole numbers; what comes later does not."""
    lines = [*(f"{n},{n},{n}" for n in range(3000)), "1.5,,seven", *("1,1,007" for _ in range(3000))]
    path = tmp_path / "a.csv"
    path.write_text("x,y,z\n" + "\n".join(lines) + "\n")
    expected = pd.read_csv(path, low_memory=False)
    shards = read_csv(str(path), part_size=4000).transform_shard(lambda frame: frame)
    pd.testing.assert_frame_equal(shards.to_pandas(), expected)
    grouped = read_csv(str(path), part_size=4000).group_by("y", {"x": "sum"}).to_pandas()
    assert grouped["sum(x)"].sum() == expected["x"].sum()
    assert read_csv(str(path), part_size=4000).cache().transform_shard(lambda df: df.dtypes["z"] == "str").collect()[0]


def test_files_that_differ_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path, a="x,y\n1,2\n", b="x,z\n1,2\n")
    with pytest.raises(SchemaError, match=r"a.csv has a column 'y', and .*b.csv has none"):
        read_csv(folder).collect()
    folder = write(tmp_path, a="x,y\n1,2\n", b="x,y\n1,two\n")
    with pytest.raises(SchemaError, match=r"column 'y' is int64 in .*a.csv and str in .*b.csv"):
        read_csv(folder).collect()
    folder = write(tmp_path, a="x,y\n1,2\n", b="x,y\n1,2.5\n")
    assert [frame["y"].dtype for frame in read_csv(folder).collect()] == [np.float64] * 2


def test_a_file_that_cannot_be_parsed_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path, a="x,y\n1,2\n" * 1, b="x,y\n1,2\n3,4,5,6\n")
    with pytest.raises(SampleError, match=r"Expected 2 fields in line 3") as caught:
        read_csv(folder).collect()
    assert "b.csv" in str(caught.value)


def test_compressed_files_are_whole_shards(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write("x\n" + "1\n" * 100)
    shards = read_csv(str(tmp_path), part_size=10)
    assert (shards.num_partitions(), len(shards)) == (1, 100)


def test_json_by_lines_and_whole(tmp_path: Path) -> None:
    records = [{"a": n, "b": f"text {n}\nmore"} for n in range(100)]
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "a.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    shards = read_json(str(tmp_path / "lines"), part_size=500)
    assert shards.num_partitions() > 3
    assert shards.to_pandas().to_dict("records") == records
    (tmp_path / "b.json").write_text(json.dumps(records))
    assert read_json(str(tmp_path / "b.json"), orient="records").to_pandas().to_dict("records") == records


def test_parquet_by_row_groups(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(1000), "b": [f"text {n}" for n in range(1000)]})
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=100)
    shards = read_parquet(str(tmp_path), part_size=4000)
    assert shards.num_partitions() > 3
    assert shards.to_pandas().equals(frame)
    assert list(read_parquet(str(tmp_path), columns=["b"]).to_pandas()) == ["b"]
    with pytest.raises(MissingFieldError, match="it has a, b"):
        read_parquet(str(tmp_path), columns=["c"]).collect()
    (tmp_path / "b.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(SampleError, match="no Parquet file"):
        read_parquet(str(tmp_path))


def test_a_store_is_read_like_a_disk() -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe({"/tables/a.csv": b"x\n1\n2\n", "/tables/b.csv": b"x\n3\n"})
    shoal.shutdown()
    with shoal.init("local", workers=2, mode="thread"):
        assert read_csv("memory://tables/*.csv", part_size=3).to_pandas()["x"].tolist() == [1, 2, 3]
