"""CSV, JSON and arrays as datasets: samples are what pandas has in its rows, wherever a part of a file is read."""

from __future__ import annotations

import gzip
import json
import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal.abc import Sample, Shard, SupportsColumns, SupportsRandomAccess
from shoal.data import CsvSource
from shoal.data.pandas import read_csv as read_frames
from shoal.errors import (
    DecodeError,
    MissingFieldError,
    PlanError,
    SampleError,
    SchemaError,
    UrlChangedError,
    UrlNotFoundError,
)
from shoal.readers import from_arrays, from_dask, from_ray, from_spark, read_csv, read_json
from shoal.sources import ArraySource
from support.clusters import running
from support.engine import same
from support.s3_server import s3_bucket


def table(folder: Path, rows: int = 400, name: str = "a.csv") -> tuple[Path, pd.DataFrame]:
    """Write a file of some rows that is cut into a dozen parts of 1000 bytes."""
    frame = pd.DataFrame(
        {
            "id": range(rows),
            "x": [number / 4 if number % 7 else None for number in range(rows)],
            "text": [f'line {number}\n"quoted"' if number % 5 else None for number in range(rows)],
        }
    )
    frame.to_csv(folder / name, index=False)
    return folder / name, frame


def plain(samples: Any) -> list[dict[str, Any]]:
    """Drop keys, and put one word in the place of nan, which equals nothing."""
    return [
        {name: "nan" if isinstance(value, float) and math.isnan(value) else value for name, value in sample.items()}
        for sample in ({**each} for each in samples)
        if sample.pop("__key__")
    ]


