"""A tf.data pipeline over several workers: each element goes to one of them, once an epoch, whatever it is made of."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import shoal
from shoal.abc import Member
from shoal.engines import current
from shoal.errors import PlanError, StateError
from shoal.learn._data import Ask, Prepared
from shoal.learn._job import Rows
from shoal.learn._meeting import Join, Meeting
from shoal.learn.keras._keras_data import keras_prepared
from shoal.learn.tf2._tensorflow_data import inputs_of, tensorflow_prepared
from support.engine import by_value, wait_until
from support.lengths import first

pytestmark = pytest.mark.slow

HERE = os.getpid()
Dataset: Any = tf.data.Dataset
Policy: Any = tf.data.experimental.AutoShardPolicy


@dataclass
class Seen:
    """What workers got: for each of them the numbers of each of its batches."""

    every: list[list[list[int]]]
    rows: list[Rows] = field(default_factory=list)

    @property
    def steps(self) -> list[int]:
        return [len(mine) for mine in self.every]

    @property
    def together(self) -> list[list[int]]:
        """The parts of each batch, put together."""
        return [[number for part in parts for number in part] for parts in zip(*self.every, strict=True)]

    @property
    def all(self) -> list[int]:
        return sorted(number for mine in self.every for batch in mine for number in batch)


def pairs(dataset: Any) -> Any:
    """Let the target of a number be three times the number."""
    return dataset.map(lambda number: (number, 3 * number))


def numbers(count: int) -> Any:
    return pairs(Dataset.range(count))


def prepared(data: Any, workers: int, batch_size: int | None = None, **ask: Any) -> Prepared:
    return tensorflow_prepared(data, Ask(**ask, workers=workers), batch_size)


def copies(rows: Rows, workers: int) -> list[Rows]:
    """Give each worker rows of its own, as they get them."""
    return [pickle.loads(pickle.dumps(rows)) for _ in range(workers)]


def taken(rows: Rows, batch: Any) -> list[int]:
    (inputs,), (targets,), count = rows.taken(batch)
    assert len(inputs) == max(count, 1)
    assert targets.tolist() == [3 * number for number in inputs.tolist()]
    return [int(number) for number in inputs[:count]]


def at_once(function: Callable[[int], Any], workers: int) -> list[Any]:
    """Call a function for each rank, all at the same time."""
    results: list[Any] = [None] * workers
    failures: list[BaseException] = []

    def call(rank: int) -> None:
        try:
            results[rank] = function(rank)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=[rank]) for rank in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    if failures:
        raise failures[0]
    return results


def read(rows: list[Rows], batch: int = 4, **options: Any) -> Seen:
    """Read an epoch as several workers would."""

    def one(rank: int) -> list[list[int]]:
        loader = rows[rank].loader(batch, rank, len(rows), "numpy", **options)
        return [taken(rows[rank], each) for each in loader]

    return Seen(at_once(one, len(rows)), rows)


def seen(data: Any, workers: int, batch: int = 4, **options: Any) -> tuple[Seen, Any]:
    ask = {name: options.pop(name) for name in ("shuffle",) if name in options}
    found = prepared(data, workers, **ask)
    try:
        return read(copies(found.rows, workers), batch, **options), found.rows
    finally:
        found.release()


def from_generator(count: int, here: int = HERE) -> Any:
    def generate() -> Iterator[int]:
        assert os.getpid() == here, "this process should not read here"
        yield from range(count)

    return pairs(Dataset.from_generator(generate, output_signature=tf.TensorSpec((), tf.int64)))


def from_function(count: int, wrapped: Any) -> Any:
    """Give numbers that go through a Python function, which knows where it is."""

    def same(number: Any) -> Any:
        assert os.getpid() == HERE, "this process should not read here"
        return np.asarray(number)

    def mapped(number: Any) -> Any:
        found = wrapped(same, [number], tf.int64)
        found.set_shape(())
        return found, 3 * found

    return Dataset.range(count).map(mapped)


def written(folder: Path, *files: list[int]) -> list[str]:
    paths = [folder / f"{number}.txt" for number in range(len(files))]
    for path, values in zip(paths, files, strict=True):
        path.write_text("".join(f"{value}\n" for value in values))
    return list(map(str, paths))


def lines(files: Any) -> Any:
    return pairs(tf.data.TextLineDataset(files).map(lambda line: tf.strings.to_number(line, tf.int64)))


KINDS: dict[str, Callable[[int], Any]] = {
    "range": numbers,
    "generator": from_generator,
    "py_function": partial(from_function, wrapped=tf.py_function),
    "numpy_function": partial(from_function, wrapped=tf.numpy_function),
}


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_run_in_one_place_is_dealt_out_in_batches(kind: str, workers: int) -> None:
    wanted = [[*range(at, min(at + 4, 17))] for at in range(0, 17, 4)]
    for data in (KINDS[kind](17), KINDS[kind](17).batch(4)):
        found, rows = seen(data, workers, 4)
        assert found.together == wanted
        assert found.steps == [5] * workers
        assert rows.sharding == "dealt"
        assert rows.reason in ("it reads no files", "it calls Python functions of this process")


def test_the_batches_of_a_dataset_count_and_not_those_that_are_asked_for() -> None:
    found, rows = seen(numbers(10).batch(6).prefetch(1), 2, 99)
    assert found.every == [[[0, 1, 2], [6, 7]], [[3, 4, 5], [8, 9]]]
    assert rows.batch_size == 6
    with pytest.raises(PlanError, match="batch_size=4 is given beside a dataset that has batches of 6 rows"):
        prepared(numbers(10).batch(6), 2, 4)
    prepared(numbers(10).batch(6), 2, 6).release()
    dropped, _ = seen(numbers(10).batch(6, drop_remainder=True), 3)
    assert dropped.together == [[*range(6)]]


def test_data_that_is_too_large_to_be_copied_is_read_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.learn.tf2._tensorflow_data_graph._COPIED", 50)
    arrays = pairs(Dataset.from_tensor_slices(np.arange(10)))
    for data, batches in (
        (arrays.batch(4).prefetch(1), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]),
        (arrays, [[*range(6)], [*range(6, 10)]]),
        (arrays.batch(3).unbatch(), [[*range(6)], [*range(6, 10)]]),
    ):
        found, rows = seen(data, 2, 6)
        assert found.together == batches
        assert (rows.sharding, rows.reason) == ("dealt", "it holds much data")


def test_windows_are_rows_and_no_batches() -> None:
    windows = Dataset.range(6).window(2).flat_map(lambda window: window.batch(2)).map(lambda pair: (pair, 3 * pair))
    found = prepared(windows, 1)
    (batch,) = found.rows.loader(5, 0, 1, "numpy")
    (inputs,), _, count = found.rows.taken(batch)
    found.release()
    assert (inputs.tolist(), count) == ([[0, 1], [2, 3], [4, 5]], 3)


def test_a_batch_smaller_than_the_number_of_workers() -> None:
    found, _ = seen(numbers(4), 3, 1)
    assert found.together == [[0], [1], [2], [3]]
    assert found.steps == [4, 4, 4]


def test_a_last_batch_is_dropped_if_that_is_wanted() -> None:
    found, _ = seen(numbers(10), 2, 4, end="drop")
    assert found.all == [*range(8)]


# Files.


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_files_are_shared_out_and_each_line_is_read_once(tmp_path: Path, workers: int, batched: bool) -> None:
    files = written(tmp_path, [*range(7)], [*range(7, 9)], [], [*range(9, 23)])
    for data in (lines(files), lines(Dataset.from_tensor_slices(files).shuffle(4)), lines(files).shuffle(9)):
        found, rows = seen(data.batch(4) if batched else data, workers, 4)
        assert found.all == [*range(23)]
        assert len(set(found.steps)) == 1
        assert rows.sharding == "file"


def test_each_of_two_files_goes_to_one_worker(tmp_path: Path) -> None:
    files = written(tmp_path, [0] * 6, [1] * 6)
    for data in (lines(files), lines(Dataset.list_files(f"{tmp_path}/*.txt", shuffle=True))):
        found, _ = seen(data.batch(4), 2)
        assert sorted({number for batch in mine for number in batch} for mine in found.every) == [{0}, {1}]
        assert found.all == [0] * 6 + [1] * 6
        assert found.steps == [3, 3]


def test_files_are_read_where_their_share_is(tmp_path: Path) -> None:
    paths = written(tmp_path, *[[number] for number in range(8)])
    images = Dataset.from_tensor_slices((paths, np.arange(8) * 3)).map(
        lambda path, target: (tf.strings.to_number(tf.strings.strip(tf.io.read_file(path)), tf.int64), target)
    )
    found, rows = seen(images, 3, 3)
    assert found.all == [*range(8)]
    assert rows.sharding == "file"
    assert [{number % 3 for batch in mine for number in batch} for mine in found.every] == [{0}, {1}, {2}]


def test_fewer_files_than_workers_and_what_counts_elements_are_dealt_out(tmp_path: Path) -> None:
    files = written(tmp_path, [*range(9)], [*range(9, 13)])
    found, rows = seen(lines(files), 3)
    assert found.together == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12]]
    assert rows.sharding == "dealt"
    assert rows.reason == "not all workers can see its files, or have one each"
    found, rows = seen(lines(files).take(11), 2)
    assert found.all == [*range(11)]
    assert rows.reason == "TakeDataset needs all elements"


def test_a_worker_whose_files_are_empty_takes_all_steps_with_rows_that_do_not_count(tmp_path: Path) -> None:
    files = written(tmp_path, [*range(5)], [])
    found, rows = seen(lines(files), 2, 2)
    assert found.every == [[[0], [1], [2], [3], [4]], [[], [], [], [], []]]
    assert rows.sharding == "file"


def test_options_of_the_dataset_choose(tmp_path: Path) -> None:
    files = written(tmp_path, [*range(5)], [*range(5, 8)])

    def chosen(data: Any, policy: Any) -> Any:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = policy
        return data.with_options(options)

    found, rows = seen(chosen(lines(files), Policy.OFF), 2)
    assert (found.together, rows.sharding) == ([[0, 1, 2, 3], [4, 5, 6, 7]], "dealt")
    found, rows = seen(chosen(numbers(11).shuffle(11), Policy.DATA), 3)
    assert (found.all, rows.sharding) == ([*range(11)], "element")
    assert sorted(len({number % 3 for batch in mine for number in batch}) for mine in found.every) == [1, 1, 1]
    found, rows = seen(chosen(numbers(12).batch(4).cache(), Policy.DATA), 2)
    assert (found.all, rows.sharding) == ([*range(12)], "element")
    with pytest.raises(PlanError, match=r"FILE asks for a dataset whose files are shared out, and it reads no files"):
        prepared(chosen(numbers(4), Policy.FILE), 2)
    with pytest.raises(PlanError, match="shared out, and it calls Python functions of this process"):
        prepared(chosen(from_generator(4), Policy.FILE), 2)


def test_the_choice_is_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level("INFO", "shoal"):
        prepared(from_generator(4), 2).release()
        prepared(lines(written(tmp_path, [1], [2])), 2).release()
    assert [record.getMessage() for record in caplog.records] == [
        "tf.data: batches are dealt: it calls Python functions of this process",
        "tf.data: each worker reads some of the files",
    ]


# Epochs and positions.


def epochs(rows: list[Rows], count: int, batch: int = 4, **options: Any) -> list[Seen]:
    """Read some epochs, one after the other."""
    loaders = [each.loader(batch, rank, len(rows), "numpy", **options) for rank, each in enumerate(rows)]

    def one(rank: int) -> list[list[int]]:
        return [taken(rows[rank], each) for each in loaders[rank]]

    return [Seen(at_once(one, len(rows))) for _ in range(count)]


def test_each_epoch_runs_the_pipeline_again_in_another_order_that_can_be_found_again(tmp_path: Path) -> None:
    files = written(tmp_path, [*range(30)], [*range(30, 60)])
    for data in (numbers(60).shuffle(60), lines(files).shuffle(60), from_generator(60).shuffle(60)):
        runs = []
        for seed in (1, 1, 2):
            found = prepared(data, 2, shuffle=seed)
            three = epochs(copies(found.rows, 2), 3, 10)
            found.release()
            assert all(each.all == [*range(60)] for each in three)
            runs.append([each.every for each in three])
        first, again, other = runs
        assert first == again != other
        assert first[0] != first[1] != first[2]


def test_a_seed_of_the_pipeline_gives_the_order_that_tensorflow_gives() -> None:
    data = numbers(20).shuffle(20, seed=5)
    found = prepared(data, 2)
    ours = [each.together for each in epochs(copies(found.rows, 2), 2, 20)]
    found.release()
    theirs = [[[int(number) for number, _ in data]] for _ in range(2)]
    assert ours == theirs
    fixed = prepared(numbers(20).shuffle(20, seed=5, reshuffle_each_iteration=False), 1)
    first, second = epochs(copies(fixed.rows, 1), 2)
    fixed.release()
    assert first.every == second.every


def test_an_order_inside_a_function_is_another_one_in_each_epoch() -> None:
    data = Dataset.range(2).interleave(lambda at: Dataset.range(20).shuffle(20).map(lambda each: each + 20 * at))
    found = prepared(pairs(data), 2)
    one, two = epochs(copies(found.rows, 2), 2)
    found.release()
    assert one.all == two.all == [*range(40)]
    assert one.every != two.every


def resumed(rows: list[Rows], states: list[Any], batch: int) -> Seen:
    """Go on with new loaders from the states of some workers."""

    def one(rank: int) -> list[list[int]]:
        loader = rows[rank].loader(batch, rank, len(rows), "numpy")
        loader.load_state_dict(states)
        found = [taken(rows[rank], each) for each in loader]
        assert loader.epoch == 2
        return found

    return Seen(at_once(one, len(rows)))


def begun(rows: list[Rows], steps: int, batch: int, **options: Any) -> tuple[Seen, list[Any]]:
    """Read an epoch and some steps of the next, and say where the workers are then."""

    def one(rank: int) -> Any:
        loader = rows[rank].loader(batch, rank, len(rows), "numpy", **options)
        for _ in loader:
            pass
        batches = iter(loader)
        found = [taken(rows[rank], next(batches)) for _ in range(steps)]
        state = json.loads(json.dumps(loader.state_dict()))
        loader.close()
        return found, state

    both = at_once(one, len(rows))
    return Seen([found for found, _ in both]), [state for _, state in both]


@pytest.mark.parametrize("later", [1, 2, 3])
@pytest.mark.parametrize("kind", ["dealt", "file"])
def test_an_epoch_goes_on_where_it_was_with_any_number_of_workers(kind: str, later: int, tmp_path: Path) -> None:
    files = written(tmp_path, [*range(14)], [*range(14, 20)], [*range(20, 31)])
    data = from_generator(31) if kind == "dealt" else lines(files)
    data = data.shuffle(31).batch(5)
    first = prepared(data, 2)
    before, states = begun(copies(first.rows, 2), 3, 5)
    first.release()
    second = prepared(data, later)
    after = resumed(copies(second.rows, later), states, 5)
    second.release()
    assert len(before.all) == 15
    assert sorted(before.all + after.all) == [*range(31)]
    assert len(set(after.steps)) == 1


@pytest.mark.parametrize("kind", ["dealt", "file"])
def test_an_epoch_may_be_interrupted_again_and_again(kind: str, tmp_path: Path) -> None:
    files = written(tmp_path, [*range(8)], [*range(8, 20)], [*range(20, 25)], [*range(25, 40)])
    data = (from_generator(40) if kind == "dealt" else lines(files)).shuffle(40).batch(4)
    found, states, numbers_seen = prepared(data, 3), [], []
    some, states = begun(copies(found.rows, 3), 2, 4)
    found.release()
    numbers_seen += some.all
    for workers in (1, 2, 1, 3):
        found = prepared(data, workers)
        some, states = continued(copies(found.rows, workers), states, 2)
        found.release()
        numbers_seen += some.all
    found = prepared(data, 2)
    numbers_seen += resumed(copies(found.rows, 2), states, 4).all
    found.release()
    assert sorted(numbers_seen) == [*range(40)]


def continued(rows: list[Rows], states: list[Any], steps: int) -> tuple[Seen, list[Any]]:
    """Go on for some steps, and say where the workers are then."""

    def one(rank: int) -> Any:
        loader = rows[rank].loader(4, rank, len(rows), "numpy")
        loader.load_state_dict(states)
        batches = iter(loader)
        found = [taken(rows[rank], next(batches)) for _ in range(steps)]
        state = json.loads(json.dumps(loader.state_dict()))
        loader.close()
        assert json.loads(json.dumps(loader.state_dict())) == state
        return found, state

    both = at_once(one, len(rows))
    return Seen([found for found, _ in both]), [state for _, state in both]


def test_workers_who_are_started_again_read_the_same_epoch_again() -> None:
    found = prepared(from_generator(20).shuffle(20), 2)
    rows = copies(found.rows, 2)
    before, states = begun(rows, 2, 5)
    after = resumed(copies(found.rows, 2), states, 5)
    found.release()
    assert sorted(before.all + after.all) == [*range(20)]


def test_an_epoch_of_so_many_steps_goes_on_in_the_next(tmp_path: Path) -> None:
    files = written(tmp_path, [*range(4)], [*range(4, 8)])
    for data in (numbers(8), lines(files)):
        found = prepared(data, 2)
        one, two = epochs(copies(found.rows, 2), 2, 4, steps=3, end="wrap")
        found.release()
        assert one.steps == two.steps == [3, 3]
        assert sorted(one.all + two.all) == sorted([*range(8)] * 3)
    found = prepared(numbers(8), 2)
    short = epochs(copies(found.rows, 2), 2, 4, steps=1)
    found.release()
    assert [each.together for each in short] == [[[0, 1, 2, 3]]] * 2


def test_a_dataset_that_repeats_for_ever_needs_a_number_of_steps() -> None:
    found = prepared(numbers(3).repeat(), 2)
    rows = copies(found.rows, 2)
    with pytest.raises(PlanError, match="the dataset repeats for ever; say how many steps"):
        rows[0].loader(2, 0, 2, "numpy")
    assert [each.together for each in epochs(rows, 2, 2, steps=2, end="wrap")] == [[[0, 1], [2, 0]], [[1, 2], [0, 1]]]
    found.release()


# What elements are.


def only(data: Any, **ask: Any) -> tuple[Any, Any, int]:
    """Take the first batch of a worker who is alone."""
    found = prepared(data, 1, **ask)
    rows = copies(found.rows, 1)[0]
    batch = next(iter(rows.loader(3, 0, 1, "numpy")))
    found.release()
    return rows.taken(batch)


def test_inputs_may_be_several_or_have_names_and_rows_may_have_weights() -> None:
    two = Dataset.range(3).map(lambda n: ((n, 10 * n), 3 * n, tf.cast(n, tf.float32) / 2))
    inputs, targets, count = only(two)
    assert [each.tolist() for each in inputs] == [[0, 1, 2], [0, 10, 20]]
    assert [each.tolist() for each in targets] == [[0, 3, 6]]
    assert targets.weights.tolist() == [0.0, 0.5, 1.0]
    assert count == 3
    named = Dataset.range(3).map(lambda n: ({"small": n, "large": 10 * n}, {"both": 11 * n}))
    inputs, targets, _ = only(named)
    assert dict(zip(inputs.names, [each.tolist() for each in inputs], strict=True)) == {
        "small": [0, 1, 2],
        "large": [0, 10, 20],
    }
    assert (targets.names, targets[0].tolist(), targets.weights) == (("both",), [0, 11, 22], None)
    inputs, _, _ = only(named, features=["small"])
    assert [each.tolist() for each in inputs] == [[0, 1, 2]]


def test_an_element_that_is_a_dict_needs_names() -> None:
    data = Dataset.range(3).map(lambda n: {"number": n, "target": 3 * n})
    inputs, targets, _ = only(data, features=["number"], labels=["target"])
    assert (inputs[0].tolist(), targets[0].tolist()) == ([0, 1, 2], [0, 3, 6])
    with pytest.raises(PlanError, match="dicts of number, target: name feature_cols= and label_cols="):
        prepared(data, 1)
    with pytest.raises(PlanError, match="no tensor 'name' but number, target"):
        prepared(data, 1, features=["name"], labels=["target"])
    with pytest.raises(PlanError, match=r"an element of the dataset is a Tensor; it should be \(inputs, targets\)"):
        prepared(Dataset.range(3), 1)


def test_texts_and_ragged_rows_arrive_as_they_are() -> None:
    texts = Dataset.from_tensor_slices((["a", "bc", "ä"], [0, 1, 2]))
    inputs, _, _ = only(texts)
    assert inputs[0].tolist() == [b"a", b"bc", "ä".encode()]
    ragged = Dataset.from_tensor_slices((tf.ragged.constant([[1, 2], [], [3]]), [0, 1, 2]))
    for data in (ragged, ragged.batch(3), ragged.ragged_batch(3)):
        inputs, targets, _ = only(data)
        assert inputs[0].to_list() == [[1, 2], [], [3]]
        assert targets[0].tolist() == [0, 1, 2]


def test_ragged_rows_are_cut_and_joined() -> None:
    ragged = tf.ragged.constant([[*range(count)] for count in range(7)])
    found = prepared(Dataset.from_tensor_slices((ragged, np.arange(7))).batch(4), 2)
    rows = copies(found.rows, 2)

    def one(rank: int) -> list[Any]:
        batches = [rows[rank].taken(each) for each in rows[rank].loader(4, rank, 2, "numpy")]
        return [(len(row), int(target)) for (x,), (y,), n in batches for row, target in zip(x[:n], y[:n], strict=True)]

    every = at_once(one, 2)
    found.release()
    assert sorted(every[0] + every[1]) == [(count, count) for count in range(7)]


def test_what_makes_no_batch_is_explained() -> None:
    uneven = Dataset.range(4).map(lambda n: (tf.range(n), n))
    with pytest.raises(PlanError, match="different shapes, of which no batch can be made; use padded_batch or"):
        only(uneven)
    inputs, _, _ = only(uneven.padded_batch(4))
    assert inputs[0].shape == (4, 3)
    sparse = Dataset.range(2).map(lambda n: (tf.sparse.from_dense([n]), n))
    with pytest.raises(PlanError, match=r"have a SparseTensor; make a tensor of it with map"):
        prepared(sparse, 1)
    whole = numbers(4).batch(4).map(lambda x, y: (x, tf.reduce_sum(y)))
    with pytest.raises(PlanError, match="no rows that belong together"):
        only(whole)


def test_inputs_are_given_for_predictions() -> None:
    assert [each[0].tolist() for each in inputs_of(Dataset.range(5), None, 3)] == [[0, 1, 2], [3, 4]]
    assert [each[0].tolist() for each in inputs_of(numbers(5).batch(4), None, 3)] == [[0, 1, 2, 3], [4]]


def test_a_dataset_that_belongs_to_a_graph_is_refused_and_one_beside_it_is_not() -> None:
    outside = numbers(4)
    with tf.Graph().as_default():
        with pytest.raises(PlanError, match="the dataset belongs to a graph"):
            prepared(numbers(4), 1)
        found = prepared(outside, 1)
    assert read(copies(found.rows, 1)).all == [0, 1, 2, 3]
    found.release()


# A function that makes the dataset in each worker.


def made(config: dict[str, Any], batch_size: int) -> Any:
    return numbers(config["count"]).shuffle(50).batch(batch_size)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_what_a_function_makes_in_each_worker_is_shared_out(workers: int) -> None:
    given = keras_prepared(made, Ask(workers=workers), config={"count": 23})
    found = read([copy(given.rows) for _ in range(workers)], 5)
    given.release()
    assert found.all == [*range(23)]
    assert found.steps == [5] * workers
    assert sorted(map(len, found.together)) == [3, 5, 5, 5, 5]


def test_files_of_what_a_function_makes_are_shared_out_where_workers_can_meet(tmp_path: Path) -> None:
    files = written(tmp_path, [0] * 6, [1] * 4)
    meeting = Meeting(2)
    ask = Ask(meeting=meeting.ticket)
    rows: list[Any] = [tensorflow_prepared(lines(files).batch(2), ask).rows for _ in range(2)]
    found = read(rows)
    meeting.close()
    assert found.every == [[[0]] * 6, [[1]] * 4 + [[]] * 2]


# Workers in processes of their own.


def reading(member: Member, given: dict[str, Rows]) -> dict[str, Any]:
    found = {}
    for name, rows in given.items():
        loader = rows.loader(4, member.rank, member.size, "numpy")
        found[name] = [[taken(rows, batch) for batch in loader] for _ in range(2)]
    return found


@pytest.mark.parametrize("workers", first(1, [2, 3]))
def test_processes_get_each_element_once_an_epoch(tmp_path: Path, workers: int) -> None:
    """One of the datasets reads files that only this process has: those of its own descriptors."""
    files = written(tmp_path, *[[*range(at, at + 7)] for at in range(0, 28, 7)])
    opened = [os.memfd_create(f"{number}") for number in range(4)]
    for end, path in zip(opened, files, strict=True):
        os.write(end, Path(path).read_bytes())
    private = [f"/proc/self/fd/{end}" for end in opened]
    data = {"file": lines(files).shuffle(5), "private": lines(private), "generator": from_generator(28).batch(5)}
    data["function"] = from_function(28, tf.py_function)
    found = {name: prepared(each, workers) for name, each in data.items()}
    rows = {name: each.rows for name, each in found.items()}
    with by_value(__name__), current().gang(partial(reading, given=rows), workers) as gang:
        results = gang.results()
    for each in found.values():
        each.release()
    for end in opened:
        os.close(end)
    for name in data:
        for epoch in range(2):
            told = Seen([result[name][epoch] for result in results])
            assert told.all == [*range(28)], name
            assert len(set(told.steps)) == 1, name
    chosen: dict[str, Any] = {name: getattr(each, "sharding", None) for name, each in rows.items()}
    assert chosen == {"file": "file", "private": "dealt", "generator": "dealt", "function": "dealt"}


def dying(member: Member, given: dict[str, Rows]) -> dict[str, Any]:
    """Read an epoch, and be ended in the middle of it at the first attempt."""
    found: dict[str, Any] = {}
    for name, rows in given.items():
        found[name] = []
        for step, batch in enumerate(rows.loader(4, member.rank, member.size, "numpy")):
            if member.attempt == 0 and member.rank == 1 and name == "generator" and step == 2:
                os._exit(1)
            found[name].append(taken(rows, batch))
    return found


def test_workers_begin_again_after_one_was_lost(tmp_path: Path) -> None:
    data = {"file": lines(written(tmp_path, [*range(20)], [*range(20, 40)])), "generator": from_generator(40)}
    found = {name: prepared(each, 2) for name, each in data.items()}
    rows = {name: each.rows for name, each in found.items()}
    with by_value(__name__), current().gang(partial(dying, given=rows), 2, restarts=1) as gang:
        results = gang.results()
    for each in found.values():
        each.release()
    for name in data:
        assert Seen([result[name] for result in results]).all == [*range(40)], name


def test_who_waits_for_a_worker_that_has_gone_is_told() -> None:
    meeting = Meeting(2)
    guests = at_once(lambda rank: meeting.ticket.join(Join(rank, 0, 4, False, True)), 2)
    guests[0].has(0)
    assert guests[1].more(0)
    guests[0].leave()
    with pytest.raises(StateError, match="another worker has gone in the middle of a pass"):
        guests[1].more(1)
    meeting.close()


def test_a_worker_that_was_ended_while_it_waited_is_not_counted() -> None:
    meeting = Meeting(2)
    ticket = meeting.ticket
    with socket.create_connection(ticket.address) as early:
        early.sendall(ticket.token + struct.pack("<qqq??", 1, 0, 4, False, True))
        assert wait_until(lambda: 1 in meeting._next.here)
    guests = at_once(lambda rank: ticket.join(Join(rank, 5, 4, False, rank == 0)), 2)
    assert [guest.own for guest in guests] == [False, False]
    for guest in guests:
        guest.leave()
    meeting.close()


def test_who_comes_to_a_meeting_that_is_over_is_sent_away() -> None:
    meeting = Meeting(2)
    waiting = threading.Thread(target=pytest.raises, args=(StateError, meeting.ticket.join, Join(0, 0, 4, False, True)))
    waiting.start()
    assert wait_until(lambda: 0 in meeting._next.here)
    meeting.close()
    waiting.join(30)
    assert not waiting.is_alive()
    with pytest.raises(StateError, match="has ended, or the data was released"):
        meeting.ticket.join(Join(0, 0, 4, False, True))


# A dataset of ours as one of TensorFlow.


def columns() -> Any:
    arrays = {"x": np.arange(30, dtype="f4").reshape(10, 3), "y": np.arange(10), "name": [f"n{at}" for at in range(10)]}
    return shoal.from_arrays(arrays)


def test_batches_and_samples_become_a_tf_dataset_with_their_signature() -> None:
    batches = columns().to_tf("x", "y", batch_size=4)
    assert batches.element_spec == (tf.TensorSpec((None, 3), tf.float32), tf.TensorSpec((None,), tf.int64))
    assert [targets.numpy().tolist() for _, targets in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    samples = columns().to_tf(["x", "name"], ["y"])
    features = {"x": tf.TensorSpec((3,), tf.float32), "name": tf.TensorSpec((), tf.string)}
    assert samples.element_spec == (features, {"y": tf.TensorSpec((), tf.int64)})
    found = list(samples.as_numpy_iterator())
    assert [(each[0]["x"][0], each[0]["name"], each[1]["y"]) for each in found] == [
        (3 * at, f"n{at}".encode(), at) for at in range(10)
    ]
    every = columns().to_tf(batch_size=5)
    assert set(every.element_spec) == {"__key__", "x", "y", "name"}
    dropped = columns().to_tf("y", batch_size=4, end="drop")
    assert [each.numpy().tolist() for each in dropped] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_each_iteration_is_an_epoch_also_beside_another() -> None:
    shuffled = columns().shuffle("full", seed=1).to_tf("y", batch_size=5)
    first, second = ([number for each in shuffled for number in each.numpy().tolist()] for _ in range(2))
    assert sorted(first) == sorted(second) == [*range(10)]
    assert first != second
    both = Dataset.zip((shuffled, shuffled)).unbatch()
    assert [sorted(side) for side in zip(*both.as_numpy_iterator(), strict=True)] == [[*range(10)]] * 2


def test_a_batch_keeps_the_memory_in_which_it_was_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("shoal.pipeline._tensorflow_dataset")
    convert, stacked = module.to_tensorflow, []

    def noting(batch: Any) -> Any:
        stacked.append(batch["x"].ctypes.data)
        return convert(batch)

    monkeypatch.setattr(module, "to_tensorflow", noting)
    large = shoal.from_arrays({"x": np.arange(40_000, dtype="f4").reshape(40, 1000)}).to_tf("x", batch_size=10)
    stacked.clear()
    held = list(large)
    assert [np.asarray(each).ctypes.data for each in held] == stacked
    assert [float(each[0, 0]) for each in held] == [0.0, 10_000.0, 20_000.0, 30_000.0]


def lengths(*counts: int) -> Any:
    return shoal.from_arrays({"n": np.array(counts)}).map(lambda sample: {**sample, "x": np.arange(sample["n"])})


def test_arrays_of_different_lengths_are_ragged_batches_and_open_samples() -> None:
    ragged = lengths(1, 2, 3, 3, 3, 3).to_tf("x", "n", batch_size=3)
    assert [each.to_list() for each, _ in ragged] == [[[0], [0, 1], [0, 1, 2]], [[0, 1, 2]] * 3]
    for signature in (None, (tf.TensorSpec((None,), tf.int64), tf.TensorSpec((), tf.int64))):
        samples = lengths(1, 2, 2).to_tf("x", "n", signature=signature)
        assert samples.element_spec[0] == tf.TensorSpec((None,), tf.int64)
        assert [each.numpy().tolist() for each, _ in samples] == [[0], [0, 1], [0, 1]]


def test_what_has_no_type_or_no_name_is_explained() -> None:
    with pytest.raises(PlanError, match="samples have no field 'z' but __key__, x, y, name"):
        columns().to_tf("z")
    with pytest.raises(PlanError, match="label_cols and no feature_cols"):
        columns().to_tf(label_cols="y")
    odd = columns().map(lambda sample: {**sample, "y": {"a": 1}})
    with pytest.raises(PlanError, match="field 'y' is none of TensorFlow's types in a batch, but a list"):
        odd.to_tf()
    with pytest.raises(PlanError, match="no sample whose shape could be looked at; give signature="):
        columns().filter(lambda sample: False).to_tf("y")
