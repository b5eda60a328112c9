"""Samples read as columns are what collating the same samples gives, or are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.abc import Columns, Sample, Shard, SupportsColumns
from shoal.errors import DecodeError, MissingFieldError
from shoal.pipeline._collate import collate
from shoal.shards import TarWriter, owned
from shoal.sources import ArrowSource, ParquetSource, TarSource, _parquet_file, _tables
from support.tables import TYPES, arrow, numbered, parquet, tables, values_of
from support.tars import pack

FORMS: dict[str, tuple[type[ParquetSource] | type[ArrowSource], Callable[..., bytes]]] = {
    "parquet": (ParquetSource, parquet),
    "arrow": (ArrowSource, arrow),
    "arrow-zstd": (ArrowSource, partial(arrow, compression="zstd")),
}
forms = pytest.mark.parametrize("form", FORMS)

#: Types that only some tables have.
ODD = {
    pa.float16(): st.floats(width=16, allow_nan=False),
    pa.large_binary(): st.binary(max_size=5),
    pa.timestamp("ns"): st.integers(0, 2**60),
    pa.uint64(): st.integers(2**63, 2**64 - 1),
    pa.dictionary(pa.int8(), pa.int16()): st.integers(-3, 3),
    pa.dictionary(pa.int32(), pa.binary()): st.sampled_from([b"a", b"", b"ccc"]),
    pa.list_(pa.list_(pa.float32(), 2)): st.lists(st.lists(st.floats(width=32), min_size=2, max_size=2), max_size=2),
    pa.list_(pa.float16(), 2): st.lists(st.floats(width=16), min_size=2, max_size=2),
}


def same(one: Any, other: Any) -> bool:
    """Compare values, their types, the types of what is in them and the order of fields."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and same(one.tolist(), other.tolist())
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


def collated(source: TarSource | ParquetSource | ArrowSource, shard: Shard, indices: list[int]) -> Sample:
    return collate([owned(sample) for sample in source.take(shard, indices)])


def columns_of(source: SupportsColumns, shard: Shard, indices: list[int]) -> Columns | None:
    columns = source.take_columns(shard, np.array(indices, np.int64))
    for column in (columns or {}).values():
        assert isinstance(column, list) or column.flags.writeable, "a batch belongs to its user"
    return columns


def write(folder: Path, data: bytes, name: str = "a") -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


def some_indices(length: int) -> st.SearchStrategy[list[int]]:
    runs = st.tuples(st.integers(0, length - 1), st.integers(1, length)).map(
        lambda run: list(range(run[0], min(sum(run), length)))
    )
    return st.lists(st.integers(0, length - 1), min_size=1, max_size=8) | runs


# Tables


@st.composite
def odd_tables(draw: st.DrawFn) -> pa.Table:
    """A table of a column of a type that occurs in others seldom, with or without nulls, and of one that does not."""
    rows = draw(st.integers(1, 8))
    kind, usual = draw(st.sampled_from(list(ODD))), draw(TYPES)
    values = draw(st.lists(draw(st.sampled_from([ODD[kind], st.none() | ODD[kind]])), min_size=rows, max_size=rows))
    odd = pa.array(np.array(values, object), kind) if pa.types.is_float16(kind) else pa.array(values, kind)
    others = draw(st.lists(values_of(usual), min_size=rows, max_size=rows))
    return pa.table({"odd": odd, "usual": pa.array(others, usual)})


@st.composite
def whole_tables(draw: st.DrawFn) -> pa.Table:
    """A table without nulls, whose lists may have one length: what most tables are."""
    rows, size = draw(st.integers(1, 8)), draw(st.integers(0, 3))
    scalars = {
        pa.int32(): st.integers(-9, 9),
        pa.uint8(): st.integers(0, 255),
        pa.float32(): st.floats(width=32),
        pa.float64(): st.floats(),
        pa.bool_(): st.booleans(),
        pa.string(): st.text(max_size=5),
        pa.binary(): st.binary(max_size=5),
    }
    kinds = draw(st.lists(st.sampled_from(list(scalars)), min_size=1, max_size=3))
    columns: dict[str, pa.Array] = {}
    for number, kind in enumerate(kinds):
        equal = st.lists(scalars[kind], min_size=size, max_size=size)
        ragged = st.lists(scalars[kind], max_size=3)
        # pyarrow writes lists of the fixed size 0 to Parquet, and does not read them.
        lists = [pa.list_(kind), pa.large_list(kind), *([pa.list_(kind, size)] if size else [])]
        for name, form, items in (
            ("scalar", kind, scalars[kind]),
            ("equal", draw(st.sampled_from(lists)), equal),
            ("ragged", pa.list_(kind), ragged),
        ):
            columns[f"{name}{number}"] = pa.array(draw(st.lists(items, min_size=rows, max_size=rows)), form)
    return pa.table(columns)


