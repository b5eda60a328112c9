"""TensorFlow over the store: stored tables, arrays and partitions as datasets, and datasets in the store."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf

from shoal.errors import PlanError, StoreError
from shoal.store import Store, connect, make_global_dataframe, make_global_tensor, resolver_context
from shoal.store.tensorflow import register_tensorflow_types, register_tf_types, tensorflow_context

pytestmark = pytest.mark.slow


@pytest.fixture
def store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory(prefix="shoal-test-", dir="/dev/shm") as folder:
        yield connect(f"{folder}/store", memory="1GB")


def elements(dataset: Any) -> list[Any]:
    return list(dataset.as_numpy_iterator())


def test_pairs_keep_shapes_and_length(store: Store) -> None:
    data, label = np.random.default_rng(0).random((2, 10, 2, 3))
    with tensorflow_context():
        number = store.put(tf.data.Dataset.from_tensor_slices((data, label)))
        back = store.get(number)
    assert len(back) == 10
    assert [spec.shape for spec in back.element_spec] == [(2, 3), (2, 3)]
    for at, (one, other) in enumerate(elements(back)):
        assert (one == data[at]).all()
        assert (other == label[at]).all()
    frame = store.get(number)
    assert frame.columns.tolist() == ["data", "label"]
    assert (np.stack(list(frame["data"])) == data).all()


def test_dicts_keep_their_columns_and_texts(store: Store) -> None:
    features = {"n": np.arange(5, dtype=np.int32), "word": [f"w{at}" for at in range(5)]}
    with tensorflow_context():
        number = store.put(tf.data.Dataset.from_tensor_slices((features, np.arange(5) % 2)))
        plain = store.put(tf.data.Dataset.from_tensor_slices(features))
        back = store.get(number)
        assert set(back.element_spec[0]) == {"n", "word"}
        assert back.element_spec[0]["n"].dtype == tf.int32
        assert elements(back)[3] == ({"n": 3, "word": b"w3"}, 1)
        assert elements(store.get(plain))[4] == {"n": 4, "word": b"w4"}
    assert store.get(number)["word"].tolist() == [b"w0", b"w1", b"w2", b"w3", b"w4"]


def test_tensors_and_datasets_of_tensors_come_back(store: Store) -> None:
    tensor = tf.random.uniform((7, 3))
    with tensorflow_context():
        one, other = store.put(tensor), store.put(tf.data.Dataset.from_tensor_slices(tensor))
        assert tf.reduce_all(store.get(one) == tensor)
        assert (np.stack(elements(store.get(other))) == tensor.numpy()).all()
        scalar = store.get(store.put(tf.constant(2.5)))
        assert scalar.numpy() == 2.5
    assert (store.get(other) == tensor.numpy()).all()


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (tf.data.Dataset.range(3).repeat(), "no end"),
        (tf.data.Dataset.range(0), "no elements"),
        (tf.data.Dataset.from_tensor_slices(([1], [2], [3])), "cannot be put"),
    ],
)
def test_datasets_that_cannot_be_put_are_refused(store: Store, dataset: Any, why: str) -> None:
    with tensorflow_context(), pytest.raises(PlanError, match=why):
        store.put(dataset)


def test_a_record_batch_gives_features_and_the_label(store: Store) -> None:
    columns = {"f0": [1, 2, 3, 4], "f1": [0.5, 1.5, 2.5, 3.5], "label": [0, 1, 0, 1]}
    for value in (pa.RecordBatch.from_pydict(columns), pa.table(columns), pd.DataFrame(columns)):
        number = store.put(value)
        with tensorflow_context():
            back = store.get(number)
        features, label = back.element_spec
        assert (sorted(features), label.dtype, len(back)) == (["f0", "f1"], tf.int64, 4)
        assert elements(back)[2] == ({"f0": 3, "f1": 2.5}, 0)
        assert type(store.get(number)) is type(value)


def test_columns_are_chosen_and_wrong_ones_named(store: Store) -> None:
    frame = pd.DataFrame(
        {"x": list(np.arange(12).reshape(3, 2, 2)), "y": [5, 6, 7], "when": pd.Timestamp("2026-01-01")}
    )
    number = store.put(frame)
    with tensorflow_context():
        back = store.get(number, data="x", label="y")
        assert elements(back)[2][0].tolist() == [[8, 9], [10, 11]]
        assert [label for _, label in elements(back)] == [5, 6, 7]
        assert elements(store.get(number, data=["y"])) == [{"y": 5}, {"y": 6}, {"y": 7}]
        with pytest.raises(PlanError, match="no column 'z'; there are 'x', 'y', 'when'"):
            store.get(number, data="z")
        with pytest.raises(PlanError, match="'when'"):
            store.get(number)
        with pytest.raises(PlanError, match="no option 'labels'"):
            store.get(number, labels="y")


def test_lists_of_one_length_in_arrow_are_arrays(store: Store) -> None:
    number = store.put(pa.table({"x": [[1.0, 2.0], [3.0, 4.0]], "label": [0, 1]}))
    ragged = store.put(pa.table({"x": [[1.0, 2.0], [3.0]], "label": [0, 1]}))
    with tensorflow_context():
        assert store.get(number).element_spec[0]["x"].shape == (2,)
        with pytest.raises(PlanError, match="'x'"):
            store.get(ragged)


def digits(store: Store, parts: int, rows: int, side: int = 28) -> Any:
    """Put a frame in partitions whose labels say where rows are from; the second has none."""
    made = []
    for part in range(parts):
        data = np.full((rows, side, side), part, np.float64)
        frame = pd.DataFrame({"x": list(data), "y": np.arange(rows) + 1000 * part})
        made.append(store.put(frame.iloc[:0] if part == 1 else frame, partition_index=(part, 0)))
    return make_global_dataframe(store, made).id


@pytest.mark.parametrize("rows", [20, 700], ids=["copied", "in blocks"])
def test_partitions_come_in_their_order_whatever_their_size(store: Store, rows: int) -> None:
    number = digits(store, 4, rows)
    with tensorflow_context():
        back = store.get(number, data="x", label="y")
    assert len(back) == 3 * rows
    assert back.element_spec[0].shape == (28, 28)
    expected = [at + 1000 * part for part in (0, 2, 3) for at in range(rows)]
    for _ in range(2):
        seen = [(int(data[0, 0]), int(label)) for data, label in elements(back)]
        assert seen == [(label // 1000, label) for label in expected]
    first, labels = next(iter(back.repeat().batch(5 * rows)))
    assert first.shape == (5 * rows, 28, 28)
    assert labels[-1] == 2000 + rows - 1


def test_texts_and_tables_come_in_blocks_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.store.tensorflow._SMALL", 0)
    monkeypatch.setattr("shoal.store.tensorflow._BLOCK", 100)
    tables = [pa.table({"word": [f"{part} {at}" for at in range(50)], "n": range(50)}) for part in range(3)]
    number = make_global_dataframe(store, [store.put(table) for table in tables]).id
    with tensorflow_context():
        back = elements(store.get(number, label="n"))
    assert [(each["word"].decode(), int(n)) for each, n in back] == [
        (f"{part} {at}", at) for part in range(3) for at in range(50)
    ]


def test_reading_does_not_copy_what_lies_in_the_store(store: Store) -> None:
    """Of 200 MB, a worker has hardly more than a few blocks for itself."""
    number = digits(store, 4, 11_000)
    with tensorflow_context():
        warm = store.get(number, data="x", label="y")
        list(warm.take(3000).batch(100))
        before = _private()
        count = sum(1 for _ in store.get(number, data="x", label="y").batch(100))
    assert count == 330
    assert _private() - before < 60_000_000


def test_workers_of_one_host_share_its_store_by_rank(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    number = digits(store, 8, 10)
    cluster = {"worker": ["127.0.0.1:5001", "127.0.0.1:5002", "127.0.0.9:5001"]}
    seen = []
    for index in range(2):
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}))
        with tensorflow_context():
            labels = [int(label) // 1000 for _, label in elements(store.get(number, data="x", label="y"))]
        seen.append(sorted({*labels}))
    assert seen == [[0, 2, 3], [4, 5, 6, 7]]
    assert [len(store.get(number))] == [4]


def test_a_worker_without_partitions_is_told_so(store: Store) -> None:
    elsewhere = make_global_dataframe(store, [store.put(pd.DataFrame({"x": [1]}))], owners=[store.instance_id ^ 1]).id
    with tensorflow_context(), pytest.raises(StoreError, match=r"no partition for this worker: 0 of its 1 are"):
        store.get(elsewhere)


def test_a_tensor_in_partitions_is_a_dataset_of_its_rows(store: Store) -> None:
    blocks = [store.put(np.full((2, 3), part), partition_index=(part, 0)) for part in range(3)]
    number = make_global_tensor(store, blocks).id
    with tensorflow_context():
        back = store.get(number)
    assert [row.tolist() for row in elements(back)] == [[part] * 3 for part in (0, 0, 1, 1, 2, 2)]


def test_registrations_end_with_their_context(store: Store) -> None:
    number = store.put(pd.DataFrame({"a": [1]}))
    for register in (register_tf_types, register_tensorflow_types):
        with resolver_context() as resolvers:
            register(None, resolvers)
            assert isinstance(store.get(number), tf.data.Dataset)
    assert isinstance(store.get(number), pd.DataFrame)
    series = store.put(pd.Series([1, 2]))
    with tensorflow_context():
        assert store.get(series).tolist() == [1, 2]


def _private() -> int:
    """Count the bytes that are this process's alone."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))
