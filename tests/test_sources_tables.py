"""What Parquet and Arrow files have in common as sources: rows are samples, groups are shards, wherever they lie."""

from __future__ import annotations

import gzip
import os
import pickle
import random
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal._kept import Kept
from shoal.abc import Sample, Shard, SupportsRandomAccess, SupportsSplit
from shoal.errors import (
    DecodeError,
    DuplicateFieldError,
    MissingExtraError,
    MissingFieldError,
    PlanError,
    ShardError,
    ShoalError,
    UrlChangedError,
    UrlNotFoundError,
)
from shoal.files import ShardCache, UrlInfo
from shoal.sources import ArrowSource, ParquetSource
from shoal.sources._tables import Place
from support.tables import all_samples, arrow, expected, numbered, parquet, plain, tables


@dataclass(frozen=True)
class Form:
    """A format: how it is written and read."""

    name: str
    suffix: str
    source: type[ParquetSource] | type[ArrowSource]
    pack: Callable[..., bytes]
    seekable: bool = True

    def write(self, path: Path, table: pa.Table, rows: int = 1000) -> str:
        path.write_bytes(self.pack(table, rows))
        return str(path)


FORMS = [
    Form("parquet", ".parquet", ParquetSource, parquet),
    Form("arrow", ".arrow", ArrowSource, arrow),
    Form("arrow-zstd", ".feather", ArrowSource, partial(arrow, compression="zstd")),
    Form("arrow-lz4", ".ipc", ArrowSource, partial(arrow, compression="lz4")),
    Form("stream", ".arrows", ArrowSource, partial(arrow, stream=True), seekable=False),
    Form("stream-zstd", ".arrow", ArrowSource, partial(arrow, stream=True, compression="zstd"), seekable=False),
]
forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
seekable_forms = pytest.mark.parametrize("form", [f for f in FORMS if f.seekable], ids=lambda form: form.name)


def numbers(samples: list[Sample]) -> list[int]:
    return [sample["n"] for sample in samples]


# Values


@forms
@settings(max_examples=40)
@given(table=tables(), rows=st.integers(1, 5))
def test_all_kinds_of_columns_come_back(
    tmp_path_factory: pytest.TempPathFactory, form: Form, table: pa.Table, rows: int
) -> None:
    url = form.write(tmp_path_factory.mktemp("t") / f"a{form.suffix}", table, rows)
    assert plain(all_samples(form.source(url))) == expected(table)


@forms
@settings(max_examples=30)
@given(table=tables(), rows=st.integers(1, 5), data=st.data())
def test_picking_gives_what_reading_gives(
    tmp_path_factory: pytest.TempPathFactory, form: Form, table: pa.Table, rows: int, data: st.DataObject
) -> None:
    source = form.source(form.write(tmp_path_factory.mktemp("t") / f"a{form.suffix}", table, rows))
    for shard in source.shards():
        read = [sample for block in source.open(shard) for sample in block.samples]
        assert source.length(shard) == len(read)
        indices = data.draw(st.lists(st.integers(0, len(read) - 1), max_size=8) if read else st.just([]))
        assert plain(source.take(shard, indices)) == plain([read[index] for index in indices])


@forms
def test_numbers_in_lists_are_arrays_of_their_own_type(tmp_path: Path, form: Form) -> None:
    kinds = {"i8": pa.int8(), "u16": pa.uint16(), "f32": pa.float32(), "f64": pa.float64(), "b": pa.bool_()}
    bits = pa.array([[True, False], None, [], [True, None]])
    columns = {name: bits.cast(pa.list_(kind)) for name, kind in kinds.items()}
    fixed = pa.array(
        [[[1, 2], [3, 4], [5, 6]], None, [[0, 0], None, [0, 0]], [[0, 0]] * 3], pa.list_(pa.list_(pa.int16(), 2), 3)
    )
    url = form.write(tmp_path / "a", pa.table({**columns, "fixed": fixed}))
    one, two, three, four = all_samples(form.source(url))
    for name, kind in kinds.items():
        assert isinstance(one[name], np.ndarray)
        assert one[name].dtype == three[name].dtype == kind.to_pandas_dtype()
        assert (one[name].tolist(), two[name], three[name].tolist()) == ([1, 0], None, [])
        assert four[name] == [1, None], "a list with a null in it stays a list"
    assert (one["fixed"].shape, one["fixed"].dtype, four["fixed"].shape) == ((3, 2), np.int16, (3, 2))
    assert two["fixed"] is None
    assert [plain(pair) for pair in three["fixed"]] == [[0, 0], None, [0, 0]]