@forms
@settings(max_examples=60)
@given(table=tables() | odd_tables() | whole_tables(), rows=st.integers(1, 5), data=st.data())
def test_columns_of_a_table_are_what_collating_its_rows_gives(
    tmp_path_factory: pytest.TempPathFactory, form: str, table: pa.Table, rows: int, data: st.DataObject
) -> None:
    kind, packed = FORMS[form]
    source = kind(write(tmp_path_factory.mktemp("t"), packed(table, rows)))
    url = source.shards()[0].url
    for shard in (*source.shards(), Shard(url), Shard(url, 1, None, 2)):
        if length := source.length(shard):
            indices = data.draw(some_indices(length))
            columns = columns_of(source, shard, indices)
            if columns is None:
                # pyarrow cannot join dictionaries inside of other types; of one row group, all can be had.
                assert shard not in source.shards()
                assert any("dictionary" in str(field.type) for field in table.schema)
            else:
                assert same(columns, collated(source, shard, indices))


@settings(max_examples=30)
@given(table=whole_tables(), data=st.data())
def test_rows_are_picked_from_the_pieces_of_a_group(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_parquet_file, "_FEWEST_ROWS", 2)
        patch.setattr(_tables, "_GROUP_PIECE_BYTES", 1)
        source = ParquetSource(write(tmp_path_factory.mktemp("t"), parquet(table)))
        (shard,) = source.shards()
        indices = data.draw(some_indices(source.length(shard)))
        columns = columns_of(source, shard, indices)
        assert columns is not None
        assert same(columns, collated(source, shard, indices))


@forms
def test_what_a_column_becomes_is_decided_by_the_rows_taken(tmp_path: Path, form: str) -> None:
    kind, packed = FORMS[form]
    table = pa.table({"n": pa.array([1, None, 3], pa.int16()), "v": [[1.0, 2.0], [3.0], [4.0, 5.0]]})
    source = kind(write(tmp_path, packed(table)))
    (shard,) = source.shards()
    whole, mixed = (columns_of(source, shard, indices) for indices in ([2, 0], [1, 0]))
    assert whole is not None
    assert mixed is not None
    assert isinstance(whole["n"], np.ndarray)
    assert (whole["n"].dtype, whole["n"].tolist()) == (np.int64, [3, 1])
    assert isinstance(whole["v"], np.ndarray)
    assert whole["v"].tolist() == [[4.0, 5.0], [1.0, 2.0]]
    assert mixed["n"] == [None, 1]
    assert [row.tolist() for row in mixed["v"]] == [[3.0], [1.0, 2.0]]


@forms
@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.int32()), pa.list_(pa.int32(), 2)], ids=str)
def test_a_list_with_a_null_in_it_is_not_stacked(tmp_path: Path, form: str, kind: pa.DataType) -> None:
    reader, packed = FORMS[form]
    source = reader(write(tmp_path, packed(pa.table({"v": pa.array([[1, 2], [3, None], None, [5, 6]], kind)}))))
    (shard,) = source.shards()
    for indices in ([0, 1], [1, 0], [1], [0, 2], [2], [3, 0]):
        columns = columns_of(source, shard, indices)
        assert columns is not None
        assert same(columns, collated(source, shard, indices))
        assert isinstance(columns["v"], np.ndarray) == (indices == [3, 0])


@forms
@pytest.mark.parametrize("order", [None, [1, 0]])
def test_tensors_are_stacked_in_their_shape(tmp_path: Path, form: str, order: list[int] | None) -> None:
    kind, packed = FORMS[form]
    storage = pa.array([range(6), range(6, 12), None], pa.list_(pa.float32(), 6))
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), (2, 3), permutation=order), storage)
    source = kind(write(tmp_path, packed(pa.table({"t": tensors}))))
    (shard,) = source.shards()
    for indices in ([1, 0], [0, 1], [0, 2]):
        assert same(columns_of(source, shard, indices), collated(source, shard, indices))
    stacked = source.take_columns(shard, np.array([1, 0]))
    assert stacked is not None
    assert stacked["t"].shape == ((2, 2, 3) if order is None else (2, 3, 2))  # type: ignore[union-attr]


@forms
@pytest.mark.parametrize("key", [None, "id", "name", "raw"])
def test_keys_are_those_of_the_rows(tmp_path: Path, form: str, key: str | None) -> None:
    kind, packed = FORMS[form]
    names = [f"é{number}" for number in range(200)]
    raw = [bytes([number]) for number in range(200)]
    table = pa.table({"id": range(200), "name": names, "raw": raw})
    source = kind(write(tmp_path, packed(table), "ü.x"), key=key, columns=["id"])
    (shard,) = source.shards()
    for indices in (list(range(199, -1, -1)), [7], [5, 5, 7]):
        assert same(columns_of(source, shard, indices), collated(source, shard, indices))


