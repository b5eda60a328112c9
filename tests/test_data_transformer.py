"""Columns made ready for models: what is learnt is what exact arithmetic says, however rows lie in shards."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes

import shoal
from shoal.data import XShards
from shoal.data._exact_sums import UNIT_BITS, exact_sum
from shoal.data._moments import Moments
from shoal.data.transformer import MinMaxScaler, StandardScaler, StringIndexer
from shoal.errors import MissingFieldError, PlanError
from support.clusters import running

#: What the engines say about each other and about themselves.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:pyspark"),
]

FLOATS = st.floats(-1e100, 1e100, allow_subnormal=True) | st.floats(-1, 1) | st.sampled_from([0.0, -0.0, 5e-324, 1e16])


@pytest.fixture(autouse=True)
def _engine(request: pytest.FixtureRequest) -> Iterator[None]:
    if "engine" in request.fixturenames:
        yield
    else:
        with shoal.init("local", workers=2, mode="thread"):
            yield


def shards_of(frame: pd.DataFrame, *cuts: int) -> XShards:
    edges = [0, *cuts, len(frame)]
    return XShards.from_shards([frame.iloc[low:high] for low, high in pairwise(edges)])


def matrix(shards: XShards, column: str = "scaled") -> np.ndarray[Any, Any]:
    return np.stack(shards.to_pandas()[column].to_list())


@given(st.lists(FLOATS, min_size=1, max_size=50))
@example([2.0**27, 1.0, -(2.0**27)])
@example([134217729.0])
def test_sums_are_exact(values: list[float]) -> None:
    assert Fraction(exact_sum(np.array(values)), 2**UNIT_BITS) == sum(map(Fraction, values))


def test_a_long_sum_is_exact() -> None:
    values = np.random.default_rng(0).normal(1e9, 1.0, 300_000)
    assert exact_sum(values) / 2**UNIT_BITS == math.fsum(values)


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=40), st.data())
def test_moments_do_not_depend_on_the_cuts(values: list[float], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(values)))
    whole = Moments.of(np.array(values))
    assert Moments.of(np.array(values[cut:])) + Moments.of(np.array(values[:cut])) == whole
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    assert whole.mean == float(mean)
    variance = float(sum((value - mean) ** 2 for value in exact) / (len(exact) - 1))
    # Squares of tiny numbers are beyond a float, so that a little is lost of them.
    assert whole.deviation == pytest.approx(math.sqrt(variance), rel=1e-15, abs=1e-150)


def test_a_small_spread_on_a_large_mean_is_not_lost() -> None:
    frame = pd.DataFrame({"a": [1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16]})
    scaled = matrix(StandardScaler(True, True, "a", "scaled").fit_transform(shards_of(frame, 1)))
    assert scaled[:, 0] == pytest.approx(np.array([-6, -3, 3, 6]) / math.sqrt(30), rel=1e-15)


def test_texts_are_numbered_by_frequency_then_by_the_alphabet() -> None:
    frame = pd.DataFrame({"pet": ["dog", "cat", "dog", "ant", "emu", "cat"], "age": range(6)})
    indexer = StringIndexer(inputCol="pet")
    made = indexer.fit_transform(shards_of(frame, 2, 3)).to_pandas()
    assert indexer.labels == ["cat", "dog", "ant", "emu"]
    assert made["pet"].tolist() == [2, 1, 2, 3, 4, 1]
    assert made["age"].tolist() == frame["age"].tolist()


def test_texts_that_were_not_learnt_are_null() -> None:
    indexer = StringIndexer(inputCol="pet").fit(shards_of(pd.DataFrame({"pet": ["dog", None, "dog", "cat"]}), 2))
    made = indexer.transform(shards_of(pd.DataFrame({"pet": ["cat", "yak", None, "dog"]}), 2)).to_pandas()["pet"]
    assert made.isna().tolist() == [False, True, True, False]
    assert made.dropna().tolist() == [2, 1]
    assert made.dtype == "Int64"
    nothing = indexer.transform(shards_of(pd.DataFrame({"pet": ["yak", "emu"]}), 0)).to_pandas()["pet"]
    assert nothing.isna().all()


def test_categories_are_texts() -> None:
    frame = pd.DataFrame({"pet": pd.Categorical(["dog", "cat", "cat"], categories=["ant", "cat", "dog"])})
    indexer = StringIndexer("pet")
    assert indexer.fit_transform(shards_of(frame)).to_pandas()["pet"].tolist() == [2, 1, 1]
    assert indexer.labels == ["cat", "dog"]


def test_what_is_no_text_is_told() -> None:
    with pytest.raises(PlanError, match=r"column 'n' holds 1, which is of type int64.*astype\(str\)"):
        StringIndexer("n").fit(shards_of(pd.DataFrame({"n": [1, 2]})))
    with pytest.raises(MissingFieldError, match="no such column; there are n"):
        StringIndexer("m").fit(shards_of(pd.DataFrame({"n": ["a"]})))
    with pytest.raises(PlanError, match="StringIndexer has learnt nothing yet: call fit"):
        StringIndexer("n").transform(shards_of(pd.DataFrame({"n": ["a"]})))


def test_scalers_do_what_the_formulas_say_on_real_data() -> None:
    frame = load_diabetes(as_frame=True, scaled=False).data.reset_index(drop=True)
    columns, values = list(frame.columns), frame.to_numpy(np.float64)
    shards = shards_of(frame, 100, 100, 301)
    ranged = matrix(MinMaxScaler(-1, 3, columns, "scaled").fit_transform(shards))
    least, most = values.min(axis=0), values.max(axis=0)
    assert ranged == pytest.approx((values - least) / (most - least) * 4 - 1)
    assert ranged.min(axis=0).tolist() == [-1.0] * len(columns)
    assert ranged.max(axis=0).tolist() == [3.0] * len(columns)
    deviations = values.std(axis=0, ddof=1)
    standard = matrix(StandardScaler(inputCol=columns, outputCol="scaled").fit_transform(shards))
    assert standard == pytest.approx(values / deviations)
    centred = matrix(StandardScaler(True, False, columns, "scaled").fit_transform(shards))
    assert centred == pytest.approx(values - values.mean(axis=0))


def test_the_columns_that_were_there_stay() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "name": ["x", "y"]}, index=[7, 9])
    (made,) = MinMaxScaler(inputCol="a", outputCol="scaled").fit_transform(shards_of(frame)).collect()
    assert list(made.columns) == ["a", "name", "scaled"]
    assert made.index.tolist() == [7, 9]
    assert [row.tolist() for row in made["scaled"]] == [[0.0], [1.0]]


def test_what_one_scaler_makes_another_takes() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [5.0, 5.0, 8.0]})
    ranged = MinMaxScaler(0, 2, ["a", "b"], "first").fit_transform(shards_of(frame, 1))
    both = StandardScaler(True, True, ["first", "a"], "scaled").fit_transform(ranged)
    assert matrix(both).shape == (3, 3)
    assert matrix(both)[:, 0].tolist() == matrix(both)[:, 2].tolist() == [-1.0, 0.0, 1.0]


def test_constant_columns_are_not_divided_by_zero() -> None:
    frame = pd.DataFrame({"a": [0.1, 0.1, 0.1], "b": [3, 3, 3]})
    shards = shards_of(frame, 1)
    assert matrix(MinMaxScaler(2, 4, ["a", "b"], "scaled").fit_transform(shards)).tolist() == [[3.0, 3.0]] * 3
    assert matrix(StandardScaler(True, True, ["a", "b"], "scaled").fit_transform(shards)).tolist() == [[0.0, 0.0]] * 3
    assert matrix(StandardScaler(False, True, ["a", "b"], "scaled").fit_transform(shards)).tolist() == [[0.0, 0.0]] * 3
    assert matrix(StandardScaler(False, False, ["a", "b"], "scaled").fit_transform(shards)).tolist() == [[0.1, 3.0]] * 3


def test_what_is_missing_stays_missing() -> None:
    frame = pd.DataFrame({"a": [1.0, None, 3.0], "b": pd.array([None, None, None], "Int64")})
    scaled = matrix(MinMaxScaler(inputCol=["a", "b"], outputCol="scaled").fit_transform(shards_of(frame, 1)))
    assert np.isnan(scaled).tolist() == [[False, True], [True, True], [False, True]]
    assert scaled[[0, 2], 0].tolist() == [0.0, 1.0]


def test_empty_shards_are_scaled_too() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    made = MinMaxScaler(inputCol="a", outputCol="scaled").fit_transform(shards_of(frame, 0, 1, 1)).collect()
    assert [len(part) for part in made] == [0, 1, 0, 1]
    assert all("scaled" in part for part in made)
    with pytest.raises(PlanError, match="no rows to learn a scale from"):
        MinMaxScaler(inputCol="a", outputCol="scaled").fit(shards_of(frame.head(0)))


def test_columns_that_cannot_be_scaled_are_named() -> None:
    with pytest.raises(PlanError, match=r"column 'a' .*holds neither numbers nor arrays of one length"):
        StandardScaler(inputCol="a", outputCol="b").fit(shards_of(pd.DataFrame({"a": ["x", "y"]})))
    with pytest.raises(PlanError, match=r"column 'a' .*holds neither numbers nor arrays of one length"):
        StandardScaler(inputCol="a", outputCol="b").fit(shards_of(pd.DataFrame({"a": [[1.0], [1.0, 2.0]]})))
    with pytest.raises(PlanError, match="shard 1 has 2 values in a row, and those before it have 1"):
        StandardScaler(inputCol="a", outputCol="b").fit(shards_of(pd.DataFrame({"a": [[1.0], [1.0, 2.0]]}), 1))
    with pytest.raises(PlanError, match="there is inf among the values"):
        StandardScaler(inputCol="a", outputCol="b").fit(shards_of(pd.DataFrame({"a": [1.0, math.inf]})))
    with pytest.raises(MissingFieldError, match="no such column"):
        StandardScaler(inputCol="z", outputCol="b").fit(shards_of(pd.DataFrame({"a": [1.0]})))
    with pytest.raises(PlanError, match="outputCol is not said"):
        StandardScaler(inputCol="a")
    with pytest.raises(PlanError, match="min must be less than max"):
        MinMaxScaler(1, 1, "a", "b")


def program(cuts: tuple[int, ...]) -> bytes:
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"x": rng.normal(1e6, 3, 400), "y": rng.lognormal(0, 20, 400)})
    frame["pet"] = rng.choice(["ant", "bee", "cat", "dog"], 400)
    shards = StringIndexer("pet").fit_transform(shards_of(frame, *cuts))
    shards = MinMaxScaler(0, 1, ["x", "y"], "ranged").fit_transform(shards)
    shards = StandardScaler(True, True, ["x", "y", "ranged"], "scaled").fit_transform(shards)
    made = shards.to_pandas()
    return np.stack(made["scaled"].to_list()).tobytes() + made["pet"].to_numpy(np.int64).tobytes()


def test_cuts_change_no_bit() -> None:
    assert len({program(()), program((1,)), program((100, 200, 300)), program(tuple(range(0, 400, 7)))}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["dask", "ray", "spark"])
def test_engines_change_no_bit(engine: str) -> None:
    with shoal.init("local", workers=1, mode="thread"):
        expected = program((200,))
    with running(engine, workers=2):
        assert program((50, 300)) == expected
