"""Spark data frames, Ray datasets and XShards in the store, and out of it; rows of the store as a Dataset."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import shoal
from shoal.data import XShards
from shoal.errors import PlanError, StoreError, TrustError
from shoal.store import Store, connect, make_global_dataframe, make_global_tensor
from support.clusters import running
from support.engine import by_value

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::FutureWarning:pyspark")

ENGINES = ["local", *(pytest.param(name, marks=pytest.mark.slow) for name in ("dask", "ray", "spark"))]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory(prefix="shoal-test-", dir="/dev/shm") as folder:
        yield connect(f"{folder}/store", memory="500MB")


@pytest.fixture(scope="class", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    with by_value(__name__), running(request.param, workers=2):
        yield request.param


@pytest.fixture(scope="class")
def spark() -> Iterator[Any]:
    with running("spark", workers=2):
        from pyspark.sql import SparkSession

        yield SparkSession.getActiveSession()


def added(shard: pd.DataFrame, number: int) -> pd.DataFrame:
    return shard.assign(n=shard["n"] + number)


class TestShards:
    def test_frames_in_shards_become_a_frame_in_partitions_and_come_back(self, engine: str, store: Store) -> None:
        shards = [pd.DataFrame({"n": [at, at + 1], "word": [f"w{at}", None]}) for at in range(5)]
        number = store.put(XShards.from_shards(shards).transform_shard(added, 10))
        meta = store.get_meta(number)
        assert (meta.typename, meta["partitions_-size"]) == ("vineyard::GlobalDataFrame", 5)
        assert meta["owners_"] == [store.instance_id] * 5
        for frame, shard in zip(store.get(number), shards, strict=True):
            pd.testing.assert_frame_equal(frame, added(shard, 10))
        again = XShards.from_store(number, store).transform_shard(added, 100)
        assert [shard["n"].tolist() for shard in again.collect()] == [[at + 110, at + 111] for at in range(5)]

    def test_arrays_become_a_tensor_and_anything_else_a_list(self, engine: str, store: Store) -> None:
        arrays = XShards.partition(np.arange(24).reshape(8, 3), 4)
        number = store.put(arrays)
        assert store.get_meta(number).typename == "vineyard::GlobalTensor"
        np.testing.assert_array_equal(store.get(number, partitions="all", to="numpy"), np.arange(24).reshape(8, 3))
        other = store.put(XShards.partition({"x": np.arange(6.0), "y": np.arange(6)}, 3))
        assert store.get_meta(other).typename == "vineyard::GlobalShards"
        assert [shard["y"].tolist() for shard in XShards.from_store(other, store).collect()] == [[0, 1], [2, 3], [4, 5]]


class Odd:
    """What only a pickle can hold."""


def test_pickles_in_shards_need_trust(store: Store) -> None:
    with by_value(__name__):
        shards = XShards.from_shards([Odd(), Odd()])
        with pytest.raises(StoreError, match="trust=True"):
            store.put(shards)
        number = store.put(shards, trust=True)
        with pytest.raises(TrustError):
            XShards.from_store(number, store).collect()
        found = XShards.from_store(number, store, trust=True).transform_shard(type).transform_shard(_name).collect()
    assert found == ["Odd", "Odd"]


def _name(kind: type) -> str:
    return kind.__name__


def test_a_name_stands_for_shards_and_a_part_of_them_can_be_had(store: Store) -> None:
    store.put(XShards.from_shards([[1], [2, 2], [3]]), name="some shards")
    assert XShards.from_store("some shards", store).collect() == [[1], [2, 2], [3]]
    assert XShards.from_store("some shards", store, partitions="local").num_partitions() == 3


def test_rows_of_partitions_are_samples_in_their_order(store: Store) -> None:
    frames = [
        pd.DataFrame({"x": list(np.full((3, 2), part)), "y": [part * 10 + at for at in range(3)]}) for part in range(4)
    ]
    number = make_global_dataframe(store, [store.put(frame) for frame in frames]).id
    dataset = shoal.from_store(number, store)
    samples = list(dataset)
    assert [sample["y"] for sample in samples] == [part * 10 + at for part in range(4) for at in range(3)]
    assert samples[4]["__key__"] == "00001-000000001"
    assert samples[4]["x"].tolist() == [1, 1]
    assert len({sample["__key__"] for sample in samples}) == 12
    batches = list(dataset.shuffle("full", seed=1).loader(4))
    assert [batch["x"].shape for batch in batches] == [(4, 2)] * 3
    assert sorted(np.concatenate([batch["y"] for batch in batches])) == sorted(sample["y"] for sample in samples)


def test_a_dataset_resumes_where_it_stopped(store: Store) -> None:
    blocks = [store.put(np.arange(20).reshape(10, 2) + 100 * part, partition_index=(part, 0)) for part in range(3)]
    number = make_global_tensor(store, blocks).id
    loader = shoal.from_store(number, store).shuffle("full", seed=3).loader(5)
    seen = iter(loader)
    first = [next(seen)["x"].tolist() for _ in range(2)]
    state = loader.state_dict()
    rest = [batch["x"].tolist() for batch in seen]
    again = shoal.from_store(number, store).shuffle("full", seed=3).loader(5)
    again.load_state_dict(state)
    assert [batch["x"].tolist() for batch in again] == rest
    assert len(first) + len(rest) == 6


@pytest.mark.parametrize(
    "value",
    [
        pd.DataFrame({"a": [1, 2], "b": ["x", None]}),
        pa.table({"a": [1, 2], "b": ["x", None]}),
        {"a": np.array([1, 2]), "b": np.array(["x", None], object)},
    ],
    ids=["frame", "table", "dict"],
)
def test_any_object_with_rows_is_a_dataset(store: Store, value: Any) -> None:
    samples = list(shoal.from_store(store.put(value), store))
    assert [(sample["a"], sample["b"]) for sample in samples] == [(1, "x"), (2, None)]


def test_a_dataset_of_the_store_goes_to_other_processes(store: Store) -> None:
    dataset = shoal.from_store(store.put(np.arange(100.0).reshape(50, 2)), store)
    with by_value(__name__):
        found = list(dataset.map(doubled, workers=2, mode="process").loader(10))
    np.testing.assert_array_equal(np.concatenate([batch["x"] for batch in found]), np.arange(100.0).reshape(50, 2) * 2)
    source = pickle.loads(pickle.dumps(shoal.sources.StoreSource(store.put(np.arange(3)), store)))
    assert [sample["x"] for block in source.open(source.shards()[0]) for sample in block.samples] == [0, 1, 2]


def doubled(sample: Any) -> Any:
    return {**sample, "x": sample["x"] * 2}


def test_pickled_columns_are_rows_for_who_trusts_the_store(store: Store) -> None:
    cells = pd.Series([{1, 2}, 3j, Fraction(1, 2)], dtype=object)
    number = store.put(pd.DataFrame({"cell": cells}), trust=True)
    with pytest.raises(TrustError):
        list(shoal.from_store(number, store))
    trusting = connect(store.folder.path, trust=True)
    assert [sample["cell"] for sample in shoal.from_store(number, trusting)] == cells.tolist()


def test_what_has_no_rows_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="has no rows"):
        list(shoal.from_store(store.put("a text"), store))
    beside = [store.put(np.ones((2, 2)), partition_index=(0, at)) for at in range(2)]
    with pytest.raises(PlanError, match="rechunk"):
        shoal.from_store(make_global_tensor(store, beside).id, store)


def test_putting_what_lies_in_the_store_links_it(store: Store) -> None:
    """A second object in partitions over the same values takes no memory but for its descriptions."""
    frames = [pd.DataFrame({"x": np.arange(200_000) + part}) for part in range(3)]
    number = make_global_dataframe(store, [store.put(frame) for frame in frames]).id
    before = store.status().memory_usage
    again = make_global_dataframe(store, [store.put(frame) for frame in store.get(number)]).id
    assert store.status().memory_usage - before < 200_000
    shards = store.put(XShards.from_store(number, store))
    assert store.status().memory_usage - before < 400_000
    store.delete(number)
    assert [len(frame) for frame in store.get(shards)] == [200_000] * 3
    assert [int(frame["x"].sum()) for frame in store.get(again)] == [int(frame["x"].sum()) for frame in frames]


@pytest.mark.slow
def test_a_ray_dataset_is_put_block_by_block_and_comes_back(store: Store) -> None:
    with running("ray", workers=2):
        import ray

        from shoal.store.ray import ray_context

        ray.data.DataContext.get_current().enable_progress_bars = False
        dataset = ray.data.from_arrow(
            [pa.table({"n": [at, at + 1], "word": [f"w{at}", None]}) for at in range(0, 8, 2)]
        )
        with ray_context():
            number = store.put(dataset)
            back = store.get(number)
            assert [tuple(row.values()) for row in back.take_all()] == [
                tuple(row.values()) for row in dataset.take_all()
            ]
        arrays = make_global_tensor(store, [store.put(np.full((2, 3), at)) for at in range(2)]).id
        with ray_context():
            rows = store.get(arrays).take_all()
    assert [row["data"][0][0] if isinstance(row["data"][0], list) else row["data"][0] for row in rows] == [0, 0, 1, 1]
    meta = store.get_meta(number)
    assert (meta.typename, meta["partitions_-size"]) == ("vineyard::GlobalDataFrame", 4)
    assert [table.column("n").to_pylist() for table in store.get(number)] == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.slow
class TestSpark:
    def test_a_frame_is_put_by_its_executors_and_comes_back(self, spark: Any, store: Store) -> None:
        from shoal.store.pyspark import spark_context

        when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).replace(tzinfo=None)
        rows = [
            (at, f"w{at}" if at % 3 else None, Decimal(f"{at}.50"), when, [float(at), 1.0], {"k": at})
            for at in range(20)
        ]
        kinds = "n long, word string, price decimal(10,2), at timestamp_ntz, list array<double>, map map<string,int>"
        df = spark.createDataFrame(rows, kinds).repartition(4, "n").sortWithinPartitions("n")
        with spark_context():
            number = store.put(df)
            back = store.get(number)
            assert back.schema == df.schema
            assert back.rdd.getNumPartitions() == 4
            assert back.collect() == df.collect()
        meta = store.get_meta(number)
        assert (meta.typename, meta["partitions_-size"]) == ("vineyard::GlobalDataFrame", 4)
        assert all(meta[f"partitions_-{at}"].id.lease != number.lease for at in range(4)), "the driver put some itself"
        tables = store.get(number)
        assert all(isinstance(table, pa.Table) for table in tables)
        assert sum(table.num_rows for table in tables) == 20
        assert sorted(store.get(number, to="pandas")["n"]) == list(range(20))
        assert store.get(number, to="arrow").num_rows == 20

    def test_empty_partitions_and_frames_of_others_come_back(self, spark: Any, store: Store) -> None:
        from shoal.store.pyspark import spark_context

        df = spark.range(0, 6, 1, 3).filter("id > 3")
        frames = make_global_dataframe(
            store, [store.put(pd.DataFrame({"a": [at], "b": [f"w{at}"]})) for at in range(3)]
        ).id
        with spark_context():
            number = store.put(df)
            assert [row.id for row in store.get(number).collect()] == [4, 5]
            assert [tuple(row) for row in store.get(frames).collect()] == [(0, "w0"), (1, "w1"), (2, "w2")]
        assert [table.num_rows for table in store.get(number)] == [0, 0, 2]
        assert shoal.from_store(number, store).loader(2).epoch == 0
        assert [sample["id"] for sample in shoal.from_store(number, store)] == [4, 5]