def expected(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Give the rows of a frame as samples have them: a missing number is nan, a missing text None."""
    rows = frame.to_dict("records")
    numbers = {name for name in frame if pd.api.types.is_numeric_dtype(frame[name].dtype)}
    return [
        {name: ("nan" if name in numbers else None) if pd.isna(value) else value for name, value in row.items()}
        for row in rows
    ]


def test_rows_are_samples_in_the_order_of_files(tmp_path: Path) -> None:
    path, frame = table(tmp_path)
    dataset = read_csv(path, part_size=1000)
    assert plain(dataset) == expected(pd.read_csv(path))
    assert dataset.count() == len(frame)
    keys = [sample["__key__"] for sample in dataset]
    assert keys == [f"a-{number:09d}" for number in range(len(frame))]


def test_a_file_is_several_shards_and_its_rows_are_ranges(tmp_path: Path) -> None:
    path, frame = table(tmp_path)
    source = CsvSource(path, part_size=1000)
    shards = source.shards()
    assert len(shards) > 8
    assert [shard.start for shard in shards[1:]] == [shard.stop for shard in shards[:-1]]
    assert sum(source.length(shard) for shard in shards) == len(frame)
    assert isinstance(source, SupportsRandomAccess)
    assert isinstance(source, SupportsColumns)
    whole = next(iter(source.open(shards[3]))).samples
    assert source.take(shards[3], [2, 0]) == [whole[2], whole[0]]
    with pytest.raises(IndexError, match="there is no sample 999"):
        source.take(shards[3], [999])
    size = source.size(shards[3])
    assert size is not None
    assert 500 < size < 2000


def test_only_the_part_that_is_needed_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = table(tmp_path)
    source = CsvSource(path, part_size=1000)
    shards = source.shards()
    parsed: list[int] = []
    read = pd.read_csv

    def counted(data: Any, **options: Any) -> pd.DataFrame:
        parsed.append(1)
        return read(data, **options)

    monkeypatch.setattr(pd, "read_csv", counted)
    source.take(shards[4], [0])
    source.take(shards[4], [1])
    assert parsed == [1]


@pytest.mark.parametrize("mode", ["shards", "full"])
def test_a_shuffled_loader_resumes_exactly(tmp_path: Path, mode: Any) -> None:
    path, frame = table(tmp_path)

    def loader() -> Any:
        return read_csv(path, part_size=1000).shuffle(mode, seed=3).loader(16)

    whole = loader()
    ids = [batch["id"].tolist() for batch in whole]
    assert sorted(number for batch in ids for number in batch) == list(range(len(frame)))
    assert [number for batch in ids for number in batch] != list(range(len(frame)))
    begun = loader()
    some = iter(begun)
    assert [next(some)["id"].tolist() for _ in range(5)] == ids[:5]
    state = json.loads(json.dumps(begun.state_dict()))
    again = loader()
    again.load_state_dict(state)
    assert [batch["id"].tolist() for batch in again] == ids[5:]


def test_a_batch_of_columns_is_a_batch_of_samples(tmp_path: Path) -> None:
    path, _ = table(tmp_path)
    columns = next(iter(read_csv(path, part_size=1000).loader(50)))
    samples = next(iter(read_csv(path, part_size=1000).map(lambda sample: {**sample}).loader(50)))
    assert columns["x"].dtype == np.float64
    np.testing.assert_array_equal(columns["x"], samples["x"])
    assert columns["text"] == samples["text"]
    assert columns["__key__"] == samples["__key__"]


def test_a_source_goes_to_others_with_what_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = table(tmp_path)
    source = CsvSource(path, part_size=1000)
    shards = source.shards()
    sent = pickle.loads(pickle.dumps(source))
    monkeypatch.setattr("shoal.data._survey.survey", None)
    assert sent.shards() == shards
    assert sent.take(shards[2], [0]) == source.take(shards[2], [0])


def test_worker_processes_read_parts(tmp_path: Path) -> None:
    path, _ = table(tmp_path)
    run = read_csv(path, part_size=1000).run(workers=2, mode="process")
    assert plain(run) == expected(pd.read_csv(path))


def test_types_are_those_of_all_parts(tmp_path: Path) -> None:
    lines = [*("1,1,true" for _ in range(300)), "1.5,seven,", *("1,1,false" for _ in range(300))]
    path = tmp_path / "a.csv"
    path.write_text("x,y,z\n" + "\n".join(lines) + "\n")
    samples = list(read_csv(path, part_size=500))
    assert {type(sample["x"]) for sample in samples} == {float}
    assert {type(sample["y"]) for sample in samples} == {str}
    assert [sample["z"] for sample in samples] == [True] * 300 + [None] + [False] * 300


def test_a_file_without_rows_and_a_column_without_values(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n")
    (tmp_path / "b.csv").write_text("x,y\n1,\n2,\n")
    (tmp_path / "c.csv").write_text("x,y\n3,three\n")
    dataset = read_csv(tmp_path)
    assert [(sample["x"], sample["y"]) for sample in dataset] == [(1, None), (2, None), (3, "three")]
    assert dataset.count() == 3


def test_a_file_that_is_named_twice_is_read_twice(tmp_path: Path) -> None:
    path, frame = table(tmp_path)
    ids = [sample["id"] for sample in read_csv([path, path], part_size=1000)]
    assert ids == frame["id"].tolist() * 2
    with shoal.init("local", workers=1, mode="thread"):
        assert read_frames([path, path], part_size=1000).to_pandas()["id"].tolist() == ids


def test_columns_may_be_in_another_order(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,one\n")
    (tmp_path / "b.csv").write_text("y,x\ntwo,2\n")
    samples = list(read_csv(tmp_path))
    assert [list(sample) for sample in samples] == [["__key__", "x", "y"]] * 2
    assert [(sample["x"], sample["y"]) for sample in samples] == [(1, "one"), (2, "two")]
    with shoal.init("local", workers=1, mode="thread"):
        assert [list(frame) for frame in read_frames(str(tmp_path)).collect()] == [["x", "y"]] * 2


def test_a_key_of_ones_own(tmp_path: Path) -> None:
    path, _ = table(tmp_path, rows=3)
    assert [sample["__key__"] for sample in read_csv(path, key="id")] == ["0", "1", "2"]
    with pytest.raises(MissingFieldError, match="no such column"):
        list(read_csv(path, key="name"))


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    path, _ = table(tmp_path)
    source = CsvSource(path, part_size=1000)
    shards = source.shards()
    before = source.fingerprint(shards[0])
    list(source.open(shards[0]))
    path.write_text(path.read_text() + "1,2,three\n")
    with pytest.raises(UrlChangedError, match=r"a\.csv changed since its rows were counted; make the dataset anew"):
        list(source.open(shards[1]))
    fresh = CsvSource(path, part_size=1000)
    assert fresh.fingerprint(fresh.shards()[0]) != before


def test_what_is_wrong_with_files_is_told(tmp_path: Path) -> None:
    with pytest.raises(UrlNotFoundError, match="No such file or directory"):
        list(read_csv(tmp_path / "nowhere" / "*.csv"))
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text("x,z\n1,2\n")
    with pytest.raises(SchemaError, match=r"a\.csv has a column 'y', and .*b\.csv has none"):
        list(read_csv(tmp_path))
    (tmp_path / "b.csv").write_text("x,y\n1,2\n3,4,5,6\n")
    with pytest.raises(SampleError, match="Expected 2 fields in line 3"):
        list(read_csv(tmp_path))
    with pytest.raises(PlanError, match=r"index_col='x' makes an index.*key="):
        read_csv(tmp_path, index_col="x")


def test_compressed_files_are_one_part(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write("x\n" + "1\n" * 1000)
    source = CsvSource(tmp_path, part_size=100)
    assert len(source.shards()) == 1
    assert source.length(source.shards()[0]) == 1000


def test_records_of_json(tmp_path: Path) -> None:
    records: list[Sample] = [{"n": n, "at": [n, n + 1], "who": {"name": f"n{n}"}} for n in range(50)]
    records[30]["who"]["age"] = 3
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, records)) + "\n")
    samples = list(read_json(path, part_size=300))
    assert [sample["n"] for sample in samples] == list(range(50))
    assert all(sample["at"].tolist() == [n, n + 1] for n, sample in enumerate(samples))
    assert samples[0]["who"] == {"name": "n0", "age": None}
    assert samples[30]["who"] == {"name": "n30", "age": 3}
    (tmp_path / "b.json").write_text(json.dumps(records[:2]))
    assert [sample["n"] for sample in read_json(tmp_path / "b.json", orient="records")] == [0, 1]


def test_values_of_several_kinds_in_a_column_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": [1]}\n{"a": "text"}\n')
    with pytest.raises(DecodeError, match=r"field 'a': its values have no type in common.*dtype="):
        list(read_json(path))


rows = st.lists(
    st.tuples(
        st.integers(-99, 99) | st.none(),
        st.text('ab,"\n\r ;', max_size=6) | st.none(),
        st.booleans() | st.none(),
    ),
    min_size=1,
    max_size=30,
)


@given(rows, st.integers(1, 80))
def test_parts_do_not_matter(tmp_path_factory: pytest.TempPathFactory, records: Any, size: int) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    pd.DataFrame(records, columns=["n", "text", "flag"]).to_csv(path, index=False)
    assert plain(read_csv(path, part_size=size)) == expected(pd.read_csv(path))


class _InMemoryHdfs(MemoryFileSystem):  # type: ignore[misc]
    protocol = "hdfs"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> Any:
        return super()._strip_protocol(path.removeprefix("hdfs://"))


@pytest.fixture
def hdfs() -> Iterator[Any]:
    known = fsspec.registry.get("hdfs")
    fsspec.register_implementation("hdfs", _InMemoryHdfs, clobber=True)
    yield fsspec.filesystem("hdfs")
    if known is not None:
        fsspec.register_implementation("hdfs", known, clobber=True)


def test_hdfs_is_reached_by_fsspec(hdfs: Any) -> None:
    """There is no Hadoop here: a filesystem in memory is registered under its name, and stands in for it."""
    hdfs.pipe({"/tables/a.csv": b"x,y\n1,one\n2,two\n", "/tables/b.csv": b"x,y\n3,three\n"})
    dataset = read_csv("hdfs:///tables/*.csv", part_size=8)
    assert [(sample["x"], sample["y"]) for sample in dataset] == [(1, "one"), (2, "two"), (3, "three")]
    with shoal.init("local", workers=2, mode="thread"):
        frames = read_frames("hdfs:///tables", part_size=8)
        assert frames.num_partitions() > 2
        assert frames.to_pandas()["y"].tolist() == ["one", "two", "three"]


def test_s3_is_read_like_a_disk() -> None:
    """Over the wire, from a real server of the protocol."""
    with s3_bucket("tables"):
        store = fsspec.filesystem("s3")
        store.pipe({"tables/a.csv": b"x\n" + b"1\n" * 100, "tables/b.csv": b"x\n2\n"})
        dataset = read_csv("s3://tables/*.csv", part_size=50)
        assert [sample["x"] for sample in dataset] == [1] * 100 + [2]


def test_rows_of_arrays_are_samples() -> None:
    images, labels = np.arange(24.0, dtype=np.float32).reshape(4, 3, 2), np.arange(4, dtype=np.int8)
    dataset = from_arrays(image=images, label=labels, name=np.array(["a", "b", "c", "d"]))
    samples = list(dataset)
    assert [sample["name"] for sample in samples] == ["a", "b", "c", "d"]
    assert samples[2]["__key__"] == "000000002"
    assert np.shares_memory(samples[2]["image"], images)
    assert not samples[2]["image"].flags.writeable
    images[2, 0, 0] = 99
    assert samples[2]["image"][0, 0] == 99
    (batch,) = dataset.loader(4)
    assert (batch["image"].dtype, batch["label"].dtype) == (np.float32, np.int8)
    batch["image"][:] = 0
    assert images[2, 0, 0] == 99
    assert dataset.count() == 4


@pytest.mark.parametrize(
    "array",
    [
        np.arange(5, dtype=np.uint16),
        np.arange(5, dtype=">i4"),
        np.arange(5) % 2 == 0,
        np.linspace(0, 1, 5, dtype=np.float16),
        np.arange(5).astype("datetime64[s]"),
        np.array(["a", "bc", "", "d", "e"]),
        np.array([b"a", b"bc", b"", b"d", b"e"]),
        np.array([1, "two", None, 4.0, [5]], object),
        np.arange(20).reshape(5, 2, 2),
    ],
)
def test_columns_of_arrays_are_what_samples_make(array: Any) -> None:
    source = ArraySource({"x": array})
    for order in (np.arange(5), np.array([3, 1, 1])):
        columns = source.take_columns(source.shards()[0], order)
        assert columns is not None
        samples = source.take(source.shards()[0], order.tolist())
        (batch,) = from_arrays(array[order]).map(lambda sample: {**sample}).loader(len(order))
        (direct,) = from_arrays(array[order]).loader(len(order))
        assert same(direct["x"], batch["x"])
        assert columns["__key__"] == [sample["__key__"] for sample in samples]
    run = source.take_columns(source.shards()[0], np.arange(1, 4))
    assert run is not None
    native = array.dtype.isnative and array.dtype.kind not in "USO"
    assert not native or np.shares_memory(np.asarray(run["x"]), array)


def test_frames_and_tables_are_arrays() -> None:
    frame = pd.DataFrame({"n": [1, 2], "x": [0.5, None], "word": ["a", None], "many": pd.array([1, None], "Int64")})
    samples = list(from_arrays(frame))
    assert [(sample["n"], sample["word"], sample["many"]) for sample in samples] == [(1, "a", 1), (2, None, None)]
    assert math.isnan(samples[1]["x"])
    lists = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4]), 2)
    table = pa.table({"n": [1, None], "at": lists, "text": ["a", "b"]})
    rows = [(sample["n"], sample["at"].tolist(), sample["text"]) for sample in from_arrays(table)]
    assert rows == [(1, [1, 2], "a"), (None, [3, 4], "b")]
    (batch,) = from_arrays(table).loader(2)
    assert batch["at"].shape == (2, 2)
    assert from_arrays(np.zeros((3, 2))).count() == 3


def test_a_shuffled_loader_over_arrays_resumes_exactly() -> None:
    def loader() -> Any:
        return from_arrays(n=np.arange(10_000)).shuffle("full", seed=1).loader(100)

    whole = [batch["n"].tolist() for batch in loader()]
    assert sorted(number for batch in whole for number in batch) == list(range(10_000))
    begun = loader()
    some = iter(begun)
    assert [next(some)["n"].tolist() for _ in range(7)] == whole[:7]
    again = loader()
    again.load_state_dict(json.loads(json.dumps(begun.state_dict())))
    assert [batch["n"].tolist() for batch in again] == whole[7:]


def test_shards_of_arrays_are_ranges() -> None:
    source = ArraySource({"n": np.arange(10_000)})
    shards = source.shards()
    assert [source.length(shard) for shard in shards] == [4096, 4096, 1808]
    parts = source.split(shards[2], 3)
    found = [sample["n"] for part in parts for block in source.open(part) for sample in block.samples]
    assert found == list(range(8192, 10_000))
    assert source.size(shards[0]) == 4096 * 8
    other = ArraySource({"n": np.arange(10_000) + 1})
    assert source.fingerprint(shards[0]) != other.fingerprint(shards[0])
    assert ArraySource({"n": np.empty(0)}).length(ArraySource({"n": np.empty(0)}).shards()[0]) == 0


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(PlanError, match="x has 3 rows and y has 4"):
        from_arrays(x=np.zeros(3), y=np.zeros(4))
    with pytest.raises(PlanError, match="there are no arrays"):
        from_arrays()
    with pytest.raises(PlanError, match="a list of arrays has no names"):
        from_arrays([np.zeros(3), np.zeros(3)])
    with pytest.raises(PlanError, match="x is given twice"):
        from_arrays({"x": np.zeros(3)}, x=np.zeros(3))
    with pytest.raises(PlanError, match="which has no rows"):
        from_arrays(x=3)
    with pytest.raises(PlanError, match="masked array"):
        from_arrays(x=np.ma.masked_array([1, 2], [0, 1]))
    with pytest.raises(PlanError, match="__key__"):
        from_arrays({"__key__": np.zeros(3)})
    with pytest.raises(IndexError, match="there is no sample 3"):
        ArraySource({"x": np.zeros(3)}).take(Shard("arrays://"), [3])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
@pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")
@pytest.mark.parametrize("engine", ["dask", "ray", "spark"])
def test_collections_of_other_systems_are_datasets(engine: str) -> None:
    frame = pd.DataFrame({"n": range(20), "word": [f"w{n}" for n in range(20)]})
    with running(engine, workers=2) as session:
        if engine == "spark":
            dataset = from_spark(session.engine.session.createDataFrame(frame).coalesce(2))
        elif engine == "dask":
            import dask.dataframe

            dataset = from_dask(dask.dataframe.from_pandas(frame, npartitions=3))
        else:
            import ray.data

            ray.data.DataContext.get_current().enable_progress_bars = False
            dataset = from_ray(ray.data.from_pandas([frame[:10], frame[10:]]))
        assert [(sample["n"], sample["word"]) for sample in dataset] == list(frame.itertuples(index=False, name=None))
        batches = list(dataset.shuffle("full", seed=1).loader(5))
        assert sorted(number for batch in batches for number in batch["n"].tolist()) == list(range(20))
