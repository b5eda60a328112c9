"""A batch is the same batch in every format, in the same memory where the format allows it."""

from __future__ import annotations

import enum
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import shoal
from shoal import registry
from shoal.errors import MissingExtraError, SampleError
from shoal.pipeline import _arrow
from shoal.pipeline._arrow import to_arrow
from shoal.pipeline._collate import collate
from shoal.pipeline._memory import is_aligned
from shoal.pipeline._pandas import to_pandas
from shoal.pipeline._torch import to_torch
from support.formats import (
    ODD,
    Converter,
    Field,
    convert_odd,
    convert_samples,
    convert_tensors,
    convert_x64,
    live,
    load,
)

#: Loading TensorFlow takes seconds.
FORMATS = [
    "numpy",
    "torch",
    pytest.param("tensorflow", marks=pytest.mark.slow),
    "jax",
    "arrow",
    "pandas",
]
TENSORS = {"torch": "Tensor", "tensorflow": "EagerTensor", "jax": "ArrayImpl"}
NUMBERS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.fixture(scope="module")
def converters() -> Iterator[dict[str, Converter]]:
    made = {name: Converter(name) for name in registry.names("format")}
    yield made
    for converter in made.values():
        converter.close()


@pytest.fixture(params=FORMATS)
def convert(request: pytest.FixtureRequest, converters: dict[str, Converter]) -> Converter:
    return converters[request.param]


def samples_of(values: list[Any]) -> list[dict[str, Any]]:
    return [{"__key__": f"k{number}", "x": value} for number, value in enumerate(values)]


def column(*values: Any) -> Any:
    return collate(samples_of(list(values)))["x"]


