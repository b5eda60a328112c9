"""Python objects in shards: the cases that a re-implementation is held to, on the local engine."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal.data import SharedValue, XShards
from shoal.data._hashing import hash_values, homes
from shoal.data.pandas import read_csv
from shoal.errors import MissingFieldError, PlanError, TrustError, UrlNotFoundError
from support.engine import run_script

HOUSES = (
    (
        (100529, 100458, 101388, 101472, 100722, 100365, 100624),
        (150000, 475000, 260000, 340000, 242500, 164000, 190000),
        (110, 110, 120, 100, 110, 101, 100),
    ),
    (
        (100532, 100477, 101285, 100620, 101458, 100645, 100682),
        (190000, 192500, 264000, 275000, 475000, 219000, 200000),
        (100, 100, 130, 111, 110, 100, 111),
    ),
)


@pytest.fixture(autouse=True)
def _engine() -> Iterator[None]:
    with shoal.init("local", workers=4, mode="thread"):
        yield


@pytest.fixture
def houses(tmp_path: Path) -> XShards:
    for number, columns in enumerate(HOUSES):
        rows = pd.DataFrame(dict(zip(("ID", "sale_price", "location"), columns, strict=True)))
        rows.to_csv(tmp_path / f"{number}.csv", index=False)
    return read_csv(str(tmp_path))


def frames(*columns: dict[str, Any]) -> XShards:
    return XShards.from_shards([pd.DataFrame(each) for each in columns])


def test_an_array_is_cut_by_rows() -> None:
    array = np.random.default_rng(0).normal(size=(10, 4))
    shards = XShards.partition(array)
    assert [len(shard) for shard in shards.collect()] == [3, 3, 2, 2]
    assert (np.concatenate(shards.collect()) == array).all()


def test_the_build_of_what_is_cut_is_kept() -> None:
    a, b = np.arange(10), np.arange(20).reshape(10, 2)
    for data in ((a, b), [a, b], {"y": [b], "x": (a,)}, {"x": a}):
        shards = XShards.partition(data, 3).collect()
        assert all(type(shard) is type(data) for shard in shards)
        if isinstance(data, dict):
            assert all(list(shard) == list(data) for shard in shards)
    whole = XShards.partition({"y": [b], "x": (a,)}, 3).collect()
    assert np.concatenate([shard["y"][0] for shard in whole]).tolist() == b.tolist()
    assert np.concatenate([shard["x"][0] for shard in whole]).tolist() == a.tolist()


def test_fewer_rows_than_shards_are_explained() -> None:
    with pytest.raises(PlanError, match=r"number of shards is 20, and there are only 10 rows.*num_shards=10"):
        XShards.partition(np.zeros((10, 2)), num_shards=20)
    assert XShards.partition(np.zeros(3)).num_partitions() == 3  # there are four processors


def test_arrays_must_have_the_same_number_of_rows() -> None:
    with pytest.raises(PlanError, match=r"data\['x'\] has 3, data\['y'\]\[0\] has 4"):
        XShards.partition({"x": np.zeros(3), "y": [np.zeros(4)]})
    with pytest.raises(PlanError, match=r"data.0. is a str"):
        XShards.partition(["text"])


def test_the_example_of_images_and_labels() -> None:
    images, labels = np.random.default_rng(0).random((20, 3, 8, 8)), np.zeros(20)
    shards = XShards.partition([images, labels]).transform_shard(lambda data: {"x": data[0], "y": data[1]})
    found = shards.collect()
    assert all(len(shard["x"]) == len(shard["y"]) for shard in found)
    assert (np.concatenate([shard["x"] for shard in found]) == images).all()


def test_lengths_and_keys(houses: XShards) -> None:
    assert (len(houses.collect()), len(houses), len(houses["ID"])) == (2, 14, 14)
    with pytest.raises(PlanError, match="Invalid key for this XShards: 'abc'"):
        len(houses["abc"])
    dicts = houses.transform_shard(lambda df: {"ID": df["ID"], "location": df["location"]})
    assert (len(dicts), len(dicts["ID"])) == (4, 14)
    numbers = houses.transform_shard(lambda df: 4)
    assert len(numbers) == 2
    with pytest.raises(PlanError, match="No selection operation available for this XShards"):
        numbers["abc"].collect()


def test_unique_values(houses: XShards) -> None:
    assert houses["location"].unique().tolist() == [110, 120, 100, 101, 130, 111]
    with pytest.raises(PlanError, match=r"Currently only support unique\(\) on XShards of Pandas Series"):
        houses.unique()


def test_partition_by_puts_equal_values_together(houses: XShards) -> None:
    parted = houses.partition_by("location", 4)
    found = parted.collect()
    assert parted.num_partitions() == len(found) == 4
    locations = [set(frame["location"]) for frame in found]
    assert sum(map(len, locations)) == len(set.union(*locations)) == 6
    assert all(frame.index.tolist() == list(range(len(frame))) for frame in found)
    assert all(frame.dtypes.tolist() == [np.dtype(np.int64)] * 3 for frame in found)
    assert not houses.is_cached()
    assert sorted(pd.concat(found)["ID"]) == sorted(HOUSES[0][0] + HOUSES[1][0])


def test_partition_by_several_columns(houses: XShards) -> None:
    found = houses.partition_by(["location", "sale_price"], 3).collect()
    pairs = [set(zip(frame["location"], frame["sale_price"], strict=True)) for frame in found]
    assert sum(map(len, pairs)) == len(set.union(*pairs))
    with pytest.raises(MissingFieldError, match="no such column; there are ID, sale_price, location"):
        houses.partition_by("nowhere").collect()
    with pytest.raises(PlanError, match=r"partition_by\(\) on XShards of Pandas DataFrame"):
        XShards.partition(np.zeros(4), 2).partition_by("a").collect()


def test_split_takes_pairs_apart(houses: XShards) -> None:
    first, last = houses.transform_shard(lambda df: (df[0:-1], df[-1:])).split()
    assert [len(frame) for frame in first.collect()] == [6, 6]
    assert [len(frame) for frame in last.collect()] == [1, 1]
    assert houses.split() == [houses]
    with pytest.raises(PlanError, match="different split length"):
        XShards.from_shards([(1, 2), (1, 2, 3)]).split()


def test_a_value_is_shared(houses: XShards) -> None:
    def negative(df: pd.DataFrame, column: str, minus: SharedValue[int]) -> pd.DataFrame:
        df[column] = df[column] * (-1) - minus.value
        return df

    offset = SharedValue(2)
    new = houses.transform_shard(negative, "sale_price", offset)
    assert new.collect()[0]["sale_price"][0] + houses.collect()[0]["sale_price"][0] == -2
    offset.unpersist()
    with pytest.raises(shoal.errors.StateError, match="let go of"):
        _ = offset.value


def test_a_transform_leaves_its_source_as_it_is(houses: XShards) -> None:
    def negative(df: pd.DataFrame, column_name: str) -> pd.DataFrame:
        df[column_name] = df[column_name] * (-1)
        return df

    kept = houses.transform_shard(lambda df: df).cache()
    before = kept.to_pandas()
    assert (kept.transform_shard(negative, "sale_price").to_pandas()["sale_price"] == -before["sale_price"]).all()
    assert kept.to_pandas().equals(before)


def test_zip_makes_pairs(houses: XShards) -> None:
    pairs = houses.zip(houses.transform_shard(len)).collect()
    assert [(len(frame), count) for frame, count in pairs] == [(7, 7), (7, 7)]
    with pytest.raises(PlanError, match="other should be a XShards"):
        houses.zip([1, 2, 3])  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="same number of partitions"):
        houses.zip(XShards.partition(np.zeros(9), 3))


def test_what_is_cached_is_made_once(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def noted(shard: Any) -> Any:
        with log.open("a") as file:
            file.write("x")
        return shard

    shards = XShards.partition(np.arange(8), 4).transform_shard(noted)
    assert len(shards) + len(shards) == 16
    assert log.read_text() == "x" * 8
    shards.cache()
    assert shards.is_cached()
    assert len(shards) + len(shards.transform_shard(lambda shard: shard)) == 16
    assert log.read_text() == "x" * 12
    shards.uncache()
    assert not shards.is_cached()
    assert len(shards) == 8
    assert log.read_text() == "x" * 16


def test_first_and_take_make_only_what_they_give(tmp_path: Path) -> None:
    def noted(shard: Any) -> Any:
        (tmp_path / str(shard[0])).touch()
        return shard * 10

    shards = XShards.partition(np.arange(4), 4).transform_shard(noted)
    assert shards.first().tolist() == [0]
    assert [shard.tolist() for shard in shards.take(2)] == [[0], [10]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


@pytest.mark.parametrize("partitions", [1, 3, 6, 20])
def test_lists_are_dealt_out_anew(partitions: int) -> None:
    shards = XShards.from_shards([list(range(at, at + 4)) for at in (0, 4, 8, 12)]).repartition(partitions)
    found = shards.collect()
    assert len(found) == shards.num_partitions() == partitions
    assert [item for shard in found for item in shard] == list(range(16))
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_frames_arrays_and_dicts_are_dealt_out_anew() -> None:
    frame = pd.DataFrame({"a": range(10), "b": list("abcdefghij")})
    shards = XShards.from_shards([frame[:3], frame[3:3], frame[3:]])
    found = shards.repartition(4).collect()
    assert [len(each) for each in found] == [3, 3, 2, 2]
    assert pd.concat(found, ignore_index=True).equals(frame)
    arrays = XShards.partition({"x": np.arange(10.0), "y": np.arange(20).reshape(10, 2)}, 3).repartition(2).collect()
    assert [each["y"].shape for each in arrays] == [(5, 2), (5, 2)]
    with pytest.raises(PlanError, match="shard 0 is a int, which has no rows"):
        XShards.from_shards([1, 2]).repartition(3)


def test_pickles_are_read_by_those_who_trust_them(houses: XShards, tmp_path: Path) -> None:
    folder = str(tmp_path / "saved")
    assert houses.save_pickle(folder) is houses
    with pytest.raises(TrustError, match="trust=True"):
        XShards.load_pickle(folder)
    assert XShards.load_pickle(folder, trust=True).to_pandas().equals(houses.to_pandas())
    with pytest.raises(PlanError, match="already"):
        houses.save_pickle(folder)


def test_shards_are_saved_as_arrow(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2], "text": ["x", None], "day": pd.to_datetime(["2026-01-01", None])}, index=[5, 7])
    values: list[Any] = [
        frame,
        frame["a"],
        np.arange(6, dtype=np.float32).reshape(2, 3),
        {"x": (np.array([1]), [b"bytes", "text", None, 1.5, True]), "y": {"z": np.zeros((0, 2))}},
    ]
    XShards.from_shards(values).save(str(tmp_path / "saved"))
    found = XShards.load(str(tmp_path / "saved")).collect()
    assert found[0].equals(frame)
    assert found[1].equals(frame["a"])
    assert found[1].name == "a"
    assert (found[2].dtype, found[2].tolist()) == (np.float32, values[2].tolist())
    assert repr(found[3]) == repr(values[3])
    found[2][0, 0] = 9  # it belongs to whoever read it


def test_what_cannot_be_arrow_is_told(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="a set cannot be saved as Arrow; save_pickle"):
        XShards.from_shards([{1}]).save(str(tmp_path / "saved"))
    with pytest.raises(UrlNotFoundError, match=r"no shards.json"):
        XShards.load(str(tmp_path / "saved"))
    XShards.from_shards([1]).save(str(tmp_path / "one"))
    with pytest.raises(PlanError, match="which load reads"):
        XShards.load_pickle(str(tmp_path / "one"), trust=True)


def test_describe_tells_numbers_as_texts() -> None:
    shards = frames({"id": range(1, 6), "word": list("abcde")}, {"id": range(6, 11), "word": list("fghij")})
    told = shards.describe("id").set_index("summary")["id"]
    assert (told["count"], told["mean"], told["min"], told["max"]) == ("10", "5.5", "1", "10")
    assert float(told["stddev"]) == pytest.approx(np.arange(1, 11).std(ddof=1))
    both = shards.describe().set_index("summary")
    assert both["word"].fillna("nothing").tolist() == ["10", "nothing", "nothing", "a", "j"]


def test_sample_takes_a_share_of_each_shard() -> None:
    shards = frames({"id": range(5)}, {"id": range(5, 10)})
    assert len(shards.sample(frac=0.4)) == 4
    once, again = (shards.sample(frac=0.4, random_state=7).to_pandas()["id"].tolist() for _ in range(2))
    assert once == again
    drawn = shards.sample(0.4)
    assert drawn.collect()[0].equals(drawn.collect()[0])
    assert len(shards.sample_to_pdf(frac=0.4)) == 4


def test_most_and_least(houses: XShards) -> None:
    assert (houses.max_values("sale_price"), houses.min_values("sale_price")) == (475000, 150000)


def test_merge_joins_rows() -> None:
    left = frames({"a": [1, 2], "b": [10, 20]}, {"a": [3, 4], "b": [30, 40]})
    right = frames({"a": [1, 2, 4, 5], "c": list("wxyz")})
    found = left.merge(right, on="a").to_pandas().sort_values("a", ignore_index=True)
    assert found.to_dict("list") == {"a": [1, 2, 4], "b": [10, 20, 40], "c": ["w", "x", "y"]}
    assert left.merge(right).to_pandas().shape == (3, 3)
    outer = left.merge(right, how="outer", on=["a"]).to_pandas()
    assert sorted(outer["a"]) == [1, 2, 3, 4, 5]
    with pytest.raises(PlanError, match="no column that both have"):
        left.merge(frames({"z": [1]}))


def test_missing_values_are_counted_over_all_shards() -> None:
    shards = frames({"a": [1.0, None], "b": ["x", "y"]}, {"a": [None, None], "b": ["z", "w"]})
    assert shards.get_null_sum().to_dict("list") == {"col": ["a", "b"], "total": [3, 0]}
    assert list(shards.drop_missing_value().to_pandas()) == ["b"]


def test_head_goes_on_to_the_next_shard() -> None:
    shards = frames({"a": [1, 2]}, {"a": [3, 4]}, {"a": [5]})
    assert shards.head(3)["a"].tolist() == [1, 2, 3]
    assert shards.head()["a"].tolist() == [1, 2, 3, 4, 5]


def test_features_and_labels_are_assembled() -> None:
    shards = frames({"a": [1, 2], "b": [3, 4], "y": [0, 1]})
    (made,) = shards.assembleFeatureLabelCols(["a", "b"], ["y"]).collect()
    assert (made["x"].tolist(), made["y"].tolist()) == ([[1, 3], [2, 4]], [[0], [1]])
    with pytest.raises(PlanError, match="featureCols is a list"):
        shards.assembleFeatureLabelCols("a", ["y"])
    stacked = XShards.from_shards([[(1, 2), (3, 4), (5, 6)], [(7, 8), (9, 0), (1, 1)]]).stack_feature_labels().collect()
    assert [each["x"].dtype for each in stacked] == [np.float32] * 2


def test_rows_that_are_the_same_are_kept_once() -> None:
    shards = frames({"a": [1, 1, 2], "b": ["x", "x", "y"]}, {"a": [1, 2], "b": ["x", "z"]})
    found = shards.deduplicates().to_pandas().sort_values(["a", "b"])
    assert found.to_numpy().tolist() == [[1, "x"], [2, "y"], [2, "z"]]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(-5, 5) | st.none(), st.sampled_from("abc")), max_size=6), min_size=1, max_size=4
    ),
    st.booleans(),
)
def test_sorting_is_pandas_own(rows: list[list[tuple[int | None, str]]], ascending: bool) -> None:
    parts = [pd.DataFrame(some, columns=["n", "c"]).astype({"n": "float64", "c": "str"}) for some in rows]
    whole = pd.concat(parts, ignore_index=True)
    found = XShards.from_shards(parts).sort_values("n", ascending=ascending)
    expected = whole.sort_values("n", ascending=ascending, kind="stable", ignore_index=True)
    assert found.num_partitions() == len(parts)
    assert found.to_pandas().equals(expected)


def test_sorting_by_several_columns_in_several_ways() -> None:
    rng = np.random.default_rng(1)
    whole = pd.DataFrame({"a": rng.integers(0, 5, 500), "b": rng.choice(list("xyz"), 500), "c": range(500)})
    shards = XShards.from_shards([whole[:200], whole[200:210], whole[210:]])
    found = shards.sort_values(["a", "b"], ascending=[False, True])
    expected = whole.sort_values(["a", "b"], ascending=[False, True], kind="stable", ignore_index=True)
    assert found.to_pandas().equals(expected)
    assert max(len(part) for part in found.collect()) < 400
    with pytest.raises(PlanError, match="1 ways, and there are 2 columns"):
        shards.sort_values(["a", "b"], ascending=[True])


FUNCTIONS = {
    "max": "max", "min": "min", "count": "count", "sum": "sum", "avg": "mean", "mean": "mean", "first": "first",
    "last": "last", "stddev": "std", "variance": "var",
}  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_groups_are_pandas_own(function: str) -> None:
    rng = np.random.default_rng(2)
    whole = pd.DataFrame({"k": rng.choice(["a", "b", None], 300), "x": rng.normal(size=300)})
    whole.loc[::7, "x"] = np.nan
    made = XShards.from_shards([whole[:100], whole[100:101], whole[101:]]).group_by("k", {"x": function}).to_pandas()
    expected = getattr(whole.groupby("k", dropna=False)["x"], FUNCTIONS[function])()
    name = "avg(x)" if function == "mean" else f"{function}(x)"
    found = made.set_index("k")[name].reindex(expected.index)
    np.testing.assert_allclose(found.to_numpy(float), expected.to_numpy(float), rtol=1e-12)


def test_groups_of_values_and_powers() -> None:
    shards = frames({"k": [1, 1, 2], "x": [3.0, 1.0, 5.0]}, {"k": [1, 2], "x": [3.0, 7.0]})
    asked = {"x": ["collect_list", "collect_set", "sumDistinct", "approx_count_distinct", "var_pop", "stddev_pop"]}
    made = shards.group_by(["k"], asked).to_pandas().set_index("k").sort_index()
    assert made["collect_list(x)"].tolist() == [[3.0, 1.0, 3.0], [5.0, 7.0]]
    assert made["collect_set(x)"].tolist() == [[3.0, 1.0], [5.0, 7.0]]
    assert made["sumDistinct(x)"].tolist() == [4.0, 12.0]
    assert made["approx_count_distinct(x)"].tolist() == [2, 2]
    assert made["var_pop(x)"].tolist() == pytest.approx([8 / 9, 1.0])
    rng = np.random.default_rng(3)
    whole = pd.DataFrame({"x": rng.gamma(2.0, size=1000)})
    (told,) = XShards.from_shards([whole[:10], whole[10:]]).group_by([], {"x": ["skewness", "kurtosis"]}).collect()
    away = whole["x"] - whole["x"].mean()
    spread = (away**2).mean()
    assert told["skewness(x)"][0] == pytest.approx((away**3).mean() / spread**1.5)
    assert told["kurtosis(x)"][0] == pytest.approx((away**4).mean() / spread**2 - 3)


def test_groups_can_be_joined_to_their_rows() -> None:
    shards = frames({"k": ["a", "b"], "x": [1, 2]}, {"k": ["a", "c"], "x": [3, 4]})
    joined = shards.group_by("k", {"x": "sum", "*": "count"}, join=True).to_pandas().sort_values("x")
    assert joined["sum(x)"].tolist() == [4, 2, 4, 4]
    assert joined["count(1)"].tolist() == [2, 1, 2, 1]
    with pytest.raises(PlanError, match="no function 'median'"):
        shards.group_by("k", "median")


def test_a_failing_shard_is_named(houses: XShards) -> None:
    def broken(df: pd.DataFrame) -> pd.DataFrame:
        if 130 in set(df["location"]):
            raise RuntimeError("no such place")
        return df

    with pytest.raises(RuntimeError, match="no such place") as caught:
        houses.transform_shard(broken).collect()
    notes = "\n".join(caught.value.__notes__)
    assert "shard 1 of 2" in notes
    assert "rows 0 to 6 of" in notes
    assert "1.csv" in notes
    assert 'raise RuntimeError("no such place")' in notes


@given(st.lists(st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.none(), min_size=1, max_size=20))
def test_equal_numbers_have_equal_homes_in_every_type(values: list[Any]) -> None:
    objects = hash_values(pd.Series(values, dtype=object))
    for value, hashed in zip(values, objects, strict=True):
        kinds: list[Any] = [float] if value is None else [float] if float(value) == value else []
        kinds += [int] if isinstance(value, int) else []
        for kind in kinds:
            typed = pd.Series([value], dtype="float64" if kind is float else "int64")
            assert hash_values(typed)[0] == hashed


def test_equal_values_have_equal_homes() -> None:
    same: list[tuple[Any, ...]] = [
        (pd.Series([1, 0]), pd.Series([True, False]), pd.Series([1.0, 0.0]), pd.Series([1, 0], dtype="Int64")),
        (pd.Series(["a", None]), pd.Series(["a", None], dtype=object), pd.Series(["a", None], dtype="category")),
        (pd.Series(pd.to_datetime(["2026-01-01"])), pd.Series(pd.to_datetime(["2026-01-01"])).astype("datetime64[s]")),
        (pd.Series([2**63], dtype="uint64"), pd.Series([2.0**63]), pd.Series([2**63], dtype=object)),
    ]
    for kinds in same:
        assert len({tuple(hash_values(kind).tolist()) for kind in kinds}) == 1, kinds
    assert homes(pd.DataFrame({"a": range(1000)}), ["a"], 7).tolist()[:8] == [3, 5, 6, 3, 3, 4, 4, 5]
    assert homes(pd.DataFrame({"a": ["x", "y", None, "z"]}), ["a"], 7).tolist() == [5, 1, 4, 2]


def test_for_each_item(houses: XShards) -> None:
    """An error that is caught in the function is a result like others."""

    def tried(df: pd.DataFrame, key: str) -> Any:
        try:
            return operator.getitem(df, key)
        except KeyError as error:
            return error

    assert isinstance(houses.transform_shard(tried, "abc").first(), KeyError)


@pytest.mark.slow
def test_a_gigabyte_is_processed_within_128_megabytes(tmp_path: Path) -> None:
    """Memory that no file backs, of a program that reads shards, changes them, deals them out anew and writes them."""
    done = run_script(
        """
        import pathlib, re, sys, threading
        import numpy as np
        import shoal
        from shoal.data import XShards

        folder, peak, over = sys.argv[1], [0], threading.Event()

        def watch():
            while not over.wait(0.01):
                text = pathlib.Path("/proc/self/smaps_rollup").read_text()
                kinds = re.findall(r"Pss_(?:Anon|Shmem): +([0-9]+)", text)
                peak[0] = max(peak[0], sum(map(int, kinds)))

        def make(number):
            return {"x": np.full((500, 500), number, np.float64), "n": np.arange(500)}  # 2 MB

        with shoal.init("local", workers=2, mode="thread", memory="8MB"):
            XShards.from_shards(list(range(500))).transform_shard(make).save(f"{folder}/made")
            watcher = threading.Thread(target=watch)
            watcher.start()
            shards = XShards.load(f"{folder}/made").transform_shard(lambda shard: {"x": -shard["x"], "n": shard["n"]})
            shards.repartition(480).save(f"{folder}/done")
            over.set()
            watcher.join()
            again = XShards.load(f"{folder}/done")
            sums = again.transform_shard(lambda shard: float(shard["x"].sum())).collect()
        print(again.num_partitions(), sum(sums) == -500 * 500 * sum(range(500)), peak[0] // 1000)
        """,
        arguments=[str(tmp_path)],
        seconds=280,
    )
    assert done.returncode == 0, done.stderr
    shards, right, peak = done.stdout.split()
    assert (shards, right) == ("480", "True")
    assert int(peak) < 128, peak
