"""The store: Arrow of all kinds, buffer by buffer, without a copy. A part of something brings nothing of the rest."""

from __future__ import annotations

import decimal
import gc
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.store import Store
from support.store import finished, own_store, where


class Celsius(pa.ExtensionType):
    """A type of somebody's own."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> Celsius:
        return cls()


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    pa.register_extension_type(Celsius())
    yield
    pa.unregister_extension_type("tests.celsius")


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with own_store("500MB") as made:
        yield made


def again(store: Store, value: Any) -> Any:
    return store.get(store.put(value))


TEXTS = ["a", None, "", "a text that is longer than a view has room for"]
LISTS = [[1], None, [2, 3], []]
DEGREES = pa.ExtensionArray.from_storage(Celsius(), pa.array([1, None, 3]))
CODES = pa.array(["a", "b", None, "a"]).dictionary_encode()
ARRAYS: dict[str, pa.Array] = {
    "int": pa.array([1, None, 3]),
    "half": pa.array([1.0, None], pa.float16()),
    "bool": pa.array([True, None, False]),
    "null": pa.nulls(5),
    "string": pa.array(TEXTS),
    "large string": pa.array(TEXTS, pa.large_string()),
    "string view": pa.array(TEXTS, pa.string_view()),
    "binary": pa.array([b"a", None]),
    "large binary": pa.array([b"a", None], pa.large_binary()),
    "binary view": pa.array([b"a", None, bytes(50)], pa.binary_view()),
    "fixed binary": pa.array([b"ab", None], pa.binary(2)),
    "decimal": pa.array([decimal.Decimal("1.5"), None]),
    "decimal32": pa.array([decimal.Decimal("1.5"), None], pa.decimal32(5, 2)),
    "decimal256": pa.array([decimal.Decimal("1.5"), None], pa.decimal256(50, 2)),
    "time": pa.array([1, None], pa.timestamp("us", "Europe/Berlin")),
    "date": pa.array([1, None], pa.date32()),
    "time of day": pa.array([1, None], pa.time64("us")),
    "duration": pa.array([1, None], pa.duration("s")),
    "interval": pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
    "list": pa.array(LISTS),
    "large list": pa.array(LISTS, pa.large_list(pa.int8())),
    "list view": pa.array(LISTS, pa.list_view(pa.int64())),
    "large list view": pa.array(LISTS, pa.large_list_view(pa.int64())),
    "pairs": pa.array([[1, 2], None, [2, 3]], pa.list_(pa.int8(), 2)),
    "struct": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}]),
    "struct with notes": pa.array([{"a": 1}], pa.struct([pa.field("a", pa.int8(), False, metadata={"k": "v"})])),
    "map": pa.array([[("a", 1)], None, [("b", 2), ("c", None)]], pa.map_(pa.string(), pa.int64())),
    "map of lists": pa.array([[("a", [1])], None], pa.map_(pa.string(), pa.list_(pa.int8()))),
    "dictionary": CODES,
    "ordered dictionary": pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), ["x", "y"], ordered=True),
    "list of dictionary": pa.ListArray.from_arrays([0, 2, 4], CODES),
    "list of views": pa.array([["a", "b" * 40], None], pa.list_(pa.string_view())),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array(["a", None])),
    "sparse union": pa.UnionArray.from_sparse(
        pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]
    ),
    "dense union": pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1, 2]), pa.array(["a"])]
    ),
    "extension": DEGREES,
    "extension in a struct": pa.StructArray.from_arrays([DEGREES], ["d"]),
    "uuid": pa.array([uuid.UUID(int=5).bytes, None], pa.uuid()),
    "tensors": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(24.0).reshape(4, 2, 3)),
    "deep": pa.array([[{"a": [["x"]]}], None, []]),
}  # fmt: skip


def parts(array: Any) -> list[Any]:
    return [array, array.slice(1), array.slice(0, 1), array.slice(1, 1), array.slice(0, 0)]


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_all_kinds_and_parts_of_them_come_back(store: Store, name: str) -> None:
    for value in parts(ARRAYS[name]):
        found = again(store, value)
        found.validate(full=True)
        assert type(found) is type(value)
        assert found.type.equals(value.type, check_metadata=True)
        assert found.to_pylist() == value.to_pylist()


@pytest.mark.parametrize("name", ARRAYS)
def test_tables_batches_and_pieces_of_all_kinds_come_back(store: Store, name: str) -> None:
    array = ARRAYS[name]
    chunked = pa.chunked_array([array, array.slice(1)])
    found = again(store, chunked)
    assert found.to_pylist() == chunked.to_pylist()
    assert [len(chunk) for chunk in found.chunks] == [len(chunk) for chunk in chunked.chunks]
    table = again(store, pa.table({"x": chunked, "y": range(len(chunked))}))
    table.validate(full=True)
    assert table.to_pylist() == pa.table({"x": chunked, "y": range(len(chunked))}).to_pylist()
    assert again(store, pa.record_batch([array], ["x"])).to_pylist() == pa.record_batch([array], ["x"]).to_pylist()


SCHEMA = pa.schema([pa.field("a", pa.int64(), metadata={"x": "y"}), pa.field("b", pa.string())], metadata={"k": "v"})
TABLE = pa.table({"a": pa.chunked_array([[1, 2], [3]]), "b": ["x", None, "z"]}, schema=SCHEMA)


def test_metadata_and_shapes_are_kept(store: Store) -> None:
    assert again(store, SCHEMA).equals(SCHEMA, check_metadata=True)
    for table in (TABLE, TABLE.slice(1), TABLE.slice(0, 0), SCHEMA.empty_table(), TABLE.select([])):
        found = again(store, table)
        assert found.equals(table, check_metadata=True)
        assert found.num_rows == table.num_rows
    batch = TABLE.combine_chunks().to_batches()[0]
    for each in (batch, batch.slice(1), batch.select([])):
        found = again(store, each)
        assert found.equals(each, check_metadata=True)
        assert found.num_rows == each.num_rows


def test_any_lists_of_texts_come_back(store: Store) -> None:
    @given(st.lists(st.none() | st.lists(st.none() | st.text())), st.integers(0, 5), st.integers(0, 5))
    def holds(values: list[Any], begin: int, count: int) -> None:
        value = pa.array(values, pa.list_(pa.string())).slice(begin, count)
        name = store.put(value)
        found = store.get(name)
        found.validate(full=True)
        assert found.equals(value)
        store.delete(name)

    holds()


MANY = 10_000_000
SOME = 200_000
NUMBERS = pa.array(np.arange(MANY))
WORDS = pa.array([f"some text that is long {number}" for number in range(SOME)])
BEGINS = pa.array(np.arange(SOME + 1, dtype="i4"))
LARGE: dict[str, pa.Array] = {
    "int": NUMBERS,
    "bool": pa.array(np.ones(MANY, bool)),
    "string": WORDS,
    "string view": WORDS.cast(pa.string_view()),
    "list": pa.ListArray.from_arrays(BEGINS, WORDS),
    "list of views": pa.ListArray.from_arrays(BEGINS, WORDS.cast(pa.string_view())),
    "list view": pa.ListViewArray.from_arrays(BEGINS[:-1], pa.array(np.ones(SOME, "i4")), NUMBERS),
    "pairs": pa.FixedSizeListArray.from_arrays(NUMBERS, 2),
    "struct": pa.StructArray.from_arrays([NUMBERS, NUMBERS], ["a", "b"]),
    "deep": pa.StructArray.from_arrays([pa.StructArray.from_arrays([WORDS], ["a"])], ["b"]),
    "map": pa.MapArray.from_arrays(BEGINS, WORDS, NUMBERS[:SOME]),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array(np.arange(MANY) % 5), list("abcde")),
    "extension": pa.ExtensionArray.from_storage(Celsius(), NUMBERS),
    "sparse union": pa.UnionArray.from_sparse(pa.array(np.zeros(MANY, "i1")), [NUMBERS]),
    "dense union": pa.UnionArray.from_dense(
        pa.array(np.zeros(SOME, "i1")), pa.array(np.arange(SOME, dtype="i4")), [NUMBERS]
    ),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array(np.arange(1, SOME + 1, dtype="i4")), NUMBERS[:SOME]),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("begin", [0, 1000])
def test_ten_rows_of_many_are_stored_as_ten(store: Store, name: str, begin: int) -> None:
    value = LARGE[name].slice(begin, 10)
    number = store.put(value)
    assert store.get_meta(number).nbytes < 5000
    assert store.get(number).to_pylist() == value.to_pylist()
    table = store.put(pa.table({"x": LARGE[name]}).slice(begin, 10))
    assert store.get_meta(table).nbytes < 5000


def buffers(array: Any) -> list[Any]:
    if isinstance(array, pa.ExtensionArray):
        return buffers(array.storage)
    own = array.indices if isinstance(array, pa.DictionaryArray) else array
    return [buffer for buffer in own.buffers() if buffer is not None and buffer.size > 2**16]


@pytest.mark.parametrize("name", LARGE)
def test_large_arrays_lie_where_they_were_put(store: Store, name: str) -> None:
    array = LARGE[name][: 5 * SOME]
    number = store.put(pa.table({"x": array}))
    found = store.get(number)["x"].chunk(0)
    large = buffers(found)
    assert large
    assert {where(buffer) for buffer in large} == {store.folder.transient(number)}
    assert all(buffer.address % 8 == 0 for buffer in large)
    store.delete(number)
    gc.collect()
    assert found.equals(array) or found.to_pylist() == array.to_pylist()


def test_a_table_that_is_put_again_with_another_column_shares_what_it_had(store: Store) -> None:
    first = store.put(pa.table({"a": NUMBERS[:SOME], "b": WORDS}))
    second = store.put(store.get(first).append_column("c", NUMBERS[:SOME]))
    columns = [store.get_meta(number)["__columns_-1"]["chunks_-0"] for number in (first, second)]
    assert [columns[0][f"buffer_-{place}"].id for place in (1, 2)] == [
        columns[1][f"buffer_-{place}"].id for place in (1, 2)
    ]


def test_a_type_that_the_reader_does_not_know_is_what_it_consists_of(store: Store) -> None:
    number = store.put(pa.table({"x": DEGREES}))
    text = (
        "table = store.get(int(sys.argv[2])); say(table.schema.field('x').type, table['x'].to_pylist() == [1, None, 3])"
    )
    assert finished(store, text, int(number)) == ["int64", "True"]