def expected(to: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What comes back of an array of numbers."""
    if to == "jax" and array.dtype.itemsize // (1 + (array.dtype.kind == "c")) == 8:
        with np.errstate(all="ignore"):
            return array.astype(f"{array.dtype.kind}{array.dtype.itemsize // 2}")
    if to == "arrow" and array.dtype.kind == "c":
        return np.stack([array.real, array.imag], axis=-1)
    if to == "arrow" and array.dtype.kind == "b" and array.ndim > 1:
        return array.astype(np.uint8)
    return array


def assert_same(found: Any, wanted: np.ndarray[Any, Any]) -> None:
    found = np.array(found, wanted.dtype) if isinstance(found, list) else found
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(found, wanted)


# Arrays of numbers


@pytest.mark.parametrize("shape", [(), (7,), (2, 3, 5)])
def test_every_type_of_number_comes_back_and_tensors_share_its_memory(
    convert: Converter, shape: tuple[int, ...]
) -> None:
    arrays = {name: np.arange(4 * math.prod(shape)).reshape(4, *shape).astype(name) for name in NUMBERS}
    samples = [{"__key__": str(n), **{name: array[n] for name, array in arrays.items()}} for n in range(4)]
    found = convert(convert_samples, samples)
    for name, array in arrays.items():
        assert_same(found[name].value, expected(convert.name, array))
        assert found[name].kind == TENSORS.get(convert.name, found[name].kind)
        if shape:
            halved = convert.name == "jax" and name in ("i8", "u8", "f8", "c16")
            assert found[name].shared is not halved, name


def test_columns_of_scalars_share_memory_where_alignment_does_not_matter(convert: Converter) -> None:
    found = convert(convert_samples, samples_of([1.0, 2.0, 3.0]))["x"]
    assert_same(found.value, expected(convert.name, np.array([1.0, 2.0, 3.0])))
    assert found.shared or convert.name in ("tensorflow", "jax")


@pytest.mark.parametrize("name", ODD)
def test_arrays_of_any_layout_come_back(convert: Converter, name: str) -> None:
    array = ODD[name]()
    found: Field = convert(convert_odd, name)
    assert found.kind == TENSORS.get(convert.name, found.kind)
    if convert.name != "pandas":
        assert_same(found.value, array.astype("f4") if convert.name != "numpy" else array)
    elif len(array):
        assert_same(np.stack(found.value), array.astype("f4"))


@pytest.mark.parametrize(
    ("name", "sharing"),
    [
        ("aligned", {"numpy", "torch", "tensorflow", "jax", "arrow", "pandas"}),
        ("read-only", {"numpy", "jax", "arrow", "pandas"}),
        ("at 16 bytes", {"numpy", "torch", "arrow", "pandas"}),
        ("at 32 bytes", {"numpy", "torch", "arrow", "pandas"}),
        ("every second", {"numpy", "torch", "pandas"}),
        ("backwards", {"numpy", "pandas"}),
        ("big-endian", {"numpy"}),
    ],
)
def test_memory_is_shared_only_where_that_is_safe(convert: Converter, name: str, sharing: set[str]) -> None:
    assert convert(convert_odd, name).shared is (convert.name in sharing)


def test_memory_lives_as_long_as_what_was_made_of_it(convert: Converter) -> None:
    life = convert(live)
    assert life.shared
    assert life.kept
    assert life.right
    assert life.released


def test_tensors_of_read_only_arrays_can_be_written_to_without_harm() -> None:
    array = ODD["read-only"]()
    to_torch({"x": array})["x"].zero_()
    (tensor,) = to_torch({"x": [array]})["x"]
    tensor.zero_()
    assert array.sum() == 66


def test_bfloat16_comes_back(convert: Converter) -> None:
    array = np.arange(12).reshape(4, 3).astype(ml_dtypes.bfloat16)
    found = convert(convert_samples, samples_of(list(array)))["x"]
    wide = convert.name in ("arrow", "pandas")
    assert_same(np.stack(found.value) if wide else found.value, array.astype("f4") if wide else array)
    assert found.kind == TENSORS.get(convert.name, found.kind)


def test_jax_keeps_64_bits_if_told_to(converters: dict[str, Converter]) -> None:
    big = np.array([[2**60 + 1, -1], [3, 4]])
    found = converters["jax"](convert_x64, samples_of(list(big)))["x"]
    assert_same(found.value, big)
    assert found.shared
    found = converters["jax"](convert_samples, samples_of(list(big)))["x"]
    assert_same(found.value, big.astype("i4"))


def test_a_loader_gives_batches_of_the_format(convert: Converter, tmp_path: Path) -> None:
    with shoal.shards.TarWriter(tmp_path / "a.tar") as writer:
        for number in range(5):
            fields = {"cls": number, "npy": np.full((2, 3), number, ">f4"), "txt": f"n{number}", "bin": b"\0\xff\0"}
            writer.write({"__key__": f"k{number}", "json": {"n": number}, **fields})
    first, second = convert(load, str(tmp_path / "a.tar"), 3)
    assert "__mask__" not in first
    assert_same(second["__mask__"].value, np.array([True, True, False]))
    assert [first["cls"].value.tolist(), second["cls"].value.tolist()] == [[0, 1, 2], [3, 4, 4]]
    assert_same(np.stack(second["npy"].value), np.stack([np.full((2, 3), n, "f4") for n in (3, 4, 4)]))
    assert second["bin"].value == [b"\0\xff\0"] * 3
    assert second["json"].value == [{"n": 3}, {"n": 4}, {"n": 4}]
    text = [b"n3", b"n4", b"n4"] if convert.name == "tensorflow" else ["n3", "n4", "n4"]
    assert second["txt"].value == text
    assert second["__key__"].value == [word.replace(*"nk" if isinstance(word, str) else (b"n", b"k")) for word in text]
    assert convert.name != "arrow" or next(iter(first)) == "__key__"


# Lists


LISTS: dict[str, list[Any]] = {
    "text": ["a", "", "b\0", "é"],
    "numpy text": [np.str_("a"), np.str_("bc"), np.str_(""), np.str_("d")],
    "bytes": [b"a", b"", b"b\0", b"\xff"],
    "numpy bytes": [np.bytes_(b"a"), np.bytes_(b""), np.bytes_(b"bc"), np.bytes_(b"\xff")],
    "dicts": [{"a": 1}, {"a": 2}, {"a": None}, {"a": 4}],
    "nothing": [None, None, None, None],
    "text or nothing": ["a", None, "b", None],
    "lists": [[1], [2, 3], [], [4]],
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_keep_their_values(convert: Converter, name: str) -> None:
    values = LISTS[name]
    found = convert(convert_samples, samples_of(values))["x"]
    if convert.name == "tensorflow" and "text" in name and None not in values:
        values = [value.encode() for value in values]
    plain = [each.tolist() if isinstance(each, np.ndarray) else each for each in found.value]
    assert plain == values


@pytest.mark.parametrize("row", [(), (2,), (2, 3)])
@pytest.mark.parametrize("dtype", ["?", "i4", "f4", "f8", "c8"])
def test_arrays_of_different_lengths(convert: Converter, dtype: str, row: tuple[int, ...]) -> None:
    arrays = [np.arange(n * math.prod(row)).reshape(n, *row).astype(dtype) for n in (2, 0, 3)]
    found = convert(convert_samples, samples_of(arrays))["x"]
    kinds = {"tensorflow": "RaggedTensor", "arrow": "StructArray" if row else "ListArray", "pandas": "Series"}
    assert found.kind == kinds.get(convert.name, "list")
    for each, array in zip(found.value, arrays, strict=True):
        if convert.name == "arrow" and dtype == "c8":
            array = np.stack([array.real, array.imag], axis=-1)
        assert_same(each, array)


def test_arrays_of_different_shapes(convert: Converter) -> None:
    arrays = [np.arange(6, dtype="u1").reshape(shape) for shape in ((2, 3), (3, 2), (6, 1))]
    found = convert(convert_samples, samples_of(arrays))["x"]
    assert found.kind == {"arrow": "StructArray", "pandas": "Series"}.get(convert.name, "list")
    for each, array in zip(found.value, arrays, strict=True):
        assert_same(each, array)


def test_torch_makes_tensors_of_the_arrays_in_a_list() -> None:
    arrays = [np.zeros(2, "f4"), np.zeros(3, "f4"), None, np.zeros(2, "M8[s]")]
    one, two, nothing, date = to_torch({"x": arrays})["x"]
    assert isinstance(one, torch.Tensor)
    assert two.data_ptr() == arrays[1].ctypes.data
    assert nothing is None
    assert date is arrays[3]


def test_text_that_is_no_utf8_becomes_its_bytes_or_stays(convert: Converter) -> None:
    """Names of files may be any bytes; Python writes those that are no UTF-8 as surrogates."""
    samples = [{"__key__": "a\udcff", "x": "\ud800"}]
    if convert.name == "arrow":
        with pytest.raises(SampleError, match=r"field '__key__'.*surrogates"):
            convert(convert_samples, samples)
        return
    found = convert(convert_samples, samples)
    assert found["__key__"].value == ([b"a\xff"] if convert.name == "tensorflow" else ["a\udcff"])
    assert found["x"].value == ["\ud800"]


# Types that not every format has


def test_dates_stay_as_they_are_where_there_is_no_type_for_them(convert: Converter) -> None:
    dates = np.array(["2020-01-01", "NaT", "2021-02-03"], "M8[s]")
    found = convert(convert_samples, samples_of(list(dates)))["x"]
    assert_same(found.value, dates)
    kinds = {"arrow": "TimestampArray", "pandas": "Series"}
    assert found.kind == kinds.get(convert.name, "ndarray")
    found = convert(convert_samples, samples_of([dates, dates[::-1]]))["x"]
    assert_same(np.stack(found.value), np.stack([dates, dates[::-1]]))


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("M8[D]", "date32[day]"), ("M8[M]", "date32[day]"), ("M8[h]", "timestamp[s]"), ("M8[ms]", "timestamp[ms]"),
        ("M8[us]", "timestamp[us]"), ("M8[ns]", "timestamp[ns]"), ("m8[D]", "duration[s]"), ("m8[ns]", "duration[ns]"),
    ],
)  # fmt: skip
def test_arrow_has_dates_and_durations_of_every_unit(dtype: str, kind: str) -> None:
    array = np.array([1, 2, 3]).astype(dtype)
    made = to_arrow({"x": array})["x"]
    assert str(made.type) == kind
    assert (made.to_numpy(zero_copy_only=False) == array).all()


@pytest.mark.parametrize("dtype", ["longdouble", "clongdouble", "V3"])
def test_what_a_framework_has_no_type_for_stays_an_array(convert: Converter, dtype: str) -> None:
    array = np.zeros((2, 3), dtype)
    if convert.name == "arrow":
        with pytest.raises(SampleError, match="field 'x': Arrow has no column"):
            convert(convert_samples, samples_of(list(array)))
        return
    found = convert(convert_samples, samples_of(list(array)))["x"]
    assert_same(np.stack(found.value), array)
    assert found.kind == ("Series" if convert.name == "pandas" else "ndarray")


def test_records(convert: Converter) -> None:
    array = np.array([(1, [2, 3]), (4, [5, 6])], [("a", ">i4"), ("b", "f4", (2,))])
    found = convert(convert_samples, samples_of(list(array)))["x"]
    if convert.name == "arrow":
        assert found.value == [{"a": 1, "b": [2.0, 3.0]}, {"a": 4, "b": [5.0, 6.0]}]
    else:
        assert [(int(each["a"]), each["b"].tolist()) for each in found.value] == [(1, [2.0, 3.0]), (4, [5.0, 6.0])]


def test_arrays_of_text(convert: Converter) -> None:
    text = np.array([["a", "bc"], ["", "é"]])
    found = convert(convert_samples, samples_of(list(text)))["x"]
    plain = [each if isinstance(each, list) else each.tolist() for each in found.value]
    wanted = text.tolist()
    assert plain == ([[w.encode() for w in row] for row in wanted] if convert.name == "tensorflow" else wanted)


def test_arrow_columns_grow_large_offsets_when_they_must(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = {"s": ["abc", "d"], "b": [b"abc", b"d"], "a": [np.zeros(3), np.zeros(1)]}
    assert [str(kind) for kind in to_arrow(batch).schema.types] == ["string", "binary", "list<item: double>"]
    monkeypatch.setattr(_arrow, "_OFFSETS", 3)
    large = to_arrow(batch)
    assert [str(kind) for kind in large.schema.types] == ["large_string", "large_binary", "large_list<item: double>"]
    assert large.to_pylist() == [{"s": "abc", "b": b"abc", "a": [0.0] * 3}, {"s": "d", "b": b"d", "a": [0.0]}]


def test_arrow_takes_arrays_inside_dicts() -> None:
    values = [{"box": np.ones((2, 2), "f4"), "n": np.array(3)}, {"box": np.zeros((1, 2), ">f4"), "n": None}]
    made = to_arrow({"x": values})["x"]
    assert made.to_pylist() == [{"box": [[1.0, 1.0], [1.0, 1.0]], "n": 3}, {"box": [[0.0, 0.0]], "n": None}]
    assert made.type.field("box").type == pa.list_(pa.list_(pa.float32()))


@pytest.mark.parametrize("values", [[1, "a"], [2**64, 1], [{1: 2}, {}], [object(), None], [True, 2]])
def test_values_that_arrow_cannot_hold_are_named(values: list[Any]) -> None:
    with pytest.raises(SampleError, match=r"field 'x': Arrow has no column.*map\(\)") as caught:
        to_arrow({"__key__": ["a", "b"], "x": values})
    assert caught.value.field == "x"


def test_pandas_infers_nothing_but_text() -> None:
    frame = to_pandas({"__key__": ["a", "b"], "n": [1, None], "s": ["x", "y"], "big": [2**70, 1], "d": [{}, {"a": 1}]})
    assert [str(dtype) for dtype in frame.dtypes] == ["str", "object", "str", "object", "object"]
    assert frame["n"].tolist() == [1, None]
    assert frame["big"].tolist() == [2**70, 1]


def test_pandas_columns_of_arrays_are_views() -> None:
    array = np.arange(12.0).reshape(4, 3)
    frame = to_pandas({"__key__": list("abcd"), "x": array})
    assert all(np.shares_memory(row, array) for row in frame["x"])


# Everything at once


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), dtype=st.sampled_from(NUMBERS), count=st.integers(1, 5))
def test_any_array_comes_back(convert: Converter, data: st.DataObject, dtype: str, count: int) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    array = data.draw(hnp.arrays(dtype, (count, *shape)))
    found = convert(convert_samples, samples_of(list(array)))["x"]
    value = np.stack(found.value) if isinstance(found.value, list) else found.value
    assert_same(value, expected(convert.name, array))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(), dtype=st.sampled_from(["?", "i2", "u8", "f4", "f8"]), row=hnp.array_shapes(min_dims=0, max_dims=2)
)
def test_any_lengths_come_back(convert: Converter, data: st.DataObject, dtype: str, row: tuple[int, ...]) -> None:
    lengths = data.draw(st.lists(st.integers(0, 4), min_size=2, max_size=5).filter(lambda ns: len(set(ns)) > 1))
    arrays = [data.draw(hnp.arrays(dtype, (length, *row))) for length in lengths]
    found = convert(convert_samples, samples_of(arrays))["x"]
    for each, array in zip(found.value, arrays, strict=True):
        assert_same(each, array)


# Tensors in samples


@pytest.mark.parametrize("library", ["torch", "jax", pytest.param("tensorflow", marks=pytest.mark.slow)])
def test_tensors_in_samples_are_stacked_by_their_own_library(converters: dict[str, Converter], library: str) -> None:
    converter = converters[library]
    found = converter(convert_tensors, library, [(2, 3), (2, 3)])
    assert found.kind == TENSORS[library]
    assert_same(found.value, np.stack([np.zeros((2, 3), "f4"), np.ones((2, 3), "f4")]))
    assert converter(convert_tensors, library, [(2, 3), (3, 2)]).kind == "list"


def test_tensors_of_another_library_are_converted(convert: Converter) -> None:
    found = convert(convert_tensors, "torch", [(2, 3), (2, 3)])
    assert found.kind == {**TENSORS, "numpy": "Tensor"}.get(convert.name, found.kind)
    value = found.value.numpy() if convert.name == "numpy" else np.stack(found.value)
    assert_same(value, np.stack([np.zeros((2, 3), "f4"), np.ones((2, 3), "f4")]))


# Collating


class Color(enum.IntEnum):
    RED = 1
    BLUE = 2


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], "int64"),
        ([1.5, 2.5], "float64"),
        ([1, 2.5], "float64"),
        ([True, False], "bool"),
        ([True, np.bool_(False)], "bool"),
        ([1j, 2.0], "complex128"),
        ([Color.RED, Color.BLUE], "int64"),
        ([np.float32(1), np.float32(2)], "float32"),
        ([np.float32(1), np.float64(2)], "float64"),
        ([np.int8(1), np.uint8(2)], "int16"),
        ([np.uint64(2**63), np.uint64(1)], "uint64"),
        ([np.int64(1), 2], "int64"),
        ([np.float16(1), 2], "float64"),
        ([ml_dtypes.bfloat16(1), ml_dtypes.bfloat16(2)], "bfloat16"),
        ([np.datetime64("2020-01-01"), np.datetime64("NaT")], "datetime64[D]"),
        ([np.timedelta64(1, "s"), np.timedelta64(2, "s")], "timedelta64[s]"),
        ([np.array(1, "i2"), np.array(2, "i2")], "int16"),
        ([np.array(1, ">i2"), np.array(2, ">i2")], "int16"),
        ([np.zeros(0), np.zeros(0)], "float64"),
        ([np.zeros((3, 0, 2), "f4"), np.zeros((3, 0, 2), "f4")], "float32"),
        ([np.zeros(2, ">f4"), np.zeros(2, ">f4")], "float32"),
        ([np.array(["a", "bc"]), np.array(["d", "ef"])], "<U2"),
        ([np.zeros(2, "f4").view(np.matrix), np.zeros(2, "f4").view(np.matrix)], "float32"),
    ],
)
def test_these_are_stacked(values: list[Any], dtype: str) -> None:
    stacked = column(*values)
    assert type(stacked) is np.ndarray
    assert stacked.dtype == np.dtype(dtype if dtype != "bfloat16" else ml_dtypes.bfloat16)
    assert stacked.shape == (2, *np.shape(values[0]))
    np.testing.assert_array_equal(stacked, np.array([np.asarray(value) for value in values]))
    assert stacked.flags.writeable


@pytest.mark.parametrize(
    "values",
    [
        [True, 2],
        [1, True],
        [True, 2.5],
        [np.bool_(True), np.int64(2)],
        [2**63, 1],
        [2**64],
        [-(2**63) - 1],
        [2**63, -1],
        [np.int64(1), np.uint64(2**63)],
        [2**53 + 1, 0.5],
        [10**400, 0.5],
        [None, 1],
        [1, None],
        ["a", "b"],
        [b"a", b"b"],
        [np.str_("a"), np.str_("b")],
        [np.bytes_(b"a"), np.bytes_(b"b")],
        ["a", 1],
        [1, "a"],
        [{"a": 1}, {"a": 2}],
        [[1, 2], [3, 4]],
        [memoryview(b"ab"), memoryview(b"cd")],
        [np.datetime64("2020-01-01"), np.datetime64(10**9, "Y")],
        [np.datetime64("2020-01-01"), np.timedelta64(1, "D")],
        [np.zeros(2), np.zeros(3)],
        [np.zeros(2), np.zeros(2, "f4")],
        [np.zeros(2), None],
        [np.zeros(2), [0.0, 0.0]],
        [np.array(1), 1],
        [np.array([1, None], object), np.array([2, "x"], object)],
        [np.array([(1, None)], [("a", "i4"), ("b", "O")]), np.array([(1, None)], [("a", "i4"), ("b", "O")])],
        [np.zeros(2, [("a", "i4")]), np.zeros(2, [("b", "i4")])],
        [np.zeros(1, "V3")[0], np.zeros(1, "V4")[0]],
    ],
)
def test_these_stay_a_list_of_what_they_were(values: list[Any]) -> None:
    kept = column(*values)
    assert type(kept) is list
    assert all(one is other for one, other in zip(kept, values, strict=True))


def test_masked_arrays_keep_their_masks() -> None:
    values = [np.ma.masked_array([1, 2], [True, False]) for _ in range(2)]
    kept = column(*values)
    assert kept[0] is values[0]
    assert kept[1].mask.tolist() == [True, False]


def test_records_are_stacked() -> None:
    rows = np.array([(1, 2.0), (3, 4.0)], [("a", ">i4"), ("b", "f4")])
    for stacked in (column(rows[0], rows[1]), column(rows[:1], rows[1:])[:, 0]):
        assert stacked.tolist() == [(1, 2.0), (3, 4.0)]
        assert stacked.dtype == np.dtype([("a", "i4"), ("b", "f4")])


def test_memory_maps_and_read_only_arrays_become_memory_of_the_batch(tmp_path: Path) -> None:
    np.arange(6.0).tofile(tmp_path / "a.bin")
    mapped = np.memmap(tmp_path / "a.bin", dtype="f8", mode="r")
    for stacked in (column(mapped[:3], mapped[3:]), column(np.asarray(mapped[:3]), np.asarray(mapped[3:]))):
        assert type(stacked) is np.ndarray
        assert stacked.tolist() == [[0, 1, 2], [3, 4, 5]]
        stacked[:] = 0
    assert mapped.tolist() == list(range(6))


@pytest.mark.parametrize("shape", [(1,), (3,), (5, 7), (224, 224, 3)])
@pytest.mark.parametrize("dtype", ["u1", "f4", "f8"])
def test_stacked_arrays_begin_where_every_framework_can_share_them(shape: tuple[int, ...], dtype: str) -> None:
    assert is_aligned(column(*[np.zeros(shape, dtype)] * 3))


# Libraries


@pytest.mark.parametrize(
    ("to", "module", "extra"),
    [
        ("torch", "torch", "torch"),
        ("tensorflow", "tensorflow", "tensorflow"),
        ("jax", "jax", "jax"),
        ("arrow", "pyarrow", "tables"),
        ("pandas", "pandas", "tables"),
    ],
)
def test_a_missing_library_says_its_pip_command(
    monkeypatch: pytest.MonkeyPatch, to: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    words = rf'to="{to}" needs {module}, which is not installed: pip install "shoal\[{extra}\]"'
    with pytest.raises(MissingExtraError, match=words):
        registry.load("format", to)({"__key__": ["a"], "x": np.zeros(1)})


def test_formats_are_named_and_load_no_library_before_the_first_batch() -> None:
    program = """
import sys
from shoal import registry
names = registry.names("format")
for name in names:
    registry.load("format", name)
heavy = {"jax", "pandas", "pyarrow", "tensorflow", "torch"}
print(" ".join(names), sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["arrow", "jax", "numpy", "pandas", "tensorflow", "torch", "[]"]
