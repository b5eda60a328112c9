"""Batches that are made of columns are what they would be if they were made sample by sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal.errors import MissingFieldError
from shoal.pipeline import Dataset
from shoal.shards import ShardWriter


def same(a: Any, b: Any) -> bool:
    """Compare batches by value, type and dtype."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    return bool(a == b) or (a != a and b != b)


def by_rows(dataset: Dataset) -> Dataset:
    return dataset.map(lambda sample: sample)


def real_keys(batch: dict[str, Any]) -> list[str]:
    """List the keys of rows that are no padding."""
    keys = batch["__key__"]
    return [key for key, real in zip(keys, batch.get("__mask__", [True] * len(keys)), strict=True) if real]


def goes_as_columns(loader: Any) -> bool:
    """Tell by the stages that were done: none, if batches were made of columns."""
    return [stage.name for stage in loader.statistics().stages] == ["read"]


@pytest.fixture(scope="module")
def tar(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tar")
    with ShardWriter(f"{folder}/s-%d.tar", maxcount=37) as writer:
        for number in range(300):
            writer.write({"__key__": f"k{number}", "bin": bytes([number % 256]) * (number % 50), "cls": str(number)})
    return f"{folder}/s-{{0..8}}.tar"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("table") / "a.parquet"
    rows = 300
    columns = {
        "n": pa.array(range(rows), pa.int32()),
        "x": pa.array([float(i) / 3 for i in range(rows)], pa.float32()),
        "sometimes": pa.array([None if i % 5 == 0 and i > 150 else i for i in range(rows)], pa.int64()),
        "text": pa.array([f"t{i}" for i in range(rows)]),
        "data": pa.array([bytes(i % 7) for i in range(rows)], pa.binary()),
        "vector": pa.array([[float(i)] * 4 for i in range(rows)], pa.list_(pa.float32(), 4)),
        "ragged": pa.array([list(range(i % 3 if i > 200 else 2)) for i in range(rows)], pa.list_(pa.int16())),
        "flag": pa.array([i % 2 == 0 for i in range(rows)]),
    }
    pq.write_table(pa.table(columns), path, row_group_size=41)
    return str(path)


OPTIONS = st.fixed_dictionaries(
    {
        "batch_size": st.sampled_from([1, 7, 16, 64, 299, 512]),
        "workers": st.sampled_from([0, 1, 2]),
        "end": st.sampled_from(["pad", "drop"]),
    }
)
SHUFFLES = st.sampled_from([None, "full", "shards"])


@pytest.mark.parametrize("kind", ["tar", "table"])
@given(options=OPTIONS, shuffle=SHUFFLES, seed=st.integers(0, 5))
def test_columns_and_rows_give_the_same_batches(
    kind: str, tar: str, table: str, options: dict[str, Any], shuffle: str | None, seed: int
) -> None:
    dataset = shoal.read_tar(tar) if kind == "tar" else shoal.read_parquet(table)
    dataset = dataset if shuffle is None else dataset.shuffle(shuffle, seed=seed, window=3)
    columns, rows = dataset.loader(**options), by_rows(dataset).loader(**options)
    for mine, other in zip(columns, rows, strict=True):
        assert same(mine, other)
    assert columns.order_digest() == rows.order_digest()
    assert goes_as_columns(columns)
    assert not goes_as_columns(rows)


@pytest.mark.parametrize("kind", ["tar", "table"])
def test_columns_resume_in_the_middle_on_several_ranks(kind: str, tar: str, table: str) -> None:
    dataset = (shoal.read_tar(tar) if kind == "tar" else shoal.read_parquet(table)).shuffle("shards", seed=2, window=3)
    loader = dataset.loader(16)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    state = loader.state_dict()
    rest = list(batches)
    ranks = [dataset.loader(16, rank=rank, world_size=3) for rank in range(3)]
    for rank in ranks:
        rank.load_state_dict(state)
    parts = [list(rank) for rank in ranks]
    for whole, *some in zip(rest, *parts, strict=True):
        keys = [
            k
            for part in some
            for k, real in zip(part["__key__"], part.get("__mask__", [True] * 99), strict=False)
            if real
        ]
        real = whole.get("__mask__", np.ones(16, bool))
        assert sorted(keys) == sorted(np.array(whole["__key__"])[real].tolist())


def test_a_selection_stays_columns(tar: str) -> None:
    dataset = shoal.read_tar(tar).shuffle("full").select("class;cls", "bin")
    loader = dataset.loader(32)
    assert all(map(same, loader, by_rows(dataset).loader(32)))
    assert goes_as_columns(loader)


def test_what_a_selection_misses_is_named(tar: str) -> None:
    with pytest.raises(MissingFieldError, match=r"sample 'k\d+', field 'jpg'"):
        list(shoal.read_tar(tar).select("jpg").loader(32))


def test_samples_with_different_fields_go_one_by_one(tmp_path: Path) -> None:
    with ShardWriter(f"{tmp_path}/s-%d.tar", maxcount=10) as writer:
        for number in range(40):
            extra = {"txt": "t"} if number >= 20 else {}
            writer.write({"__key__": f"{number}", "cls": number, **extra})
    dataset = shoal.read_tar(f"{tmp_path}/s-{{0..3}}.tar")
    batches = list(dataset.loader(10))
    assert [list(batch) for batch in batches] == [["__key__", "cls"]] * 2 + [["__key__", "cls", "txt"]] * 2
    with pytest.raises(MissingFieldError, match="txt"):
        list(dataset.shuffle("full").loader(10))


def test_batches_can_be_kept(tar: str) -> None:
    dataset = shoal.read_tar(tar).shuffle("full")
    kept = list(dataset.loader(16))
    again = list(dataset.loader(16))
    assert all(map(same, kept, again))


def test_a_part_goes_as_columns_too(table: str) -> None:
    loader = shoal.read_parquet(table).part(0, 2).loader(16)
    assert sum(len(batch["n"]) for batch in loader) > 100
    assert goes_as_columns(loader)