@forms
def test_the_kind_of_a_value_does_not_depend_on_its_neighbours(tmp_path: Path, form: Form) -> None:
    url = form.write(tmp_path / "a", pa.table({"v": pa.array([[1, 2], [None, 3], [4, 5]] * 50, pa.list_(pa.int32()))}))
    source = form.source(url)
    (shard,) = source.shards()
    for row, sample in enumerate(all_samples(source)):
        (alone,) = source.take(shard, [row])
        assert type(alone["v"]) is type(sample["v"]) is (list if row % 3 == 1 else np.ndarray)


@forms
@pytest.mark.parametrize("order", [None, [1, 0]])
def test_tensors_have_their_shape(tmp_path: Path, form: Form, order: list[int] | None) -> None:
    kind = pa.fixed_shape_tensor(pa.float32(), (2, 3), permutation=order)
    storage = pa.array([range(6), None, range(6, 12), range(12, 18)], pa.list_(pa.float32(), 6))
    tensors = pa.ExtensionArray.from_storage(kind, storage)
    source = form.source(form.write(tmp_path / "a", pa.table({"t": tensors})))
    wanted = [tensors.slice(row, 1).to_numpy_ndarray()[0] for row in (0, 2, 3)]
    samples = all_samples(source)
    assert samples[1]["t"] is None
    for sample, tensor in zip([samples[0], *samples[2:]], wanted, strict=True):
        assert sample["t"].shape == ((2, 3) if order is None else (3, 2))
        assert sample["t"].dtype == np.float32
        assert np.array_equal(sample["t"], tensor)
    (shard,) = source.shards()
    assert np.array_equal(source.take(shard, [3, 0])[0]["t"], wanted[2])


@forms
def test_values_that_python_cannot_hold_are_named(tmp_path: Path, form: Form) -> None:
    when = pa.array([0, 2**60], pa.timestamp("us"))
    source = form.source(form.write(tmp_path / "a", pa.table({"n": [0, 1], "when": when})))
    with pytest.raises(DecodeError, match=r"timestamp\[us\]") as caught:
        all_samples(source)
    assert (caught.value.field, caught.value.shard) == ("when", str(tmp_path / "a"))
    assert caught.value.__cause__ is not None


# Keys


@forms
def test_keys_are_made_of_file_name_and_row(tmp_path: Path, form: Form) -> None:
    (tmp_path / "x").mkdir()
    urls = [form.write(tmp_path / name, numbered(3), 2) for name in ("part-0.c000.snappy.x", "x/b")]
    assert [sample["__key__"] for sample in all_samples(form.source(urls))] == [
        *(f"part-0-c000-snappy-{row:09d}" for row in range(3)),
        *(f"b-{row:09d}" for row in range(3)),
    ]


@pytest.mark.parametrize(
    ("url", "stem"),
    [
        ("/data/train.parquet", "train"),
        ("file:///data/a%20b.parquet", "a b"),
        ("https://host/x/a.b.parquet?sig=c/d.e", "a-b"),
        ("zip://in/a.parquet::s3://bucket/all.zip", "a"),
        ("simplecache::s3://bucket/a.parquet", "a"),
        ("s3://bucket/folder/part-0", "part-0"),
        ("-", "stdin"),
        ("pipe:cat secret.arrows", "pipe"),
        ("https://host/?id=7", "host"),
    ],
)
def test_the_stem_of_keys_is_the_name_of_the_file(url: str, stem: str) -> None:
    assert Place(url, url, UrlInfo()).stem == stem


