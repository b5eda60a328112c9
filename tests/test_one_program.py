"""One program on four engines: the same bytes, and ways in and out of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import shoal
from shoal.data import SharedValue, XShards
from shoal.data.pandas import read_csv, read_parquet
from support.clusters import running

ENGINES = ("local", "dask", "ray", "spark")

#: What the engines say about each other and about themselves.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:pyspark"),
]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty CSV files of sales, and one of places."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    (folder / "sales").mkdir()
    for number in range(50):
        rows = pd.DataFrame(
            {
                "id": range(number * 40, number * 40 + 40),
                "place": rng.choice(["north", "south", 'the "west"', "east\nside", None], 40),
                "price": rng.normal(100, 30, 40).round(2),
                "pieces": rng.integers(1, 9, 40),
            }
        )
        rows.to_csv(folder / "sales" / f"{number:02d}.csv", index=False)
    places = pd.DataFrame({"place": ["north", "south", 'the "west"', "nowhere"], "people": [10, 20, 30, 40]})
    places.to_csv(folder / "places.csv", index=False)
    return folder


def program(tables: Path, out: Path) -> dict[str, Any]:
    """Read, transform, deal out, group, merge, sort and save; tell what can be told."""

    def taxed(frame: pd.DataFrame, rate: SharedValue[float]) -> pd.DataFrame:
        frame["price"] *= rate.value
        return frame

    sales = read_csv(str(tables / "sales"), part_size=880).transform_shard(taxed, SharedValue(1.25)).cache()
    parted = sales.partition_by("place", 7)
    grouped = sales.group_by("place", {"price": ["sum", "mean", "stddev"], "pieces": "max", "*": "count"})
    merged = parted.merge(read_csv(str(tables / "places.csv")), on="place")
    ordered = merged.sort_values(["people", "price"], ascending=[True, False])
    for name, shards in (("parted", parted), ("grouped", grouped), ("merged", merged), ("ordered", ordered)):
        shards.save(str(out / name))
    return {
        "rows": len(sales),
        "shards": sales.num_partitions(),
        "places": repr(sales["place"].unique().tolist()),
        "most": sales.max_values("price"),
        "missing": sales.get_null_sum()["total"].tolist(),
        "described": sales.describe(["price"])["price"].tolist(),
        "first": repr(sales.repartition(3).first()),
        "distinct": len(sales.select(["place", "pieces"]).deduplicates()),
        "drawn": sales.sample(0.1, random_state=3).to_pandas()["id"].tolist(),
    }


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def expected(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, str]]:
    out = tmp_path_factory.mktemp("expected")
    with shoal.init("local", workers=1, mode="thread"):
        return program(tables, out), digests(out)


def test_the_program_does_what_pandas_does(tables: Path, expected: Any) -> None:
    told, files = expected
    whole = pd.concat([pd.read_csv(path) for path in sorted((tables / "sales").iterdir())], ignore_index=True)
    assert told["rows"] == len(whole) == 2000
    assert told["shards"] > 50
    assert told["most"] == (whole["price"] * 1.25).max()
    assert told["missing"] == whole.isna().sum().tolist()
    assert told["distinct"] == len(whole[["place", "pieces"]].drop_duplicates())
    assert len(files) > 20


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["thread", "process"])
def test_threads_and_processes_give_the_same_bytes(mode: str, tables: Path, expected: Any, tmp_path: Path) -> None:
    with shoal.init("local", workers=3, mode=mode, memory="100KB"):
        assert (program(tables, tmp_path), digests(tmp_path)) == expected


@pytest.mark.slow
@pytest.mark.timeout(1200)  # Spark has hundreds of small jobs to do
@pytest.mark.parametrize("engine", ENGINES[1:])
def test_all_engines_give_the_same_bytes(engine: str, tables: Path, expected: Any, tmp_path: Path) -> None:
    with running(engine, workers=2):
        told, files = program(tables, tmp_path), digests(tmp_path)
    assert told == expected[0]
    assert files == expected[1]


@pytest.fixture
def spark() -> Iterator[Any]:
    with running("spark", workers=2) as session:
        yield session.engine.session


@pytest.mark.slow
def test_spark_frames_in_and_out(spark: Any) -> None:
    frame = pd.DataFrame(
        {"a": range(100), "text": [f"row {n}" for n in range(100)], "x": [[float(n), 1.0] for n in range(100)]}
    )
    df = spark.createDataFrame(frame).repartition(3)
    shards = XShards.from_spark(df)
    assert shards.num_partitions() == 3
    assert sorted(shards.to_pandas()["a"]) == list(range(100))
    back = shards.transform_shard(lambda part: part.assign(b=part["a"] * 2)).to_spark_df()
    assert back.rdd.getNumPartitions() == 3
    assert {row.a: row.b for row in back.collect()} == {n: 2 * n for n in range(100)}
    assert [
        len(part) for part in XShards.from_spark(spark.createDataFrame(frame).coalesce(1), shard_size=30).collect()
    ] == [
        30,
        30,
        30,
        10,
    ]
    assert XShards.from_spark(spark.createDataFrame(frame.head(5)).coalesce(1), shard_size=1).num_partitions() == 5
    empty = XShards.from_spark(spark.createDataFrame(frame.head(2)).repartition(5))
    assert empty.num_partitions() == 5
    assert len(empty) == 2


@pytest.mark.slow
def test_dask_collections_in_and_out() -> None:
    import dask.array
    import dask.bag
    import dask.dataframe

    with shoal.init("dask", workers=2):
        frame = pd.DataFrame({"a": range(50), "text": [f"row {n}" for n in range(50)]})
        shards = XShards.from_dask(dask.dataframe.from_pandas(frame, npartitions=4))
        assert shards.num_partitions() == 4
        assert shards.to_pandas().to_dict("list") == frame.to_dict("list")
        back = shards.transform_shard(lambda part: part.assign(b=part["a"] * 2)).to_dask()
        assert back.npartitions == 4
        client = shoal.engines.current().client  # type: ignore[attr-defined]
        assert client.compute(back).result()["b"].tolist() == [2 * n for n in range(50)]
        arrays = XShards.from_dask(dask.array.arange(12, chunks=5))
        assert [part.tolist() for part in arrays.collect()] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
        doubled = arrays.transform_shard(lambda part: part * 2).to_dask()
        assert client.compute(doubled).result().tolist() == list(range(0, 24, 2))
        bags = XShards.from_dask(dask.bag.from_sequence(range(6), npartitions=2))
        assert bags.collect() == [[0, 1, 2], [3, 4, 5]]
        assert client.compute(bags.to_dask()).result() == [0, 1, 2, 3, 4, 5]


@pytest.mark.slow
def test_ray_datasets_in_and_out() -> None:
    with running("ray", workers=2):
        import ray.data

        ray.data.DataContext.get_current().enable_progress_bars = False
        shards = XShards.from_ray(ray.data.range(40, override_num_blocks=4))
        assert sorted(shards.to_pandas()["id"]) == list(range(40))
        back = shards.transform_shard(lambda part: part.assign(b=part["id"] * 2)).to_ray()
        assert {row["id"]: row["b"] for row in back.take_all()} == {n: 2 * n for n in range(40)}
        arrays = XShards.partition({"x": np.arange(8.0).reshape(4, 2), "y": np.arange(4)}, 2).to_ray()
        assert sorted(row["y"] for row in arrays.take_all()) == [0, 1, 2, 3]


def test_rows_are_samples(tables: Path) -> None:
    with shoal.init("local", workers=2, mode="thread"):
        dataset = read_csv(str(tables / "sales")).to_dataset()
        batches = list(dataset.shuffle("full", seed=1).loader(100))
        assert sorted(number for batch in batches for number in batch["id"].tolist()) == list(range(2000))
        assert batches[0]["__key__"][0] != "00000-000000000"
        assert next(iter(dataset))["id"] == 0


def test_parquet_that_was_written_is_read(tables: Path, tmp_path: Path) -> None:
    with shoal.init("local", workers=2, mode="thread"):
        frame = read_csv(str(tables / "places.csv")).to_pandas()
        frame.to_parquet(tmp_path / "places.parquet")
        assert read_parquet(tmp_path / "places.parquet").to_pandas().equals(frame)
