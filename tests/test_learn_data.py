"""Data of all kinds goes into a model: each row once, with its own target, however many workers there are."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data import Dataset as TorchDataset

import shoal
from shoal.data import XShards
from shoal.errors import PlanError
from shoal.learn._data import Ask, prepared
from shoal.learn._job import Rows
from shoal.learn.pytorch import Estimator, served
from shoal.learn.pytorch._torch_loaders import torch_prepared
from shoal.store import connect
from support.clusters import running
from support.learn import Sloped, counting, line, seen, shipped, two_inputs

HERE = os.getpid()


@pytest.fixture(autouse=True)
def _shipped() -> Iterator[None]:
    with shipped(__name__):
        yield


class Numbers(TorchDataset[Any]):
    """Numbers, and three times of them; whoever reads them has to be where he should be."""

    def __init__(self, count: int, *, only: Callable[[int], bool] | None = None) -> None:
        self.count, self.only = count, only

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Any:
        assert self.only is None or self.only(os.getpid()), "this process should not read here"
        return torch.tensor(number), 3 * number


class Locked(Numbers):
    """A dataset that cannot be pickled."""

    def __init__(self, count: int) -> None:
        super().__init__(count, only=is_here)
        self.lock = threading.Lock()


class Stream(IterableDataset[Any]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[Any]:
        return ((torch.tensor(number), 3 * number) for number in range(self.count))


class Whole(DataLoader[Any]):
    """A loader with a mind of its own."""

    def __iter__(self) -> Any:
        return iter([(torch.arange(5), 3 * torch.arange(5)), (torch.arange(5, 8), 3 * torch.arange(5, 8))])


def is_here(process: int, here: int = HERE) -> bool:
    return process == here


def is_elsewhere(process: int, here: int = HERE) -> bool:
    return process != here


def as_dict(items: list[Any]) -> dict[str, Any]:
    numbers = torch.stack([number for number, _ in items])
    return {"number": numbers, "target": torch.tensor([target for _, target in items])}


def rows_of(data: Any, workers: int = 3, batch: int = 4, **options: Any) -> tuple[list[list[list[int]]], Rows]:
    """Read an epoch as several workers would, in this process: for each of them the inputs of each of its batches."""
    asked = {name: options.pop(name) for name in ("features", "labels", "shuffle") if name in options}
    found = torch_prepared(data, Ask(**asked, workers=workers), config={})
    every: list[list[list[int]]] = [[] for _ in range(workers)]

    def read(rank: int) -> None:
        for each in found.rows.loader(batch, rank, workers, "torch", **options):
            (inputs,), (targets,), count = found.rows.taken(each)
            assert targets.long().tolist() == [3 * number for number in inputs.long().tolist()]
            every[rank].append(inputs.long().tolist()[:count])

    threads = [threading.Thread(target=read, args=[rank]) for rank in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.release()
    return every, found.rows


def together(every: list[list[list[int]]]) -> list[list[int]]:
    """Put the parts of each batch together."""
    return [[number for part in parts for number in part] for parts in zip(*every, strict=True)]


def flat(every: list[list[list[int]]]) -> list[int]:
    return [number for mine in every for batch in mine for number in batch]


def test_a_loader_is_shared_out_in_its_own_batches() -> None:
    every, _ = rows_of(DataLoader(Numbers(21), batch_size=6), batch=99)
    assert [sorted(batch) for batch in together(every)] == [
        [*range(6)],
        [*range(6, 12)],
        [*range(12, 18)],
        [*range(18, 21)],
    ]


@pytest.mark.parametrize("kind", [Numbers, lambda count: TensorDataset(torch.arange(count), 3 * torch.arange(count))])
def test_a_shuffled_loader_gives_each_item_once_in_another_order(kind: Any) -> None:
    first, rows = rows_of(DataLoader(kind(50), batch_size=10, shuffle=True), shuffle=0)
    again, _ = rows_of(DataLoader(kind(50), batch_size=10, shuffle=True), shuffle=0)
    other, _ = rows_of(DataLoader(kind(50), batch_size=10, shuffle=True), shuffle=1)
    assert sorted(flat(first)) == [*range(50)]
    assert flat(first) == flat(again) != flat(other)
    assert flat(first) != sorted(flat(first))
    assert rows.batch_size == 10


def test_a_loader_that_drops_the_last_batch_does_so() -> None:
    for data in (Numbers(21), TensorDataset(torch.arange(21), 3 * torch.arange(21))):
        every, _ = rows_of(DataLoader(data, batch_size=6, drop_last=True))
        assert sorted(flat(every)) == [*range(18)]


def test_a_loader_is_prepared_without_reading_an_item() -> None:
    with pytest.raises(Exception, match="should not read here"):
        Numbers(3, only=is_elsewhere)[0]
    found = torch_prepared(DataLoader(Numbers(9, only=is_elsewhere), batch_size=3), Ask(workers=2), config={})
    assert found.rows.batch_size == 3


def test_the_function_that_makes_batches_is_the_loaders_own() -> None:
    loader = DataLoader(Numbers(10), batch_size=4, collate_fn=as_dict)
    every, _ = rows_of(loader, features=["number"], labels=["target"])
    assert sorted(flat(every)) == [*range(10)]
    with pytest.raises(PlanError, match=r"dicts of number, target: name feature_cols= and label_cols="):
        _taken_first(torch_prepared(loader, Ask(workers=1), config={}).rows)


def _taken_first(rows: Rows) -> Any:
    return rows.taken(next(iter(rows.loader(4, 0, 1, "torch"))))


def test_a_distributed_sampler_does_not_split_twice() -> None:
    sampler: Any = DistributedSampler(Numbers(20), num_replicas=2, rank=1, shuffle=True)
    every, _ = rows_of(DataLoader(Numbers(20), batch_size=5, sampler=sampler), shuffle=0)
    assert sorted(flat(every)) == [*range(20)]


def test_a_sampler_of_ones_own_says_what_is_read() -> None:
    every, _ = rows_of(DataLoader(Numbers(20), batch_size=4, sampler=SubsetRandomSampler([1, 2, 3, 5, 7, 11, 13])))
    assert sorted(flat(every)) == [1, 2, 3, 5, 7, 11, 13]
    drawn, _ = rows_of(DataLoader(Numbers(3), batch_size=4, sampler=WeightedRandomSampler([0.0, 1.0, 0.0], 10)))
    assert flat(drawn) == [1] * 10


def test_batches_of_different_sizes_stay_batches() -> None:
    batches: Any = [[5], [1, 2, 3, 4], [0, 6, 7]]
    every, rows = rows_of(DataLoader(Numbers(8), batch_sampler=batches))
    assert together(every) == batches
    assert rows.batch_size is None


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Stream(21), batch_size=4),
        DataLoader(Locked(21), batch_size=4),
        served(DataLoader(Numbers(21, only=is_here), batch_size=4)),
    ],
    ids=["stream", "what cannot be pickled", "served"],
)
def test_what_only_one_process_can_read_is_dealt_out_from_there(loader: Any) -> None:
    every, _ = rows_of(loader)
    assert together(every) == [[*range(at, min(at + 4, 21))] for at in range(0, 21, 4)]
    assert [len(mine) for mine in every] == [6, 6, 6]


def test_batches_that_a_loader_gives_as_a_whole_are_cut_into_rows() -> None:
    every, _ = rows_of(Whole(Numbers(1)), workers=2)
    assert every == [[[0, 1, 2], [5, 6]], [[3, 4], [7]]]


def test_served_data_comes_again_each_epoch_and_goes_on_after_a_position() -> None:
    found = torch_prepared(DataLoader(Stream(6), batch_size=2), Ask(workers=1), config={})
    loader = found.rows.loader(99, 0, 1, "torch")
    epochs = [[found.rows.taken(batch)[0][0].tolist() for batch in loader] for _ in range(2)]
    assert epochs == [[[0, 1], [2, 3], [4, 5]]] * 2
    assert loader.epoch == 2
    loader.load_state_dict([{"epoch": 2, "step": 2}])
    assert [found.rows.taken(batch)[0][0].tolist() for batch in loader] == [[4, 5]]
    assert loader.epoch == 3
    found.release()


def test_a_served_loader_needs_as_many_workers_as_it_was_made_for() -> None:
    found = torch_prepared(DataLoader(Stream(6), batch_size=2), Ask(workers=2), config={})
    with pytest.raises(PlanError, match="dealt out to 2 workers, and there are 3"):
        next(iter(found.rows.loader(2, 0, 3, "torch")))
    found.release()


def test_a_batch_without_a_target_is_refused() -> None:
    found = torch_prepared(DataLoader([1, 2, 3]), Ask(workers=1), config={})  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"is a Tensor; it should be \(\*inputs, target\)"):
        _taken_first(found.rows)


def test_nested_inputs_are_several() -> None:
    pairs: Any = [((number, -number), 3 * number) for number in range(4)]
    found = torch_prepared(DataLoader(pairs, batch_size=4), Ask(workers=1), config={})
    inputs, targets, count = _taken_first(found.rows)
    assert [each.tolist() for each in inputs] == [[0, 1, 2, 3], [0, -1, -2, -3]]
    assert targets[0].tolist() == [0, 3, 6, 9]
    assert count == 4


def test_a_batch_size_beside_a_loader_is_refused() -> None:
    estimator = counting(4)
    for data in (DataLoader(Numbers(4), batch_size=2), served(DataLoader(Numbers(4), batch_size=2))):
        with pytest.raises(PlanError, match="batch_size=2 is given beside a DataLoader, which has a batch size of its"):
            estimator.fit(data, batch_size=2)


def test_only_a_loader_is_served() -> None:
    with pytest.raises(PlanError, match="served takes a DataLoader, not a list"):
        served([1, 2])  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="a stream needs a DataLoader around it"):
        counting(4).fit(Stream(4))
    with pytest.raises(PlanError, match=r"Locked cannot be pickled for the workers; give served\("):
        counting(4).fit(Locked(4))


# Training with workers.


@pytest.mark.slow
def test_workers_read_each_item_of_a_loader_once_an_epoch() -> None:
    estimator = counting(21)
    history = estimator.fit(DataLoader(Numbers(21, only=is_elsewhere), batch_size=5, shuffle=True), epochs=2)
    assert seen(estimator) == [2] * 21
    assert history.column("num_samples") == [21, 21]
    assert history.column("batch_count") == [5, 5]


@pytest.mark.slow
def test_a_loader_with_processes_of_its_own() -> None:
    estimator = counting(10, workers=1)
    estimator.fit(DataLoader(Numbers(10), batch_size=4, num_workers=1))
    assert seen(estimator) == [1] * 10


@pytest.mark.slow
def test_a_served_loader_trains_each_item_once_an_epoch_and_validates() -> None:
    estimator = counting(21)
    history = estimator.fit(
        served(DataLoader(Numbers(21, only=is_here), batch_size=4)),
        epochs=2,
        validation_data=DataLoader(Stream(7), batch_size=3),
    )
    assert seen(estimator) == [2] * 21
    assert history.column("num_samples") == [21, 21]
    assert history.column("val_num_samples") == [7, 7]


def made_with_both(config: dict[str, Any], batch_size: int) -> Any:
    assert config["count"] == 21
    assert batch_size == config["batch_size"] == 6
    return DataLoader(Numbers(config["count"]), batch_size=batch_size, shuffle=True)


def made_of_config(config: dict[str, Any]) -> Any:
    return DataLoader(Stream(config["count"]), batch_size=config["batch_size"])


def made_with_sampler(config: dict[str, Any]) -> Any:
    return DataLoader(Numbers(21), batch_size=4, sampler=WeightedRandomSampler([1.0] * 21, 21, replacement=False))


def made_of_arrays(config: dict[str, Any]) -> Any:
    return np.arange(21), 3 * np.arange(21)


def made_of_nothing(config: dict[str, Any]) -> None:
    return None


@pytest.mark.slow
@pytest.mark.parametrize("creator", [made_with_both, made_of_config, made_with_sampler, made_of_arrays])
def test_what_a_function_makes_in_each_worker_is_shared_out(creator: Any) -> None:
    estimator = counting(21, config={"count": 21})
    history = estimator.fit(creator, epochs=2, batch_size=6)
    assert seen(estimator) == [2] * 21
    assert history.column("num_samples") == [21, 21]


def test_a_function_that_makes_nothing_is_named() -> None:
    found = torch_prepared(made_of_nothing, Ask(workers=1), config={})
    with pytest.raises(PlanError, match="made_of_nothing makes None and no data"):
        found.rows.loader(4, 0, 1, "torch")


# Kinds of data.


def frame() -> pd.DataFrame:
    x, y = line()
    return pd.DataFrame({"x": x, "y": y, "name": "a"})


def stored() -> Any:
    x, y = line()
    return connect().put({"x": x, "y": y}, persist=True)


def huggingface() -> Any:
    import datasets

    return datasets.Dataset.from_dict({"x": line()[0], "y": line()[1]})


def dict_shards(inputs: Any) -> XShards:
    return XShards.partition({"x": inputs[0], "y": inputs[1]}, 3)


COLUMNS = {"feature_cols": ["x"], "label_cols": ["y"]}
KINDS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "arrays": (line, {}),
    "two inputs": (two_inputs, {}),
    "a list of two inputs": (lambda: (list(two_inputs()[0]), two_inputs()[1]), {}),
    "tensors": (lambda: tuple(map(torch.from_numpy, line())), {}),
    "a dict": (lambda: dict(zip("xy", line(), strict=True)), {}),
    "named columns of a dict": (
        lambda: {"a": line()[0], "b": line()[1]},
        {"feature_cols": ["a"], "label_cols": ["b"]},
    ),
    "a frame": (frame, COLUMNS),
    "a frame, as the seed writes it": (frame, {"feature_cols": ["x"], "labels_cols": ["y"]}),
    "shards of dicts": (lambda: dict_shards(line()), {}),
    "shards of dicts of two inputs": (lambda: dict_shards(two_inputs()), {}),
    "shards of pairs": (lambda: XShards.partition(line(), 3), {}),
    "shards of frames": (lambda: XShards.partition(frame()[["x"]].to_numpy(), 3).transform_shard(as_frame), COLUMNS),
    "a dataset": (lambda: shoal.from_arrays(x=line()[0], y=line()[1]), {}),
    "an id of the store": (stored, {}),
    "a Hugging Face dataset": (huggingface, COLUMNS),
    "a torch dataset": (lambda: TensorDataset(*map(torch.from_numpy, line())), {}),
}


def as_frame(shard: Any) -> pd.DataFrame:
    return pd.DataFrame({"x": shard[:, 0], "y": 2 * shard[:, 0]})


def sloped(**options: Any) -> Estimator:
    model = Sloped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    chosen = {"workers": 1, "restarts": 0, "metrics": ["mse"], **options}
    return Estimator.from_torch(model=model, optimizer=optimizer, loss=torch.nn.MSELoss(), **chosen)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_learns_from_every_kind_of_data(kind: str) -> None:
    make, columns = KINDS[kind]
    data = make()
    history = sloped().fit(data, epochs=3, batch_size=7, validation_data=data, **columns)
    assert history.column("num_samples") == [40, 40, 40]
    assert history.column("val_num_samples") == [40, 40, 40]
    first, *_, last = history.column("val_loss")
    assert last < first / 2
    assert history[-1]["val_MSE"] == pytest.approx(last, rel=1e-4)


@pytest.mark.slow
def test_two_workers_evaluate_each_row_once() -> None:
    x, y = line(41)
    found = sloped(workers=2).evaluate((x, y), batch_size=8)
    assert found["num_samples"] == 41
    assert found["val_loss"] == pytest.approx(float((y**2).mean()), rel=1e-5)
    assert found["MSE"] == pytest.approx(found["val_loss"], rel=1e-6)


def test_large_arrays_lie_in_the_store_while_they_are_needed() -> None:
    x = np.zeros((300_000, 2), np.float32)
    small, large = (prepared((x[:rows], x[:rows, 0]), Ask(workers=2)) for rows in (10, 300_000))
    assert "ArraySource" in repr(small.rows)
    assert "StoreSource" in repr(large.rows)
    assert len(next(iter(large.rows.loader(4, 0, 1, "numpy")))["x0"]) == 4
    number = large.undo.args[0]  # type: ignore[union-attr]
    assert connect().exists(number)
    large.release()
    assert not connect().exists(number)


# What is refused.


@pytest.mark.parametrize(
    ("data", "options", "text"),
    [
        (frame(), {"feature_cols": ["x"]}, "label columns is None; it should not be None in training"),
        (frame(), {"label_cols": ["y"]}, "feature columns is None; it should not be None in training"),
        (frame(), {"feature_cols": ["z"], "label_cols": ["y"]}, "there is no column 'z'; the columns are x, y, name"),
        ({"y": line()[1]}, {}, "the key x should be in each shard, and there is y"),
        ({"x": line()[0]}, {}, "the key y should be in each shard, and there is x"),
        (
            {"x": 4, "y": line()[1]},
            {},
            "the value of x and y should be a ndarray, a tuple of ndarrays or a list of ndarrays, and x is a int",
        ),
        (4, {}, "each shard should be a dict of x and y, a pair of them, or a frame, and this is a int"),
        ((line()[0], line()[1][:5]), {}, "all arrays must have the same number of rows"),
    ],
)
def test_data_that_does_not_fit_is_refused_in_a_sentence(data: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        sloped().fit(data, **options)


def test_shards_that_do_not_fit_are_refused_in_the_same_sentences() -> None:
    with pytest.raises(PlanError, match="each shard should be a dict"):
        sloped().fit(XShards.from_shards([1, 2]))
    with pytest.raises(PlanError, match="the key x should be in each shard"):
        sloped().fit(XShards.partition({"z": line()[0]}, 2))
    with pytest.raises(PlanError, match="label columns is None"):
        sloped().fit(XShards.partition(frame()[["x"]].to_numpy(), 2).transform_shard(as_frame), feature_cols=["x"])


def test_cells_of_different_length_are_refused() -> None:
    ragged = pd.DataFrame({"x": [[1.0], [1.0, 2.0]], "y": [0.0, 1.0]})
    with pytest.raises(PlanError, match="the cells of column 'x' are of different shapes; pad or truncate them"):
        sloped().fit(ragged, feature_cols=["x"], label_cols=["y"])


def test_lists_in_cells_are_floats_of_32_bits() -> None:
    lists = pd.DataFrame({"x": [[1.0, 2.0], [3.0, 4.0]], "y": [0.0, 1.0]})
    rows = prepared(lists, Ask(["x"], ["y"])).rows
    (inputs,), (targets,), _ = rows.taken(next(iter(rows.loader(2, 0, 1, "numpy"))))
    assert inputs.dtype == np.float32
    assert inputs.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert targets.dtype == np.float64


def test_a_dataset_without_the_fields_is_refused() -> None:
    rows = prepared(shoal.from_arrays(a=np.arange(3)), Ask()).rows
    with pytest.raises(PlanError, match="samples have no field 'x' but a; name the fields with feature_cols="):
        _taken_first(rows)


def test_many_inputs_keep_their_order() -> None:
    shards = XShards.partition({"x": tuple(np.full(4, number) for number in range(12)), "y": np.zeros(4)}, 2)
    found = prepared(shards, Ask(workers=1))
    inputs, _, _ = _taken_first(found.rows)
    assert [int(each[0]) for each in inputs] == [*range(12)]
    found.release()


# Collections of other systems, each on its own engine.


def _spark(frame: pd.DataFrame) -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.active().createDataFrame(frame.to_dict("records")).repartition(3)


def _dask(frame: pd.DataFrame) -> Any:
    import dask.dataframe

    return dask.dataframe.from_pandas(frame, npartitions=3)


def _ray(frame: pd.DataFrame) -> Any:
    import ray.data

    return ray.data.from_pandas([frame.iloc[:13], frame.iloc[13:]])


def _as_frame(collection: Any) -> Any:
    if hasattr(collection, "toPandas"):
        return pd.DataFrame([row.asDict() for row in collection.collect()])
    if hasattr(collection, "take_all"):
        return pd.DataFrame(collection.take_all())
    return shoal.engines.current().client.compute(collection).result()  # type: ignore[attr-defined]


@pytest.fixture(scope="module", params=["spark", "dask", "ray"])
def cluster(request: pytest.FixtureRequest) -> Iterator[str]:
    with running(request.param, workers=2):
        yield request.param


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_a_collection_of_an_engine_trains_there_and_comes_back_with_predictions(cluster: str) -> None:
    numbers = pd.DataFrame({"n": np.arange(40), "x": line()[0], "y": line()[1]})
    data = {"spark": _spark, "dask": _dask, "ray": _ray}[cluster](numbers)
    estimator = sloped(workers=2, backend=cluster)
    history = estimator.fit(data, epochs=3, batch_size=8, feature_cols=["x"], label_cols=["y"], validation_data=data)
    assert history.column("num_samples") == [40, 40, 40]
    assert history.column("val_num_samples") == [40, 40, 40]
    assert history[-1]["train_loss"] < history[0]["train_loss"] / 2

    found = estimator.predict(data, feature_cols=["x"], batch_size=8)
    assert type(found) is type(data)
    frame = _as_frame(found)
    assert list(frame.columns) == ["n", "x", "y", "prediction"]
    assert frame["n"].tolist() == _as_frame(data)["n"].tolist()
    slope = estimator.get_model().slope.item()
    np.testing.assert_allclose(frame["prediction"], slope * frame["x"], rtol=1e-5, atol=1e-6)
    with pytest.raises(PlanError, match="label columns is None; it should not be None in training"):
        estimator.fit(data, feature_cols=["x"])


@pytest.mark.slow
def test_a_loader_that_is_served_reaches_workers_elsewhere(cluster: str) -> None:
    estimator = counting(21, backend=cluster)
    estimator.fit(served(DataLoader(Numbers(21, only=is_here), batch_size=4)))
    assert seen(estimator) == [1] * 21