@forms
def test_a_column_may_hold_the_keys(tmp_path: Path, form: Form) -> None:
    table = pa.table({"id": [7, 8], "name": ["a", "b"], "raw": [b"x", b"y"], "n": [0, 1]})
    url = form.write(tmp_path / "a", table)
    assert all_samples(form.source(url, columns=["n"], key="id")) == [
        {"__key__": "7", "n": 0},
        {"__key__": "8", "n": 1},
    ]
    assert all_samples(form.source(url, columns=["n", "name"], key="name"))[1] == {"__key__": "b", "n": 1, "name": "b"}
    assert all_samples(form.source(url, columns=["n"], key="raw"))[0]["__key__"] == "x"
    assert "id" in all_samples(form.source(url, key="id"))[0]


@forms
def test_a_column_named_key_is_the_key(tmp_path: Path, form: Form) -> None:
    url = form.write(tmp_path / "a", pa.table({"n": [0, 1], "__key__": ["p", "q"], "id": ["r", "s"]}))
    assert all_samples(form.source(url, columns=["n"])) == [{"__key__": "p", "n": 0}, {"__key__": "q", "n": 1}]
    assert all_samples(form.source(url))[1] == {"__key__": "q", "n": 1, "id": "s"}
    assert all_samples(form.source(url, columns=["__key__"], key="id")) == [{"__key__": "r"}, {"__key__": "s"}]


@forms
def test_a_row_without_a_key_is_an_error(tmp_path: Path, form: Form) -> None:
    url = form.write(tmp_path / "a", pa.table({"id": ["x", None], "v": [[1], [2]]}))
    with pytest.raises(MissingFieldError, match="row 1 has no value") as caught:
        all_samples(form.source(url, key="id"))
    assert (caught.value.field, caught.value.shard) == ("id", url)
    with pytest.raises(PlanError, match=r"'v'.*list<.*makes no keys"):
        all_samples(form.source(url, key="v"))


# Columns


@forms
def test_columns_are_chosen_in_the_order_given(tmp_path: Path, form: Form) -> None:
    url = form.write(tmp_path / "a", pa.table({"a": [1], "b": [2], "c.d": [3], "c": [{"d": 4, "e": 5}]}))
    (sample,) = all_samples(form.source(url, columns=["c.d", "a", "a"]))
    assert list(sample.items()) == [("__key__", "a-000000000"), ("c.d", 3), ("a", 1)]
    assert all_samples(form.source(url, columns=["c"]))[0]["c"] == {"d": 4, "e": 5}


@forms
@pytest.mark.parametrize("options", [{"columns": ["n", "lable"]}, {"key": "lable"}])
def test_a_column_that_is_not_there_is_named_with_one_that_is(tmp_path: Path, form: Form, options: Any) -> None:
    url = form.write(tmp_path / "a", pa.table({"n": [1], "label": [2]}))
    with pytest.raises(MissingFieldError, match="did you mean 'label'") as caught:
        all_samples(form.source(url, **options))
    assert (caught.value.field, caught.value.shard) == ("lable", url)
    with pytest.raises(MissingFieldError, match="there are n, label"):
        all_samples(form.source(url, columns=["zzzzzz"]))


@pytest.mark.parametrize("form", FORMS[1:], ids=lambda form: form.name)
def test_two_columns_of_one_name_are_an_error_where_they_are_wanted(tmp_path: Path, form: Form) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "b", "a"])
    url = form.write(tmp_path / "a", table)
    with pytest.raises(DuplicateFieldError, match="'a'"):
        all_samples(form.source(url))
    if form.seekable:
        assert all_samples(form.source(url, columns=["b"]))[0]["b"] == 2


@pytest.mark.parametrize("kind", [ParquetSource, ArrowSource])
@pytest.mark.parametrize("columns", ["name", [], ()])
def test_columns_must_be_a_list_of_names(kind: Any, columns: Any) -> None:
    with pytest.raises(PlanError, match="must be a list of names"):
        kind("a", columns=columns)


