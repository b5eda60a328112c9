"""The store: pandas of all types. Frames, series and indexes lie where they were put, and can be written to."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import dateutil.tz
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import pandas as frames

from shoal.errors import StoreError
from shoal.store import Store
from support.store import own_store, where

EQUAL = pd.testing.assert_frame_equal
DATES = pd.to_datetime(["2020-01-01", "NaT", "2020-07-03"])
ROWS = 210_000  # more than is copied


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with own_store("500MB") as made:
        yield made


def again(store: Store, value: Any) -> Any:
    name = store.put(value)
    try:
        return store.get(name)
    finally:
        store.delete(name)


def arrow(kind: pa.DataType) -> pd.ArrowDtype:
    return pd.ArrowDtype(kind)


COLUMNS: dict[str, Any] = {
    "int8": pd.Series([1, 2, 3], dtype="int8"),
    "uint64": pd.Series([1, 2, 2**64 - 1], dtype="uint64"),
    "float": pd.Series([1.0, np.nan, 3]),
    "float16": pd.Series([1, 2, 3], dtype="float16"),
    "complex": pd.Series([1j, 2, 3]),
    "bool": pd.Series([True, False, True]),
    "str": pd.Series(["a", None, "c"]),
    "string[python]": pd.Series(["a", None, "c"], dtype="string[python]"),
    "string[pyarrow]": pd.Series(["a", None, "c"], dtype="string[pyarrow]"),
    "str in python": pd.Series(["a", None, "c"], dtype=pd.StringDtype("python", na_value=np.nan)),
    "texts as objects": pd.Series(["a", "b", "c"], dtype=object),
    "objects": pd.Series([1, "x", None], dtype=object),
    "surrogates": pd.Series(["\udc80", "a", "b"], dtype=object),
    "lists": pd.Series([[1], [2, 3], []]),
    "dicts": pd.Series([{"a": 1}, {}, {"b": 2}]),
    "category": pd.Series(["a", "b", None], dtype="category"),
    "ordered category": pd.Series(pd.Categorical(["a", "b", "a"], categories=["b", "a", "c"], ordered=True)),
    "category of dates": pd.Series(pd.Categorical(DATES)),
    "dates": pd.Series(DATES),
    "dates in seconds": pd.Series(DATES).astype("M8[s]"),
    "dates in Berlin": pd.Series(DATES.tz_localize("Europe/Berlin")),
    "dates in UTC": pd.Series(DATES.tz_localize("UTC")),
    "dates an hour off": pd.Series(DATES.tz_localize(datetime.timezone(datetime.timedelta(hours=1)))),
    "durations": pd.Series(pd.to_timedelta([1, None, 3], unit="s")),
    "months": pd.Series(pd.period_range("2020", periods=3, freq="M")),
    "quarters": pd.Series(pd.period_range("2020", periods=3, freq="Q-JAN")),
    "intervals": pd.Series(pd.interval_range(0, 3)),
    "closed intervals": pd.Series(pd.arrays.IntervalArray.from_breaks([0.0, 1, 2, 3], closed="both")),
    "missing intervals": pd.Series(pd.arrays.IntervalArray.from_tuples([(0, 1), None, (2, 3)])),
    "intervals of dates": pd.Series(pd.arrays.IntervalArray.from_breaks(pd.date_range("2020", periods=4))),
    "Int64": pd.Series([1, None, 3], dtype="Int64"),
    "UInt8": pd.Series([1, None, 3], dtype="UInt8"),
    "Float32": pd.Series([1, None, 3], dtype="Float32"),
    "boolean": pd.Series([True, None, False], dtype="boolean"),
    "sparse": pd.Series(pd.arrays.SparseArray([0, 0, 1])),
    "sparse floats": pd.Series(pd.arrays.SparseArray([np.nan, 1.0, np.nan])),
    "sparse truths": pd.Series(pd.arrays.SparseArray([True, False, False], fill_value=False)),
    "sparse in blocks": pd.Series(pd.arrays.SparseArray([0, 0, 1], kind="block")),
    "Arrow int": pd.Series([1, None, 3], dtype="int64[pyarrow]"),
    "Arrow list": pd.Series([[1], None, [2, 3]], dtype=arrow(pa.list_(pa.int64()))),
    "Arrow time": pd.Series([1, None, 3], dtype=arrow(pa.timestamp("us", "UTC"))),
    "Arrow struct": pd.Series([{"a": 1}, None, {"a": 2}], dtype=arrow(pa.struct([("a", pa.int64())]))),
    "Arrow text": pd.Series(["a", None, "b"], dtype=arrow(pa.string())),
    "Arrow dictionary": pd.Series(["a", None, "b"], dtype=arrow(pa.dictionary(pa.int32(), pa.string()))),
}
#: Those that pandas cannot make an index of, or cannot assign to.
NO_INDEX = {"lists", "dicts", "Arrow list", "Arrow struct", "float16"}
NO_WRITING = {
    "sparse",
    "sparse floats",
    "sparse truths",
    "sparse in blocks",
    "Arrow list",
    "Arrow struct",
    "lists",
    "dicts",
}
#: Those whose values are objects of Python's, or are taken apart, so that there is no array of them in memory.
COPIED = {
    "string[python]", "str in python", "texts as objects", "objects", "surrogates", "lists", "dicts",
    "intervals", "closed intervals", "missing intervals", "intervals of dates",
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_all_types_come_back(store: Store, name: str) -> None:
    value = COLUMNS[name]
    for each in (value, value[:0], value.rename("named")):
        pd.testing.assert_series_equal(again(store, each), each)
        EQUAL(again(store, each.to_frame("x")), each.to_frame("x"))
    found = again(store, value.array)
    pd.testing.assert_series_equal(pd.Series(found, dtype=value.dtype), value)


@pytest.mark.parametrize("name", [name for name in COLUMNS if name not in NO_INDEX])
def test_indexes_of_all_types_come_back(store: Store, name: str) -> None:
    index = pd.Index(COLUMNS[name], name=("a", 1))
    pd.testing.assert_index_equal(again(store, index), index, exact=True)
    EQUAL(again(store, pd.DataFrame({"x": [1, 2, 3]}, index=index)), pd.DataFrame({"x": [1, 2, 3]}, index=index))


def long(name: str, rows: int) -> Any:
    """Repeat a column."""
    value = COLUMNS[name]
    return value.iloc[np.arange(rows) % 3].reset_index(drop=True)


@pytest.mark.parametrize("name", [name for name in COLUMNS if name not in NO_WRITING])
def test_a_column_can_be_written_to_however_it_was_come_by_and_the_store_stays_what_it_is(
    store: Store, name: str
) -> None:
    whole = long(name, 9000).to_frame("x")
    number = store.put(whole)
    expected = whole["x"].copy()
    expected.iloc[:2] = expected.iloc[2]
    ways: list[Callable[[], Any]] = [
        lambda: store.get(number)["x"],
        lambda: store.get(number)[["x"]]["x"],
        lambda: store.get(number).reset_index(drop=True)["x"],
        lambda: store.get(number).copy(deep=False)["x"],
        lambda: store.get(number).iloc[:]["x"],
        lambda: store.get(store.put(whole["x"])),
    ]
    for way in ways:
        column = way()
        column.iloc[0] = column.iloc[2]
        column.iloc[1] = column.iloc[2]
        pd.testing.assert_series_equal(column, expected)
    frame = store.get(number)
    frame.iloc[0, 0] = frame.iloc[2, 0]
    frame["y"] = 1
    del frame["x"]
    EQUAL(store.get(number), whole)
    store.delete(number)


def test_frames_can_be_changed_as_others_can(store: Store) -> None:
    whole = pd.DataFrame({"a": np.arange(ROWS), "b": np.arange(float(ROWS))}, index=np.arange(ROWS) * 2)
    number = store.put(whole)

    def changed(frame: pd.DataFrame) -> pd.DataFrame:
        frame.loc[4, "b"] = 5
        frame.loc[frame["a"] > 10, "a"] = 0
        frame += 1
        frame = frame.sort_values("b", ascending=False).reset_index()
        frame.iloc[0, 0] = 9
        return frame.fillna(0)

    EQUAL(changed(store.get(number)), changed(whole.copy()))
    numbers = pd.Series(store.get(number).index)
    numbers.iloc[0] = 7
    EQUAL(store.get(number), whole)


LEVELS = pd.MultiIndex.from_tuples([("a", 1), ("b", 2), ("a", 3)], names=["level", None])
FRAMES = {
    "levels of rows": pd.DataFrame({"x": [1, 2, 3]}, index=LEVELS),
    "levels of columns": pd.DataFrame(np.ones((2, 3)), columns=LEVELS),
    "one level of columns": pd.DataFrame([[1]], columns=pd.MultiIndex.from_arrays([["x"]])),
    "the same name twice": pd.DataFrame([[1, "a"]], columns=["x", "x"]),
    "nothing": pd.DataFrame(),
    "no columns": pd.DataFrame(index=[1, 2]),
    "no rows": pd.DataFrame(columns=["a", "b"]),
    "none of its rows": pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}).iloc[0:0],
    "numbered columns": pd.DataFrame({1: [1], 2: [2]}),
    "all kinds of labels": pd.DataFrame({1: [1], "a": [2], None: [3]}),
    "labels as objects": pd.DataFrame([[1, 2]], columns=pd.Index(["a", "b"], dtype=object)),
    "a label that is missing": pd.DataFrame([[1, 2]], columns=["a", np.nan]),
    "dates as columns": pd.DataFrame([[1, 2]], columns=pd.date_range("2020", periods=2)),
    "categories as columns": pd.DataFrame([[1, 2]], columns=pd.CategoricalIndex(["a", "b"])),
    "range as columns": pd.DataFrame(np.ones((2, 2))),
    "reindexed": pd.DataFrame({"a": [1, 2]}, index=["x", "y"]).reindex(["x", "z"]),
    "an index of a column": pd.DataFrame({"a": [1, 2], "b": [3, 4]}).set_index("a"),
    "a range": pd.DataFrame({"a": [1, 2]}, index=pd.RangeIndex(5, 9, 2, name="r")),
    "named axes": pd.DataFrame({"a": [1, 2]}).rename_axis(columns="cc", index="ii"),
    "days": pd.DataFrame({"a": [1, 2]}, index=pd.date_range("2020", periods=2, freq="D", tz="UTC")),
    "business days": pd.DataFrame({"a": [1, 2]}, index=pd.date_range("2024-01-01", periods=2, freq="B")),
    "hours": pd.DataFrame({"a": [1, 2]}, index=pd.timedelta_range("1h", periods=2, freq="h")),
    "mixed": pd.DataFrame({"a": [1], "b": ["x"], "c": [1.5], "d": [True]}),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_of_all_shapes_come_back(store: Store, name: str) -> None:
    value = FRAMES[name]
    found = again(store, value)
    EQUAL(found, value, check_freq=True, check_column_type=True)
    assert type(found.index) is type(value.index)
    assert type(found.columns) is type(value.columns)


def test_any_frame_comes_back(store: Store) -> None:
    columns = [
        frames.column("i", elements=st.integers(-(2**63), 2**63 - 1), dtype="int64"),
        frames.column("f", elements=st.floats(), dtype="float64"),
        frames.column("b", dtype=bool),
        frames.column("t", elements=st.text(), dtype=object),
        frames.column("d", dtype="datetime64[ns]"),
    ]

    @given(frames.data_frames(columns, index=frames.range_indexes() | frames.indexes(dtype="int64")))
    def holds(frame: pd.DataFrame) -> None:
        EQUAL(again(store, frame), frame)

    holds()


def test_attributes_and_places_in_a_larger_frame_are_kept(store: Store) -> None:
    frame = pd.DataFrame({"a": [1]})
    frame.attrs = {"unit": "m", "more": [1, {"x": 2}]}
    assert again(store, frame).attrs == frame.attrs
    meta = store.get_meta(store.put(frame, partition_index=(3, 0), row_batch_index=2))
    assert (meta["partition_index_row_"], meta["partition_index_column_"], meta["row_batch_index_"]) == (3, 0, 2)
    assert store.get_meta(store.put(frame))["partition_index_row_"] == -1


def test_arrays_in_cells_are_one_array_where_they_can_be(store: Store) -> None:
    equal = pd.DataFrame({"x": [np.full((30, 40), number, "f4") for number in range(50)], "y": range(50)})
    number = store.put(equal)
    assert store.get_meta(number)["__values_-value-0"]["cells_"]["shape_"] == [50, 30, 40]
    found = store.get(number)["x"]
    for one, other in zip(found, equal["x"], strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
        assert where(one) == where(found[0]) != ""
    again_put = store.put(store.get(number))
    assert store.get_meta(again_put)["__values_-value-0"]["cells_"]["buffer_"].id == (
        store.get_meta(number)["__values_-value-0"]["cells_"]["buffer_"].id
    )


@pytest.mark.parametrize(
    "cells",
    [[np.zeros(n) for n in range(5)], [np.zeros(3), None], [np.zeros(3), np.zeros(3, "i4")], [np.array(["a"]), "b"]],
    ids=["lengths", "missing", "types", "texts"],
)
def test_arrays_of_several_shapes_in_cells(store: Store, cells: list[Any]) -> None:
    value = pd.Series(cells)
    for one, other in zip(again(store, value), cells, strict=True):
        assert type(one) is type(other)
        assert np.array_equal(one, other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)


@pytest.mark.parametrize("name", [name for name in COLUMNS if name not in COPIED and "sparse" not in name])
def test_large_columns_lie_where_they_were_put(store: Store, name: str) -> None:
    number = store.put(long(name, ROWS).to_frame("x"))
    found = memory(store.get(number)["x"].array)
    assert where(found) == store.folder.transient(number)
    store.delete(number)


def memory(column: Any) -> Any:
    """Give the memory of the values of a column."""
    for name in ("_pa_array", "_data", "_codes", "_ndarray"):
        found = getattr(column, name, None)
        if isinstance(found, pa.ChunkedArray):
            chunk = found.chunk(0)
            chunk = chunk.indices if isinstance(chunk, pa.DictionaryArray) else chunk
            return max((buffer for buffer in chunk.buffers() if buffer is not None), key=lambda buffer: buffer.size)
        if isinstance(found, np.ndarray):
            return found
    return column.to_numpy()


def test_large_indexes_lie_where_they_were_put(store: Store) -> None:
    levels = pd.MultiIndex.from_arrays([np.arange(ROWS), np.arange(ROWS) % 7])
    index = store.get(store.put(levels))
    assert all(where(np.asarray(codes)).startswith(store.folder.path) for codes in index.codes[:1])
    numbers = store.get(store.put(pd.DataFrame({"x": 1}, index=np.arange(ROWS) * 3))).index
    assert where(numbers.to_numpy()).startswith(store.folder.path)


def test_what_the_store_cannot_name_is_refused_with_what_to_do(store: Store) -> None:
    zone = pd.Series(DATES.tz_localize(dateutil.tz.tzoffset("mine", 3600)))
    with pytest.raises(StoreError, match=r"whose zone has no name; convert them: tz_convert"):
        store.put(zone)
    with pytest.raises(StoreError, match=r"no builder for datetime\.date"):
        store.put(pd.Series([datetime.date(2020, 1, 1)]))
    assert store.get(store.put(pd.Series([datetime.date(2020, 1, 1)]), trust=True), trust=True)[0].year == 2020
