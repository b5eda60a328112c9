"""Results of joins and groups have the types that pandas finds in the whole, however rows are dealt out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal.data import XShards, _regrouping
from support.clusters import running


@pytest.fixture(autouse=True)
def _engine() -> Iterator[None]:
    with shoal.init("local", workers=2, mode="thread"):
        yield


keys = st.lists(st.integers(0, 12), max_size=12)


def parts(frame: pd.DataFrame, count: int) -> XShards:
    return XShards.from_shards([frame.iloc[part::count] for part in range(count)])


def left_of(values: list[int]) -> pd.DataFrame:
    frame = pd.DataFrame({"key": values, "n": range(len(values)), "flag": [value % 2 == 0 for value in values]})
    return frame.astype({"key": "int64", "n": "int32", "flag": bool})


def right_of(values: list[int]) -> pd.DataFrame:
    columns = {"key": values, "m": range(len(values)), "word": [f"w{value}" for value in values]}
    columns["on"] = [value > 3 for value in values]
    columns["day"] = [pd.Timestamp(2020, 1, 1 + value) for value in values]
    kinds = {"key": "int64", "m": "uint8", "word": "str", "on": bool, "day": "datetime64[us]"}
    return pd.DataFrame(columns).astype(kinds)


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort rows by all that can be sorted: a join says nothing about their order."""
    return frame.sort_values(["key", "n", "m"], ignore_index=True, na_position="last")


@given(keys, keys, st.integers(1, 4), st.integers(1, 4), st.sampled_from(["left", "right", "outer", "inner"]))
def test_a_join_is_pandas_own(left: list[int], right: list[int], here: int, there: int, how: Any) -> None:
    one, other = left_of(left), right_of(right)
    merged = parts(one, here).merge(parts(other, there), how=how, on="key")
    expected = one.merge(other, how=how, on="key")
    shards = merged.collect()
    if len(expected):
        assert {tuple(map(str, shard.dtypes)) for shard in shards} == {tuple(map(str, expected.dtypes))}
    pd.testing.assert_frame_equal(in_order(pd.concat(shards)), in_order(expected), check_dtype=len(expected) > 0)


FUNCTIONS = [
    "stddev",
    "skewness",
    "mean",
    "sum",
    "max",
    "first",
    "sumDistinct",
    "count_distinct",
    "collect_list",
    "count",
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_groups_have_one_type_in_all_shards(function: str) -> None:
    """There are more shards than groups, so that some have none; and one group has no value at all."""
    frame = pd.DataFrame({"key": [0, 0, 1, 2], "x": [1.5, 2.5, 3.0, None]})
    made = parts(frame, 8).group_by("key", {"x": function}).collect()
    assert len({tuple(map(str, shard.dtypes)) for shard in made}) == 1
    assert sum(map(len, made)) == 3


def test_types_of_a_join_are_kept_by_what_follows() -> None:
    one = pd.DataFrame({"key": range(20), "n": range(20)})
    other = pd.DataFrame({"key": range(10), "m": range(10)})
    joined = parts(one, 4).merge(parts(other, 4), how="left", on="key")
    doubled = joined.transform_shard(lambda shard: shard.assign(m=shard["m"] * 2))
    assert {str(shard["m"].dtype) for shard in doubled.collect()} == {"float64"}
    assert joined.sort_values("key").to_pandas().equals(one.merge(other, how="left", on="key"))
    whole = parts(one.head(10), 4).merge(parts(other, 4), how="left", on="key")
    assert {str(shard["m"].dtype) for shard in whole.collect()} == {"int64"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
@pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")
@pytest.mark.parametrize("engine", ["dask", "ray", "spark"])
def test_types_are_the_same_on_every_engine(engine: str) -> None:
    one, other = left_of([1, 2, 3, 3]), right_of([3, 4, 5])
    shoal.shutdown()
    with running(engine, workers=2):
        shards = parts(one, 3).merge(parts(other, 2), how="outer", on="key").collect()
    expected = one.merge(other, how="outer", on="key")
    assert all(shard.dtypes.equals(expected.dtypes) for shard in shards)
    pd.testing.assert_frame_equal(in_order(pd.concat(shards)), in_order(expected))


def test_groups_are_the_same_however_they_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    frames = [
        pd.DataFrame({"k": random.choice(list("abcdef"), 50), "x": random.random(50), "n": random.integers(0, 9, 50)})
        for _ in range(5)
    ]
    shards = XShards.from_shards(frames)
    asked = {"x": ["sum", "mean", "stddev"], "n": ["max", "collect_set"], "*": "count"}
    in_one_go = shards.group_by("k", asked).collect()
    monkeypatch.setattr(_regrouping, "_FEW", 0)
    in_parts = shards.group_by("k", asked).collect()
    assert len(in_one_go) == len(in_parts) == 5
    for one, other in zip(in_one_go, in_parts, strict=True):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    assert sum(map(len, in_parts)) == 6