@forms
def test_files_may_have_other_columns_than_their_neighbours(tmp_path: Path, form: Form) -> None:
    urls = [form.write(tmp_path / "0", pa.table({"n": [1]})), form.write(tmp_path / "1", pa.table({"m": ["x"]}))]
    assert [sorted(sample) for sample in all_samples(form.source(urls))] == [["__key__", "n"], ["__key__", "m"]]


# Shards


@seekable_forms
def test_groups_are_shards(tmp_path: Path, form: Form) -> None:
    urls = [form.write(tmp_path / "0", numbered(7), 3), form.write(tmp_path / "1", numbered(4, start=7), 4)]
    source = form.source(urls)
    cuts = [(urls[0], 0, 3), (urls[0], 3, 6), (urls[0], 6, 7), (urls[1], 0, 4)]
    assert list(source.shards()) == [Shard(*cut) for cut in cuts]
    assert [source.length(shard) for shard in source.shards()] == [3, 3, 1, 4]
    assert numbers(all_samples(source)) == list(range(11))
    assert source.seekable
    assert isinstance(source, SupportsRandomAccess)
    assert isinstance(source, SupportsSplit)


@forms
def test_a_shard_may_be_a_whole_file_or_any_part_of_it(tmp_path: Path, form: Form) -> None:
    url = form.write(tmp_path / "a", numbered(500), 90)
    source = form.source(url)
    for shard in (
        Shard(url),
        Shard(url, 100, 300),
        Shard(url, 5, None, 7),
        Shard(url, 89, 91),
        Shard(url, 3, 400, 250),
    ):
        rows = list(range(500))[shard.start : shard.stop : shard.step]
        assert source.length(shard) == len(rows)
        for start in (0, 1, len(rows) - 1, len(rows), len(rows) + 5):
            assert numbers([s for block in source.open(shard, start) for s in block.samples]) == rows[start:]
        indices = [len(rows) - 1, 0, len(rows) // 2, 0]
        assert numbers(source.take(shard, indices)) == [rows[index] for index in indices]


@forms
def test_blocks_are_neither_long_nor_heavy(tmp_path: Path, form: Form) -> None:
    light = form.source(form.write(tmp_path / "light", numbered(1000)))
    heavy = form.source(form.write(tmp_path / "heavy", pa.table({"b": [bytes(2**20)] * 40})))
    sizes = [len(block.samples) for shard in light.shards() for block in light.open(shard)]
    assert (sum(sizes), max(sizes)) == (1000, 64)
    sizes = [len(block.samples) for shard in heavy.shards() for block in heavy.open(shard)]
    assert (sum(sizes), max(sizes)) == (40, 15) or max(sizes) == 16
    assert all(block.origins == (shard,) for shard in light.shards() for block in light.open(shard))


@forms
@pytest.mark.parametrize("parts", [1, 3, 50])
def test_the_parts_of_a_shard_hold_all_its_samples(tmp_path: Path, form: Form, parts: int) -> None:
    url = form.write(tmp_path / "a", numbered(40), 30)
    source = form.source(url)
    for shard in (*source.shards(), Shard(url), Shard(url, 3, 35, 2)):
        whole = [sample for block in source.open(shard) for sample in block.samples]
        cut = source.split(shard, parts)
        assert len(cut) == parts
        got = [s for part in cut for block in source.open(part) for s in block.samples]
        assert sorted(numbers(got)) == numbers(whole)
        assert sum(map(source.length, cut)) == len(whole)
    with pytest.raises(PlanError, match="at least 1 part"):
        source.split(Shard(url), 0)


@forms
def test_what_is_not_in_a_shard_cannot_be_picked(tmp_path: Path, form: Form) -> None:
    source = form.source(form.write(tmp_path / "a", numbered(3)))
    (shard,) = source.shards()
    for index in (3, -1):
        with pytest.raises(IndexError, match=f"no sample {index} in shard .*, which has 3"):
            source.take(shard, [0, index])
    assert source.take(shard, []) == []
    with pytest.raises(IndexError, match=r"no sample 3 in shard|ends before row 3"):
        source.take(Shard(shard.url, 0, 10), [2, 3])
    assert numbers([s for block in source.open(Shard(shard.url, 1, 10)) for s in block.samples]) == [1, 2]
    assert list(source.open(Shard(shard.url, 5, 10))) == []


@forms
def test_files_without_rows_are_fine(tmp_path: Path, form: Form) -> None:
    empty = form.write(tmp_path / "0", numbered(0))
    source = form.source([empty, form.write(tmp_path / "1", numbered(2), 2)])
    assert numbers(all_samples(source)) == [0, 1]
    assert [source.length(shard) for shard in source.shards()] == [0, 2]
    assert source.take(source.shards()[0], []) == []
    assert all_samples(form.source(empty)) == []


@forms
def test_there_may_be_many_groups(tmp_path: Path, form: Form) -> None:
    source = form.source(form.write(tmp_path / "a", numbered(3000), 3))
    assert len(source.shards()) == (1000 if form.seekable else 1)
    assert numbers(all_samples(source)) == list(range(3000))
    picked = [source.take(shard, [1])[0]["n"] for shard in source.shards()]
    assert picked == (list(range(1, 3000, 3)) if form.seekable else [1])


@forms
def test_a_folder_stands_for_its_files(tmp_path: Path, form: Form) -> None:
    for number in (1, 0):
        form.write(tmp_path / f"{number}{form.suffix}", numbered(1, start=number))
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "a.tar").touch()
    assert numbers(all_samples(form.source(tmp_path))) == [0, 1]
    assert numbers(all_samples(form.source(f"{tmp_path}/{{1,0}}{form.suffix}"))) == [1, 0]
    (tmp_path / "none").mkdir()
    with pytest.raises(UrlNotFoundError, match=r"holds no shards \(files ending in \.(parquet|arrow)"):
        form.source(tmp_path / "none").shards()


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    source = ParquetSource(tmp_path / "later.parquet")
    FORMS[0].write(tmp_path / "later.parquet", numbered(2))
    assert numbers(all_samples(source)) == [0, 1]
    with pytest.raises(UrlNotFoundError, match="gone"):
        ParquetSource(tmp_path / "gone.parquet").shards()