@forms
def test_errors_are_those_of_the_rows(tmp_path: Path, form: str) -> None:
    kind, packed = FORMS[form]
    table = pa.table({"when": pa.array([0, 2**60], pa.timestamp("us")), "id": ["a", None]})
    url = write(tmp_path, packed(table))
    for source, error, match in (
        (kind(url), DecodeError, r"timestamp\[us\]"),
        (kind(url, columns=["id"], key="id"), MissingFieldError, "row 1 has no value"),
    ):
        (shard,) = source.shards()
        for read in (source.take, lambda shard, indices: source.take_columns(shard, np.array(indices))):  # noqa: B023
            with pytest.raises(error, match=match):
                read(shard, [0, 1])
        for wrong in (-1, 2):
            with pytest.raises(IndexError, match=f"no sample {wrong} in"):
                source.take_columns(shard, np.array([0, wrong]))
        assert source.take_columns(shard, np.array([], np.int64)) is None


def test_streams_are_read_row_by_row(tmp_path: Path) -> None:
    source = ArrowSource(write(tmp_path, arrow(numbered(5), stream=True)))
    (shard,) = source.shards()
    assert source.take_columns(shard, np.array([1])) is None


def test_types_that_may_become_anything_are_read_row_by_row(tmp_path: Path) -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, 8]))
    source = ArrowSource(write(tmp_path, arrow(pa.table({"runs": runs}))))
    (shard,) = source.shards()
    assert source.take_columns(shard, np.array([2, 0])) is None


# Tars

KEYS = st.text(st.characters(exclude_characters="./\0\n", exclude_categories=["Cs"]), min_size=1, max_size=6)
FIELDS = st.sampled_from(["jpg", "cls", "seg.png", "ü"])


@st.composite
def tar_samples(draw: st.DrawFn) -> list[tuple[str, dict[str, bytes]]]:
    """Samples that have mostly the same fields."""
    usual = draw(st.permutations(["jpg", "cls", "ü"]).flatmap(lambda names: st.integers(1, 3).map(lambda n: names[:n])))
    some = st.lists(FIELDS, min_size=1, max_size=4, unique=True)
    fields = st.just(usual) | some if draw(st.booleans()) else st.just(usual)
    samples = draw(
        st.lists(
            st.tuples(KEYS.filter(lambda key: not key.startswith("__")), fields),
            min_size=1,
            max_size=8,
            unique_by=lambda sample: sample[0],
        )
    )
    return [(key, {name: draw(st.binary(max_size=700)) for name in names}) for key, names in samples]


@settings(max_examples=200)
@given(
    samples=tar_samples(),
    keep=st.none() | st.frozensets(FIELDS),
    shouting=st.booleans(),
    step=st.integers(1, 2),
    data=st.data(),
)
def test_columns_of_a_tar_are_what_collating_its_samples_gives(
    tmp_path_factory: pytest.TempPathFactory,
    samples: list[tuple[str, dict[str, bytes]]],
    keep: frozenset[str] | None,
    shouting: bool,
    step: int,
    data: st.DataObject,
) -> None:
    members = [(f"{key}.{name}", value) for key, fields in samples for name, value in fields.items()]
    url = write(tmp_path_factory.mktemp("t"), pack(members), "a.tar")
    source = TarSource(url, keep=keep, rename=(lambda name: f"x/{name}") if shouting else None)
    shard = Shard(url, 0, None, step)
    indices = data.draw(some_indices(source.length(shard)))
    taken = source.take(shard, indices)
    columns = columns_of(source, shard, indices)
    if all(list(sample) == list(taken[0]) for sample in taken):
        assert columns is not None
        assert same(columns, collated(source, shard, indices))
    else:
        assert columns is None


def test_columns_of_a_tar_need_a_plain_local_file(tmp_path: Path) -> None:
    for name in ("a.tar", "a.tar.gz"):
        with TarWriter(tmp_path / name) as writer:
            for number in range(3):
                writer.write({"__key__": f"{number}", "cls": number})
    plain, packed = (TarSource(tmp_path / name) for name in ("a.tar", "a.tar.gz"))
    assert isinstance(plain, SupportsColumns)
    columns = columns_of(plain, plain.shards()[0], [2, 0, 2])
    assert columns == {"__key__": ["2", "0", "2"], "cls": [b"2", b"0", b"2"]}
    assert packed.take_columns(packed.shards()[0], np.array([0])) is None
    assert plain.take_columns(plain.shards()[0], np.array([], np.int64)) is None
    for wrong in (-1, 3):
        with pytest.raises(IndexError, match=f"no sample {wrong} in"):
            plain.take_columns(plain.shards()[0], np.array([0, wrong]))
