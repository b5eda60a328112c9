"""The store: numbers, texts, containers, numpy and scipy. What is got is what was put, and large arrays are no copy."""

from __future__ import annotations

import datetime
import decimal
import gc
import math
import pathlib
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

import hypothesis.extra.numpy as arrays
import ml_dtypes
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ObjectNotFoundError, StoreError
from shoal.store import ObjectID, Store
from support.store import own_store, used, where


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with own_store("500MB") as made:
        yield made


def again(store: Store, value: Any, **options: Any) -> Any:
    return store.get(store.put(value, **options))


def same(one: Any, other: Any) -> bool:
    """Compare values and their types; what is not a number is equal to what is not either."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return (one == other and math.copysign(1, one) == math.copysign(1, other)) or (one != one and other != other)
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    return bool(one == other)


# Numbers, texts, bytes, containers.

PLAIN = [
    1.234, "abcde", (), (1,), (1, "2", 3.456, 4444, "5.5.5.5.5.5.5"), None, True, False, 0, -1, 2**64, 10**5000,
    -(10**5000), math.nan, math.inf, -math.inf, -0.0, 1e-320, 1j, complex(math.nan, -math.inf), "",
    "ümläut \0 \U0001f41f", "\udc80 alone", "x" * 10**6, [], [1, [2.5, (3, {"4"})], None], {},
    {"a": 1, "b": {"c": [True]}}, {1: 2, (1, "x"): None, None: 3.5, False: 0},
    OrderedDict(b=1, a=2), set(), {1, "x", None},
    frozenset([1, (2, 3)]), [10**5000, 1], {"big": 10**5000}, {10**5000: 1}, [math.nan, math.inf],
    list(range(9999)), [{"d": [{"e": ()}]}] * 3,
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
def test_plain_values_come_back_as_they_are(store: Store, value: Any) -> None:
    assert same(again(store, value), value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner) | st.lists(inner).map(tuple),
    max_leaves=20,
)


def test_any_tree_of_plain_values_comes_back(store: Store) -> None:
    @given(VALUES)
    def holds(value: Any) -> None:
        name = store.put(value)
        assert same(store.get(name), value)
        store.delete(name)

    holds()


@pytest.mark.parametrize(
    "value", [b"abcde", b"", bytearray(b"xyz"), bytes(10**6), memoryview(b"abcdef")[::2], memoryview(np.ones((2, 3)))]
)
def test_bytes_come_back_as_a_read_only_view_of_just_as_many(store: Store, value: Any) -> None:
    name = store.put(value)
    found = store.get(name)
    assert isinstance(found, memoryview)
    assert found.readonly
    assert found.tobytes() == memoryview(value).tobytes()
    assert store.get_meta(name)["length"] == found.nbytes == memoryview(value).nbytes
    assert name.is_blob


def test_bytes_in_containers_are_views_too(store: Store) -> None:
    assert again(store, [b"abc", {"k": bytearray(b"x")}]) == [b"abc", {"k": b"x"}]


def test_ids_in_containers_are_links(store: Store) -> None:
    member = store.put(np.arange(10**5))
    name = store.put({"all": [member, 1], "one": member})
    assert store.get_meta(name).nbytes == 0
    assert store.get(name)["all"][0].sum() == store.get(name)["one"].sum() == sum(range(10**5))
    assert store.put(member) == member
    lost = store.put([ObjectID(12345)])
    with pytest.raises(ObjectNotFoundError, match="o0000000000003039"):
        store.get(lost)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        decimal.Decimal(1),
        datetime.date(2020, 1, 1),
        deque(),
        pathlib.Path("x"),
        range(3),
        ...,
        len,
        ValueError(1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_needs_trust(store: Store, value: Any) -> None:
    with pytest.raises(
        StoreError, match=rf"no builder for .*{type(value).__name__}; register one, or put it with trust"
    ):
        store.put([value])
    assert type(again_with_trust(store, [value])[0]) is type(value)


def again_with_trust(store: Store, value: Any) -> Any:
    return store.get(store.put(value, trust=True), trust=True)


# numpy.

RECORDS = np.array([(1, 2.5, "a"), (3, -0.0, "")], [("a", "i4"), ("b", "f8"), ("c", "U3")])
ARRAYS = {
    "three axes": np.arange(120.0).reshape(4, 5, 6),
    "Fortran": np.asfortranarray(np.arange(20.0).reshape(4, 5)),
    "Fortran of three axes": np.asfortranarray(np.arange(24, dtype="i2").reshape(2, 3, 4)),
    "no axis": np.array(2.5),
    "no axis, int": np.array(7),
    "(0, 1)": np.zeros((0, 1)),
    "(0, 1, 2, 3)": np.zeros((0, 1, 2, 3)),
    "(0, 1, 2, 3) int": np.zeros((0, 1, 2, 3), int),
    "texts": np.array(["", "x", "yz", "uvw"]),
    "bytes": np.array([b"", b"ab"]),
    "void": np.array([b"abcde", b"\0"], "V5"),
    "records": RECORDS,
    "aligned records": np.zeros(3, np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    "records of arrays": np.arange(18, dtype="i1").reshape(3, 6).view([("a", "i1", (2, 3))])[:, 0],
    "records with gaps": np.zeros(2, {"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 8], "itemsize": 32}),
    "dates": np.array(["2020-01-01", "NaT"], "M8[s]"),
    "durations": np.array([1, -2], "m8[ns]"),
    "big endian": np.arange(3, dtype=">i4"),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j, complex("nan")]),
    "long": np.ones(3, np.longdouble),
    "half": np.ones(3, np.float16),
    "bfloat16": np.arange(5).astype(ml_dtypes.bfloat16),
    "float8": np.arange(5).astype(ml_dtypes.float8_e4m3fn),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_come_back_to_the_last_byte(store: Store, name: str) -> None:
    value = ARRAYS[name]
    found = again(store, value)
    assert (found.dtype, found.shape, found.tobytes()) == (value.dtype, value.shape, value.tobytes())
    assert found.flags.f_contiguous == value.flags.f_contiguous
    assert not found.flags.writeable


def test_any_array_of_numbers_comes_back(store: Store) -> None:
    kinds = arrays.scalar_dtypes() | arrays.unicode_string_dtypes(max_len=5) | arrays.array_dtypes()

    @given(arrays.arrays(kinds, arrays.array_shapes(min_dims=0, min_side=0)), st.booleans())
    def holds(value: Any, fortran: bool) -> None:
        value = np.asfortranarray(value) if fortran else value
        name = store.put(value)
        found = store.get(name)
        assert (found.dtype, found.shape, found.tobytes()) == (value.dtype, value.shape, value.tobytes())
        store.delete(name)

    holds()


@pytest.mark.parametrize(
    "value", [np.arange(100).reshape(10, 10)[::2, ::3], np.arange(10)[::-1], np.ones((3, 4)).T[1:]]
)
def test_arrays_with_gaps_come_back_without(store: Store, value: Any) -> None:
    found = again(store, value)
    assert found.flags.c_contiguous
    assert np.array_equal(found, value)
    assert found.dtype == value.dtype


def test_records_in_another_order_are_packed(store: Store) -> None:
    found = again(store, RECORDS[["c", "a"]])
    assert found.tolist() == [("a", 1), ("", 3)]
    assert found.dtype.names == ("c", "a")


@pytest.mark.parametrize(
    "value",
    [
        [1, "x", 3.14, (1, 4)],
        ["", "x", "yz"],
        ["\udc80", "x"],
        [None, math.inf, {"a": [1]}],
        [],
        [10**5000],
        [b"x", "y"],
    ],
    ids=len,
)
def test_arrays_of_objects(store: Store, value: list[Any]) -> None:
    made = np.empty(len(value), object)
    made[:] = value
    found = again(store, made)
    assert found.dtype == object
    assert found.tolist() == value
    square = again(store, np.array([["a", None], [1, "b"]], object))
    assert square.tolist() == [["a", None], [1, "b"]]


def test_arrays_of_texts_of_any_length(store: Store) -> None:
    for dtype in (
        np.dtypes.StringDType(),
        np.dtypes.StringDType(na_object=None),
        np.dtypes.StringDType(na_object=math.nan),
    ):
        values = ["a", "", "a longer text, which lies elsewhere"]
        if hasattr(dtype, "na_object"):
            values.append(dtype.na_object)
        value = np.array(values, dtype)
        found = again(store, value)
        assert found.dtype == dtype
        assert found[:3].tolist() == values[:3]
        assert same(found.tolist()[3:], values[3:])
        assert again(store, np.zeros((0, 2), dtype)).shape == (0, 2)


@pytest.mark.parametrize(
    "value",
    [
        np.float32(1.5), np.int8(-3), np.bool_(True), np.str_("abc"), np.str_(""), np.bytes_(b"ab"), np.complex64(1j),
        np.datetime64("2020-01-01"), np.timedelta64(3, "s"), np.void(b"abc"), np.longdouble(3), RECORDS[0],
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_numbers_of_numpy_stay_that(store: Store, value: Any) -> None:
    found = again(store, value)
    assert type(found) is type(value)
    assert found.dtype == value.dtype
    assert found == value
    assert [again(store, [value])[0], 1] == [value, 1]


def test_masked_arrays(store: Store) -> None:
    value = np.ma.array([1, 2, 3], mask=[0, 1, 0], fill_value=7)
    found = again(store, value)
    assert (found.tolist(), found.fill_value, found.dtype) == ([1, None, 3], 7, value.dtype)
    records = np.ma.array([(1, 2.0), (3, 4.0)], mask=[(0, 1), (1, 0)], dtype="i4,f8")
    assert again(store, records).tolist() == records.tolist()
    assert again(store, np.ma.array([1, 2])).tolist() == [1, 2]
    assert again(store, np.ma.masked) is np.ma.masked


def test_types_have_the_names_of_cpp(store: Store) -> None:
    names = {"f8": "double", "f4": "float", "i8": "int64", "u1": "uint8", "?": "bool"}
    for kind, name in names.items():
        assert store.get_meta(store.put(np.ones(3, kind))).typename == f"vineyard::Tensor<{name}>"
    assert store.get_meta(store.put(1.5)).typename == "vineyard::Scalar<double>"
    assert store.get_meta(store.put("x")).typename == "vineyard::Scalar<std::string>"
    part = store.get_meta(store.put(np.ones((2, 3)), partition_index=(4, 5)))
    assert (part["shape_"], part["partition_index_"], part["order_"]) == ([2, 3], [4, 5], "C")


# Memory.


def test_large_arrays_lie_where_they_were_put(store: Store) -> None:
    value = np.asfortranarray(np.arange(200_000.0).reshape(400, 500))
    name = store.put({"deep": [value, value[:3]], "bytes": bytes(10**6)})
    found = store.get(name)
    for part in (found["deep"][0], found["bytes"]):
        assert where(part) == store.folder.transient(name)
    assert np.array_equal(found["deep"][0], value)
    matrix = store.get(store.put(scipy.sparse.random_array((10**4, 10**3), density=0.01, format="csr", rng=0)))
    assert where(matrix.data).startswith(store.folder.path)
    masked = store.get(store.put(np.ma.array(np.arange(10**5), mask=False)))
    assert where(masked.data).startswith(store.folder.path)


def test_getting_reads_nothing_but_the_beginning(store: Store) -> None:
    """Of a gigabyte, the pages that this process has are those that it looks at."""
    with own_store("1100MB") as large:
        name = large.put(np.zeros(10**9, np.uint8))
        before = resident()
        view = large.get(name)
        assert resident() - before < 10**7
        assert view[::4096].sum() == 0
        assert resident() - before > 9 * 10**8


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_a_view_keeps_its_memory_when_the_object_the_id_and_the_connection_are_gone() -> None:
    with own_store() as store:
        name = store.put(np.arange(10**6))
        view = store.get(name)[500_000:].reshape(-1, 100)[::7]
        expected = np.arange(10**6)[500_000:].reshape(-1, 100)[::7]
        path = store.folder.path
        store.delete(name)
        for _ in range(5):
            store.put(np.zeros(10**6))
        del store, name
        gc.collect()
        assert np.array_equal(view, expected)
        assert where(view).startswith(path)


def test_small_objects_are_copies_that_hold_nothing(store: Store) -> None:
    before = used(store)
    name = store.put(np.arange(100))
    view = store.get(name)
    store.delete(name)
    assert used(store) == before
    assert view.sum() == sum(range(100))


# scipy.


@pytest.mark.parametrize("kind", ["matrix", "array"])
@pytest.mark.parametrize("form", ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"])
def test_sparse_matrices_keep_their_format(store: Store, form: str, kind: str) -> None:
    make = getattr(scipy.sparse, f"{form}_{kind}")
    for value in (make(scipy.sparse.random(60, 40, 0.4, random_state=0)), make((3, 4), dtype="f4")):
        found = again(store, value)
        assert type(found) is type(value)
        assert (found.shape, found.dtype) == (value.shape, value.dtype)
        assert np.array_equal(found.toarray(), value.toarray())
        assert np.array_equal(found @ np.ones(value.shape[1]), value @ np.ones(value.shape[1]))


def test_sparse_arrays_of_one_and_three_axes(store: Store) -> None:
    for value in (
        scipy.sparse.coo_array(([1, 2], ([0, 3],)), shape=(5,)),
        scipy.sparse.coo_array(([1, 2], ([0, 3], [1, 0], [0, 0])), shape=(5, 2, 1)),
    ):
        found = again(store, value)
        assert found.shape == value.shape
        assert np.array_equal(found.toarray(), value.toarray())