# Changes, copies, threads


@forms
def test_the_fingerprint_changes_with_the_file(tmp_path: Path, form: Form) -> None:
    url = form.write(tmp_path / "a", numbered(3))
    before = form.source(url).fingerprint(Shard(url))
    os.utime(url, (1, 1))
    assert form.source(url).fingerprint(Shard(url)) == before == str(os.path.getsize(url))
    form.write(tmp_path / "a", numbered(30))
    assert form.source(url).fingerprint(Shard(url)) != before


@forms
def test_a_file_that_changed_since_its_rows_were_counted_is_an_error(tmp_path: Path, form: Form) -> None:
    url = form.write(tmp_path / "a", numbered(3))
    source = form.source(url)
    source.shards()
    (tmp_path / "new").write_bytes(form.pack(numbered(30), 10))
    os.replace(tmp_path / "new", url)
    with pytest.raises(UrlChangedError, match="changed since it was first looked at"):
        all_samples(pickle.loads(pickle.dumps(source)))


@forms
def test_a_file_replaced_while_it_is_read_is_read_on_or_an_error(tmp_path: Path, form: Form) -> None:
    source = form.source(form.write(tmp_path / "a", numbered(100), 5))
    first = source.shards()[0]
    source.take(first, [0])
    (tmp_path / "new").write_bytes(form.pack(numbered(200, start=1000), 5))
    os.replace(tmp_path / "new", tmp_path / "a")
    if form.seekable:
        with ThreadPoolExecutor(4) as pool:
            picked = list(pool.map(lambda shard: source.take(shard, [0])[0]["n"], source.shards()))
        assert picked == list(range(0, 100, 5))
    else:
        with pytest.raises(UrlChangedError, match="changed while it was read"):
            source.take(first, [0])


