"""Cases that programs written for Orca rely on: options of readers and their messages, ways through Ray and Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import shoal
from shoal.data import XShards
from shoal.data.pandas import read_csv
from shoal.errors import PlanError
from support.clusters import running

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:pyspark"),
]


@pytest.fixture
def local() -> Iterator[None]:
    with shoal.init("local", workers=2, mode="thread"):
        yield


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A file without a header: three columns of numbers."""
    (tmp_path / "bare.csv").write_text("1,10,0.5\n2,20,1.5\n3,30,2.5\n")
    return str(tmp_path / "bare.csv")


@pytest.fixture
def houses(tmp_path: Path) -> str:
    (tmp_path / "houses.csv").write_text("ID,sale_price,location\n100529,475000,130\n100530,386000,101\n")
    return str(tmp_path / "houses.csv")


@pytest.mark.usefixtures("local")
class TestReaders:
    def test_columns_without_names_have_numbers(self, bare: str) -> None:
        assert list(read_csv(bare, header=None).to_pandas()) == ["0", "1", "2"]

    def test_names_of_some_columns(self, bare: str) -> None:
        frame = read_csv(bare, header=None, names=["user", "item"], usecols=[0, 1]).to_pandas()
        assert frame.to_dict("list") == {"user": [1, 2, 3], "item": [10, 20, 30]}

    @pytest.mark.parametrize("used", [["ID"], [0, 1, 2], [5]])
    def test_names_that_do_not_fit(self, bare: str, used: list[Any]) -> None:
        with pytest.raises(PlanError, match="Passed names did not match usecols"):
            read_csv(bare, header=None, names=["user", "item"], usecols=used)

    def test_types_by_the_number_of_a_column(self, bare: str) -> None:
        dtype = {0: np.float32, 1: np.int32}
        frame = read_csv(bare, header=None, names=["user", "item"], usecols=[0, 1], dtype=dtype).to_pandas()
        assert frame.dtypes.to_dict() == {"user": np.float32, "item": np.int32}

    def test_a_number_is_that_of_the_file(self, houses: str) -> None:
        frame = read_csv(houses, usecols=["ID", "location"], dtype={2: np.float32}).to_pandas()
        assert frame.dtypes.to_dict() == {"ID": np.int64, "location": np.float32}

    @pytest.mark.parametrize("dtype", [{"0": "float32"}, {0: "float32"}])
    def test_types_of_columns_without_names(self, bare: str, dtype: dict[Any, str]) -> None:
        assert read_csv(bare, header=None, dtype=dtype).to_pandas()["0"].dtype == np.float32

    def test_text_further_down_in_columns_without_names(self, tmp_path: Path) -> None:
        lines = [*(f"{n},1" for n in range(500)), "007,1", "seven,1", *(f"{n},1" for n in range(500))]
        (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
        found = read_csv(str(tmp_path / "a.csv"), header=None, part_size=1000).to_pandas()
        assert found["0"].tolist() == [line.partition(",")[0] for line in lines]

    @pytest.mark.parametrize("more", [{"usecols": [0, 1]}, {"usecols": ["user"], "names": ["user", "item", "x"]}])
    def test_a_type_for_a_column_that_is_not_read(self, bare: str, more: dict[str, Any]) -> None:
        options = {"header": None, "names": ["user", "item"], "dtype": {1: np.int32, 2: np.int32}, **more}
        with pytest.raises(PlanError, match="column index to be set type is not in current dataframe"):
            read_csv(bare, **options)

    def test_a_type_for_a_column_that_is_not_there(self, houses: str) -> None:
        with pytest.raises(PlanError, match=r"column to be set type is not in current.*'price'.*sale_price"):
            read_csv(houses, dtype={"price": np.float32})
        with pytest.raises(PlanError, match="column to be set type is not in current dataframe"):
            read_csv(houses, usecols=["ID"], dtype={"location": np.float32})

    def test_a_single_column_becomes_series(self, houses: str) -> None:
        (series,) = read_csv(houses, usecols=[0], squeeze=True).collect()
        assert isinstance(series, pd.Series)
        assert series.tolist() == [100529, 100530]
        assert isinstance(read_csv(houses, squeeze=True).first(), pd.DataFrame)

    def test_a_column_becomes_the_index(self, houses: str) -> None:
        (frame,) = read_csv(houses, index_col="ID", dtype={"ID": np.int32}).collect()
        assert 100529 in frame.index
        assert list(frame) == ["sale_price", "location"]

    def test_a_function_chooses_columns(self, houses: str) -> None:
        (frame,) = read_csv(houses, usecols=lambda name: name in ("ID", "location")).collect()
        assert list(frame) == ["ID", "location"]

    def test_columns_are_in_the_order_of_the_file(self, houses: str) -> None:
        assert list(read_csv(houses, usecols=["location", "ID"]).to_pandas()) == ["ID", "location"]

    @pytest.mark.parametrize("name", ["abc.csv", "abc", "*.nothing"])
    def test_a_path_that_is_not_there(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(FileNotFoundError, match="No such file or directory"):
            read_csv(str(tmp_path / name))


@pytest.mark.slow
def test_through_ray_and_back() -> None:
    frames = [pd.DataFrame({"n": range(low, low + 5), "x": np.arange(5) / 2}) for low in (0, 5, 10, 15)]
    with running("ray", workers=2):
        import ray.data

        ray.data.DataContext.get_current().enable_progress_bars = False
        shards = XShards.from_shards(frames)
        back = XShards.from_ray(shards.to_ray())
        assert back.num_partitions() == 4
        assert all(map(pd.DataFrame.equals, back.collect(), frames))
        more = back.transform_shard(lambda frame: frame + 1).collect()
        assert all(map(pd.DataFrame.equals, more, [frame + 1 for frame in frames]))


@pytest.mark.slow
def test_a_prediction_stands_beside_its_feature() -> None:
    """A model that gives back what it gets: rows keep their order, through Spark and back."""
    with running("spark", workers=2) as session:
        rows = [([float(number)] * 5,) for number in range(20)]
        spark = session.engine.session
        shards = XShards.from_spark(spark.createDataFrame(rows, ["feature"]).coalesce(3))
        predicted = shards.transform_shard(lambda frame: frame.assign(prediction=frame["feature"])).to_spark_df()
        found = predicted.collect()
    assert [list(row.feature) for row in found] == [row[0] for row in rows]
    assert [list(row.prediction) for row in found] == [list(row.feature) for row in found]


@pytest.mark.usefixtures("local")
def test_dicts_of_arrays_keep_their_rows_and_borders() -> None:
    x = np.repeat(np.arange(110.0)[:, None], 5, axis=1)
    shards = XShards.from_shards([{"x": x[low : low + 5]} for low in range(0, 110, 5)])
    predicted = shards.transform_shard(lambda shard: {**shard, "prediction": shard["x"]}).collect()
    assert [len(shard["prediction"]) for shard in predicted] == [5] * 22
    assert np.array_equal(np.concatenate([shard["prediction"] for shard in predicted]), x)


@pytest.mark.usefixtures("local")
def test_records_in_shards_of_a_size() -> None:
    shards = XShards.partition({"x": np.arange(100)}, 1)
    assert [len(shard["x"]) for shard in shards._in_pieces(30).collect()] == [30, 30, 30, 10]
    assert [len(shard["x"]) for shard in shards.collect()] == [100]
    assert shards._in_pieces(1).num_partitions() == 100


@pytest.mark.usefixtures("local")
def test_several_outputs_side_by_side() -> None:
    x = np.random.default_rng(0).normal(size=(60, 50))
    shards = XShards.partition({"x": x}, 4)
    predicted = shards.transform_shard(lambda shard: [shard["x"][:, :24], shard["x"][:, 24:]])
    first, second = predicted.split()
    assert {part.shape[1] for part in first.collect()} == {24}
    assert {part.shape[1] for part in second.collect()} == {26}
    pairs = first.zip(second).transform_shard(lambda pair: np.concatenate(pair, axis=1)).collect()
    assert np.array_equal(np.concatenate(pairs), x)
