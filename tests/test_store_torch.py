"""torch over the store: tensors that lie in it, and stored tables and partitions as datasets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, TensorDataset

from shoal.errors import PlanError, StoreError
from shoal.store import Store, connect, make_global_dataframe, make_global_tensor
from shoal.store.torch import register_torch_types, torch_context


@pytest.fixture
def store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory(prefix="shoal-test-", dir="/dev/shm") as folder:
        yield connect(f"{folder}/store", memory="500MB")


TYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("rows", [3, 70_000], ids=["small", "mapped"])
def test_a_tensor_of_any_type_comes_back_as_it_was(store: Store, dtype: torch.dtype, rows: int) -> None:
    value = (torch.rand(rows, 2) * 3).to(dtype)
    number = store.put(value)
    back = store.get(number)
    assert store.get_meta(number).typename == f"vineyard::Tensor<{dtype}>"
    assert (back.dtype, back.shape) == (dtype, value.shape)
    assert torch.equal(back.view(torch.uint8), value.view(torch.uint8))


@pytest.mark.parametrize("value", [torch.tensor(2.5), torch.empty(0, 4), torch.arange(12).reshape(3, 4).T])
def test_odd_shapes_come_back(store: Store, value: torch.Tensor) -> None:
    back = store.get(store.put(value))
    assert back.shape == value.shape
    assert torch.equal(back, value)


def test_a_large_tensor_is_not_copied(store: Store) -> None:
    """What is mapped is the file of the store, whichever process maps it."""
    value = torch.arange(4_000_000, dtype=torch.float32)
    number = store.put(value)
    private = _private()
    found = [store.get(number) for _ in range(4)]
    assert all(torch.equal(each, value) for each in found)
    assert _private() - private < 16_000_000


def test_what_is_written_to_a_tensor_is_its_owners_alone(store: Store) -> None:
    value = torch.zeros(100_000)
    number = store.put(value)
    mine, other = store.get(number), store.get(number)
    mine += 1
    assert mine.sum() == 100_000
    assert other.sum() == 0
    assert store.get(number).sum() == 0


def test_a_tensor_outlives_its_object(store: Store) -> None:
    number = store.put(torch.full((50_000,), 7.0))
    kept = store.get(number)
    store.delete(number)
    for _ in range(4):  # whatever comes next does not lie in the same memory
        store.put(torch.zeros(50_000))
    assert kept.unique().tolist() == [7.0]


def test_a_state_comes_back_into_a_module_and_can_be_trained(store: Store) -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.BatchNorm1d(300))
    number = store.put(model)
    assert store.get(store.put(model.state_dict())).keys() == model.state_dict().keys()
    other = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.BatchNorm1d(300))
    other.load_state_dict(store.get(number), assign=True)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    other(torch.rand(8, 300)).sum().backward()
    optimizer.step()
    assert not torch.equal(other[0].weight, model[0].weight)
    assert torch.equal(store.get(number)["0.weight"], model[0].weight)


def test_sparse_tensors_are_refused_with_a_way_out(store: Store) -> None:
    with pytest.raises(StoreError, match="make it dense"):
        store.put(torch.eye(3).to_sparse())


def test_a_tensor_dataset_round_trips(store: Store) -> None:
    pair = [torch.rand(2, 3, dtype=torch.float64) for _ in range(2)]
    with torch_context():
        number = store.put(TensorDataset(*pair))
        back = store.get(number)
    assert isinstance(back, TensorDataset)
    assert len(back.tensors) == 2
    assert all(torch.equal(one, other) for one, other in zip(back.tensors, pair, strict=True))
    frame = store.get(number)
    assert frame.columns.tolist() == [0, 1]
    np.testing.assert_array_equal(np.stack(list(frame[1])), pair[1].numpy())


class Squares(Dataset[Any]):
    def __len__(self) -> int:
        return 5000

    def __getitem__(self, index: int) -> Any:
        if index >= len(self):
            raise IndexError(index)
        return {"root": index, "square": torch.tensor([float(index), float(index) ** 2], dtype=torch.float64)}


class Counting(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from ((torch.tensor(at), at * 2.0) for at in range(10))


def test_any_dataset_becomes_a_frame_of_columns(store: Store) -> None:
    with torch_context():
        number, other = store.put(Squares()), store.put(Counting())
        back = store.get(number, data="root", label="square")
        assert [tensor.tolist() for tensor in back[4999]] == [4999, [4999.0, 4999.0**2]]
        assert [tensor.dtype for tensor in store.get(other).tensors] == [torch.int64, torch.float64]
    assert store.get(number).columns.tolist() == ["root", "square"]


FRAME = pd.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6], "c": [1.5, 2.5, 3.5]})


@pytest.mark.parametrize(
    "value", [FRAME, pa.RecordBatch.from_pandas(FRAME), pa.Table.from_pandas(FRAME)], ids=["pandas", "batch", "table"]
)
def test_tables_are_datasets_inside_the_context_and_themselves_outside(store: Store, value: Any) -> None:
    number = store.put(value)
    with torch_context():
        back = store.get(number)
        assert [tensor.dtype for tensor in back.tensors] == [torch.int64, torch.int64, torch.float64]
        assert [tensor[1].item() for tensor in back.tensors] == [2, 5, 2.5]
        assert [each.item() for each in store.get(number, data="c", label="a")[2]] == [3.5, 3]
        assert [each.item() for each in store.get(number, label="a")[2]] == [6, 3.5, 3]
        assert [each.item() for each in store.get(number, data=["b", "a"])[0]] == [4, 1]
    outside = store.get(number)
    assert type(outside) is type(value)
    assert outside.equals(value)


def test_arrays_are_tensors_inside_the_context_and_columns_keep_their_shapes(store: Store) -> None:
    array = np.random.default_rng(0).random((40, 50, 60))
    series = pd.Series([1, 2, 3])
    numbers = [store.put(array), store.put(series), store.put({"x": array, "y": np.arange(40)})]
    with torch_context():
        back = store.get(numbers[0])
        assert isinstance(back, torch.Tensor)
        assert (back.numpy() == array).all()
        assert isinstance(store.get(numbers[1]), pd.Series)


def test_a_column_that_torch_has_no_type_for_is_named(store: Store) -> None:
    number = store.put(pd.DataFrame({"word": ["a", "b"], "n": [1, 2]}))
    with torch_context():
        with pytest.raises(PlanError, match=r"'word'.*data='x'"):
            store.get(number)
        with pytest.raises(PlanError, match=r"no column 'm'; there are 'word', 'n'"):
            store.get(number, data="m")
        assert store.get(number, data="n")[1][0] == 2


def parts(store: Store, count: int = 5) -> Any:
    frames = [pd.DataFrame({"x": list(np.full((4, 2, 3), part, "f4")), "y": part}) for part in range(count)]
    frames[1] = frames[1].iloc[:0]
    return make_global_dataframe(store, [store.put(frame) for frame in frames]).id


def test_partitions_are_one_dataset_in_their_order(store: Store) -> None:
    number = parts(store)
    with torch_context():
        back = store.get(number, data="x", label="y")
    assert isinstance(back, ConcatDataset)
    assert [int(label) for _, label in back] == [0] * 4 + [2] * 4 + [3] * 4 + [4] * 4
    batch, labels = next(iter(DataLoader(back, batch_size=6)))
    assert batch.shape == (6, 2, 3)
    assert labels.tolist() == [0, 0, 0, 0, 2, 2]


def test_workers_share_a_store_by_their_ranks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    number = parts(store)
    seen = []
    for rank in range(2):
        for name, value in {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2}.items():
            monkeypatch.setenv(name, str(value))
        with torch_context():
            seen.append([int(label) for _, label in store.get(number, data="x", label="y")])
    assert sorted(seen[0] + seen[1]) == [0] * 4 + [2] * 4 + [3] * 4 + [4] * 4
    assert all(seen)
    assert not {*seen[0]} & {*seen[1]}
    with torch_context(), pytest.raises(StoreError, match=r"no partition for this worker.*partitions='all'"):
        store.get(number, data="x", label="y", rank=7, world_size=8)


def test_a_tensor_in_partitions_is_a_dataset_of_its_rows(store: Store) -> None:
    arrays = [np.full((3, 2), part) for part in range(3)]
    number = make_global_tensor(store, [store.put(each, partition_index=(at, 0)) for at, each in enumerate(arrays)]).id
    tensors = make_global_tensor(store, [store.put(torch.full((2,), at, dtype=torch.bfloat16)) for at in range(2)]).id
    beside = make_global_tensor(store, [store.put(each, partition_index=(0, at)) for at, each in enumerate(arrays)]).id
    with torch_context():
        assert [row[0].tolist() for row in store.get(number)] == [[at, at] for at in (0, 0, 0, 1, 1, 1, 2, 2, 2)]
        assert [row[0].item() for row in store.get(tensors)] == [0, 0, 1, 1]
        with pytest.raises(PlanError, match="rechunk"):
            store.get(beside)


def test_registrations_end_with_their_context(store: Store) -> None:
    from shoal.store import resolver_context

    number = store.put(FRAME)
    with resolver_context() as resolvers:
        register_torch_types(None, resolvers)
        assert isinstance(store.get(number), TensorDataset)
    assert isinstance(store.get(number), pd.DataFrame)


def _private() -> int:
    """Count the bytes that are this process's alone."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))