@forms
def test_a_source_can_be_pickled_in_use(tmp_path: Path, form: Form) -> None:
    source = form.source(form.write(tmp_path / "a", numbered(100), 30), columns=["n"])
    shard = source.shards()[0]
    source.take(shard, [0])
    again = pickle.loads(pickle.dumps(source))
    assert again.shards() == source.shards()
    assert numbers(all_samples(again)) == list(range(100))
    assert again.take(shard, [5]) == source.take(shard, [5])
    assert len(pickle.dumps(source)) < 2000


@forms
def test_several_threads_may_read_at_once(tmp_path: Path, form: Form) -> None:
    urls = [form.write(tmp_path / f"{n}", numbered(300, start=300 * n), 40) for n in range(3)]
    source = form.source(urls)
    start = threading.Barrier(8)

    def read(seed: int) -> None:
        draw = random.Random(seed)
        start.wait()
        for _ in range(60):
            shard = draw.choice(source.shards())
            indices = draw.sample(range(source.length(shard)), 5)
            first = shard.start + 300 * urls.index(shard.url)
            samples = source.take(shard, indices)
            assert numbers(samples) == [first + index for index in indices]
            assert [sample["v"].tolist() for sample in samples] == [[first + index] * 3 for index in indices]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(8))) == [None] * 8


@seekable_forms
def test_views_outlive_their_source(tmp_path: Path, form: Form) -> None:
    source = form.source(form.write(tmp_path / "a", numbered(50)))
    samples = all_samples(source)
    del source
    (tmp_path / "a").unlink()
    assert [sample["v"].tolist() for sample in samples] == [[n] * 3 for n in range(50)]
    assert not samples[0]["v"].flags.writeable


# Other places


@forms
def test_files_in_a_store_are_read(form: Form) -> None:
    store = fsspec.filesystem("memory")
    urls = []
    for number in range(2):
        store.pipe_file(f"/tables/{form.name}/{number}{form.suffix}", form.pack(numbered(50, start=50 * number), 20))
        urls.append(f"memory://tables/{form.name}/{number}{form.suffix}")
    source = form.source(f"memory://tables/{form.name}/")
    assert sorted({shard.url for shard in source.shards()}) == urls
    assert numbers(all_samples(source)) == list(range(100))
    assert numbers(source.take(Shard(urls[1]), [49, 0])) == [99, 50]
    before = source.fingerprint(Shard(urls[0]))
    store.pipe_file(f"/tables/{form.name}/0{form.suffix}", form.pack(numbered(50), 20))
    assert form.source(urls).fingerprint(Shard(urls[0])) != before


@forms
def test_files_may_be_kept_in_a_cache(tmp_path: Path, form: Form) -> None:
    fsspec.filesystem("memory").pipe_file("/cached/a.bin", form.pack(numbered(50), 20))
    source = form.source("memory://cached/a.bin", cache=tmp_path / "cache")
    assert numbers(all_samples(source)) == list(range(50))
    assert [name for name in os.listdir(tmp_path / "cache") if name.endswith("a.bin")]
    assert all_samples(source)[0]["__key__"] == "a-000000000"


def test_a_file_that_the_cache_cannot_hold_is_read_where_it_is(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe_file("/cached/large.parquet", parquet(numbered(50)))
    source = ParquetSource("memory://cached/large.parquet", cache=ShardCache(tmp_path, max_bytes=10))
    with pytest.warns(UserWarning, match="the file is read where it is instead"):
        assert numbers(all_samples(source)) == list(range(50))


@forms
def test_a_file_inside_an_archive_is_read(tmp_path: Path, form: Form) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("in/a.bin", form.pack(numbered(50), 20))
    source = form.source(f"zip://in/a.bin::file://{tmp_path}/all.zip")
    samples = all_samples(source)
    assert numbers(samples) == list(range(50))
    assert samples[3]["__key__"] == "a-000000003"


# Damage


@forms
def test_a_file_that_is_cut_anywhere_is_an_error_that_names_it(tmp_path: Path, form: Form) -> None:
    whole = form.pack(numbered(40), 20)
    for size in [*range(40), *range(40, len(whole) - 8, 97), *range(len(whole) - 8, len(whole))]:
        (tmp_path / "a").write_bytes(whole[:size])
        with pytest.raises(ShardError) as caught:
            all_samples(form.source(tmp_path / "a"))
        assert caught.value.shard == str(tmp_path / "a")


@forms
def test_other_files_are_refused_with_what_they_are(tmp_path: Path, form: Form) -> None:
    others = {
        b"": "empty",
        gzip.compress(form.pack(numbered(3))): r"compressed \(gz\).*decompress it first",
        b"FEA1" + bytes(100): "Feather file of the first version",
        b"id,name\n1,x\n": "id,name|damaged",
        bytes(100): "begins with|damaged",
        random.Random(0).randbytes(1000): "begins with|damaged",
    }
    others[(parquet if form.source is ArrowSource else arrow)(numbered(3))] = "which read_(arrow|parquet) reads"
    for data, text in others.items():
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(ShardError, match=text) as caught:
            all_samples(form.source(tmp_path / "a"))
        assert caught.value.shard == str(tmp_path / "a")


@forms
def test_damage_anywhere_gives_samples_or_an_error_that_names_it(tmp_path: Path, form: Form) -> None:
    whole = form.pack(numbered(200), 50)
    draw = random.Random(7)
    errors: list[str | None] = []
    for _ in range(150):
        at, length = draw.randrange(len(whole)), draw.choice([1, 4, 200])
        (tmp_path / "a").write_bytes(whole[:at] + draw.randbytes(length) + whole[at + length :])
        errors.append(complaint_about(form.source(tmp_path / "a")))
    assert {error is None or str(tmp_path / "a") in error for error in errors} == {True}
    assert len([error for error in errors if error is not None]) > 10


def complaint_about(source: ParquetSource | ArrowSource) -> str | None:
    try:
        all_samples(source)
    except ShoalError as error:
        return str(error)
    return None


@forms
def test_a_folder_in_the_place_of_a_file_is_an_error(tmp_path: Path, form: Form) -> None:
    with pytest.raises(ShoalError, match=r"folder|holds no"):
        all_samples(form.source(tmp_path))


def test_without_pyarrow_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for source in (ParquetSource(tmp_path / "a"), ArrowSource(tmp_path / "a")):
        (tmp_path / "a").touch()
        with pytest.raises(MissingExtraError, match=r'pip install "shoal\[tables\]"'):
            source.shards()


# What is kept


def test_what_was_asked_for_last_is_kept_while_it_fits() -> None:
    kept: Kept[str] = Kept(10, len)
    made: list[int] = []

    def ask(number: int, size: int) -> None:
        assert kept.get(number, lambda: made.append(number) or "x" * size) == "x" * size  # type: ignore[func-returns-value]

    for number, size in [(1, 5), (2, 5), (1, 5), (3, 5), (1, 5), (2, 5), (4, 99), (4, 99), (1, 5)]:
        ask(number, size)
    assert made == [1, 2, 3, 2, 4, 1]
    assert pickle.loads(pickle.dumps(kept)).get(1, lambda: "new") == "new"


def test_what_could_not_be_made_is_tried_again() -> None:
    kept: Kept[int] = Kept(10, int)
    with pytest.raises(ZeroDivisionError):
        kept.get("a", lambda: 1 // 0)
    assert kept.get("a", lambda: 7) == 7


def test_a_thing_is_made_once_for_all_who_ask_together() -> None:
    kept: Kept[int] = Kept(10, int)
    made: list[int] = []
    start = threading.Barrier(6)

    def make() -> int:
        made.append(1)
        started.wait(10)
        return 3

    started = threading.Event()

    def ask(number: int) -> int:
        start.wait()
        if number == 0:
            started.set()
        return kept.get("a", make)

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(ask, range(6))) == [3] * 6
    assert len(made) == 1


# Datasets


@pytest.mark.parametrize("form", [FORMS[0], FORMS[1], FORMS[4]], ids=lambda form: form.name)
def test_a_dataset_of_rows_is_like_any_other(tmp_path: Path, form: Form) -> None:
    for number in range(3):
        form.write(tmp_path / f"{number}{form.suffix}", numbered(40, start=40 * number), 15)
    read = shoal.read_parquet if form.source is ParquetSource else shoal.read_arrow
    dataset = read(tmp_path, ["n", "v"])
    assert dataset.count() == 120
    assert numbers(list(dataset.filter(lambda sample: sample["n"] % 2))) == list(range(1, 120, 2))
    batches = list(dataset.shuffle("full", seed=3).loader(20))
    assert sorted(n for batch in batches for n in batch["n"].tolist()) == list(range(120))
    assert {(batch["v"].shape, str(batch["v"].dtype)) for batch in batches} == {((20, 3), "float32")}
    written = dataset.map(lambda sample: {"cls": sample["n"]}).write_tar(tmp_path / "out-%d.tar")
    again = list(shoal.read_tar([shard.url for shard in written]).decode())
    assert [sample["cls"] for sample in again] == list(range(120))
    assert again[40]["__key__"] == "1-000000000"


def test_options_reach_the_source(tmp_path: Path) -> None:
    FORMS[0].write(tmp_path / "a.parquet", numbered(2))
    assert list(shoal.read_parquet(tmp_path / "a.parquet", ["n"], key="text")) == [
        {"__key__": "t0", "n": 0},
        {"__key__": "t1", "n": 1},
    ]
    FORMS[4].write(tmp_path / "a.arrows", numbered(2))
    assert list(shoal.read_arrow(f"pipe:cat {tmp_path}/a.arrows", ["n"], key="text", trust=True))[1]["__key__"] == "t1"


# Sizes


@seekable_forms
def test_the_sizes_of_groups_add_up_to_nearly_the_file(tmp_path: Path, form: Form) -> None:
    noise = [os.urandom(500) for _ in range(100)]
    url = form.write(tmp_path / "a", pa.table({"n": range(100), "noise": noise}), 30)
    source = form.source(url)
    sizes = [source.size(shard) for shard in source.shards()]
    assert len(sizes) == 4
    assert 0.9 * os.path.getsize(url) < sum(sizes) < os.path.getsize(url)
    assert source.size(Shard(url)) == pytest.approx(sum(sizes), abs=1)
    assert source.size(Shard(url, 10, 50)) == pytest.approx(sizes[0] * 2 / 3 + sizes[1] * 2 / 3, abs=1)
    assert source.size(Shard(url, 0, None, 2)) == pytest.approx(sum(sizes) / 2, abs=1)
    assert source.size(Shard(url, 5, 5)) == 0


def test_the_size_of_a_parquet_shard_is_that_of_the_columns_that_are_read(tmp_path: Path) -> None:
    form = FORMS[0]
    noise = [os.urandom(500) for _ in range(100)]
    source = form.source(form.write(tmp_path / "a", pa.table({"n": range(100), "noise": noise})), columns=["n"])
    assert 0 < source.size(source.shards()[0]) < 5000


def test_the_size_of_a_stream_is_that_of_its_file(tmp_path: Path) -> None:
    source = ArrowSource(write_stream(tmp_path / "a.arrows"))
    (shard,) = source.shards()
    size = os.path.getsize(shard.url)
    assert source.size(shard) == size
    assert [source.size(part) for part in source.split(shard, 2)] == [size // 2] * 2
    assert source.size(Shard(shard.url, 0, 3)) is None
    assert ArrowSource("-").size(Shard("-")) is None


def write_stream(path: Path) -> str:
    path.write_bytes(arrow(numbered(50), stream=True))
    return str(path)
