"""Cases to which other estimators for PyTorch are held; where they refuse what works here, it is shown to work.

What differs, on purpose: a batch size counts the rows of all workers, epochs are those to run now, and a training gives
its history. ``backend="bigdl"`` runs on Spark whatever the engine of the program is, which is the local one here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import shoal
from shoal.data import XShards
from shoal.errors import PlanError, StateError
from shoal.learn import Callback, SeveralIteration
from shoal.learn.metrics import MSE, Accuracy
from shoal.learn.pytorch import Estimator
from support.learn import Sloped, line, shipped

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
]


@pytest.fixture(autouse=True)
def _shipped() -> Iterator[None]:
    with shipped(__name__):
        yield


@pytest.fixture(scope="module", autouse=True)
def _engine() -> Iterator[None]:
    """Have this process run things; Spark and Ray are started beside it, when a backend first asks for them."""
    with shoal.init("local", workers=3):
        yield


@pytest.fixture(scope="module")
def spark() -> Any:
    return shoal.engines.native("spark").session  # type: ignore[attr-defined]


class Identity(nn.Module):
    def forward(self, x: Any) -> Any:
        return x


class Halves(nn.Module):
    """Two outputs, of which one has more columns than the other."""

    def forward(self, x: Any) -> Any:
        return x[:, :24], x[:, 24:]


def points(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two clusters that overlap a little."""
    rng = np.random.default_rng(count)
    y = rng.integers(0, 2, count)
    return (rng.normal(size=(count, 2)) + 1.2 * (2 * y[:, None] - 1)).astype(np.float32), y


def network(config: dict[str, Any]) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))


def normed(config: dict[str, Any]) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))


def sgd(model: nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=config.get("lr", 0.1), momentum=0.9)


def estimator(backend: str | None = "bigdl", **options: Any) -> Estimator:
    given = {"model": network, "optimizer": sgd, "loss": nn.CrossEntropyLoss(), "metrics": [Accuracy()]}
    return Estimator.from_torch(**{**given, "backend": backend, "workers": 2, "restarts": 0, **options})


def weights(made: Estimator) -> dict[str, Any]:
    return {name: value.float().numpy() for name, value in made.get_model().state_dict().items()}


def distance(one: dict[str, Any], other: dict[str, Any]) -> float:
    assert list(one) == list(other)
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


def rows_of(df: Any) -> pd.DataFrame:
    return pd.DataFrame([row.asDict() for row in df.collect()])


# Training.


@pytest.mark.parametrize("backend", ["torch_distributed", "ray", "spark"])
def test_a_thousand_rows_in_eight_batches_of_two_workers(backend: str) -> None:
    made = estimator(backend, config={"lr": 0.01})
    before = made.evaluate(points(400), batch_size=128)
    history = made.fit(points(1000), epochs=4, batch_size=128, validation_data=points(400))
    assert history.column("batch_count") == [8] * 4
    assert history.column("num_samples") == [1000] * 4
    assert history.column("val_num_samples") == [400] * 4
    assert history[-1]["val_loss"] < history[0]["val_loss"] < before["val_loss"]
    after = made.evaluate(points(400), batch_size=128)
    assert before["Accuracy"] < after["Accuracy"] < 1
    assert after["val_loss"] == pytest.approx(history[-1]["val_loss"])


@pytest.mark.parametrize("backend", ["bigdl", "ray"])
def test_sgd_of_two_workers_to_the_digit(backend: str) -> None:
    model = Sloped(1.0)
    made = Estimator.from_torch(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.5),
        loss=nn.MSELoss(),
        backend=backend,
        workers=2,
    )
    x = np.array([0, 1, 0, 1], np.float32)[:, None]
    made.fit((x, np.zeros((4, 1), np.float32)), epochs=2, batch_size=4, shuffle=False)
    assert made.get_model() is model
    assert model.slope.item() == 0.25


def test_a_limit_on_steps_wins_over_epochs() -> None:
    history = estimator().fit(points(100), epochs=10, batch_size=4, max_steps=40)
    assert history.column("num_samples") == [100, 60]


def test_epochs_are_those_to_run_now() -> None:
    made = estimator("torch_distributed")
    assert made.fit(points(20), epochs=1).column("epoch") == [1]
    assert made.fit(points(20), epochs=2).column("epoch") == [2, 3]


class Digest(Callback):
    """Writes down what a worker has learnt, and that it is a task of Spark."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def after_run(self) -> None:
        from pyspark import BarrierTaskContext

        assert isinstance(BarrierTaskContext.get(), BarrierTaskContext)
        torch.save(self.run.framework.model.state_dict(), self._folder / f"{self.run.rank}.pt")  # type: ignore[attr-defined]


def test_workers_have_the_same_weights_and_evaluate_as_one(tmp_path: Path) -> None:
    made, held_back = estimator(), points(333)
    made.fit(points(200), epochs=2, batch_size=20, callbacks=[Digest(tmp_path)])
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert distance(weights(made), {name: value.numpy() for name, value in first.items()}) == 0
    found = made.evaluate(held_back, batch_size=50)
    assert found["num_samples"] == 333
    assert found["Accuracy"] == pytest.approx((made.predict(held_back[0]).argmax(1) == held_back[1]).mean())
    assert 0 < found["Accuracy"] < 1


# Data: frames of Spark, shards, loaders, functions.


def test_a_spark_frame_in_one_partition_and_one_with_empty_ones_train_two_workers(spark: Any) -> None:
    x, y = points(40)
    rows = [(n, x[n].tolist(), int(y[n])) for n in range(40)]
    one = spark.createDataFrame(rows, "n long, x array<double>, y long").coalesce(1)
    assert one.rdd.getNumPartitions() == 1
    assert estimator().fit(one, batch_size=8, feature_cols=["x"], label_cols=["y"])[0]["num_samples"] == 40

    spread = spark.sparkContext.parallelize([[], rows[:1], [], rows[1:3]], 4).flatMap(list)
    holes = spark.createDataFrame(spread, one.schema)
    assert holes.rdd.glom().map(len).collect() == [0, 1, 0, 2]
    made = estimator()
    assert made.fit(holes, batch_size=2, feature_cols=["x"], label_cols=["y"])[0]["num_samples"] == 3
    found = made.predict(holes, feature_cols=["x"])
    assert found.rdd.glom().map(len).collect() == [0, 1, 0, 2]
    whole = rows_of(found)
    assert whole["n"].tolist() == [0, 1, 2]
    np.testing.assert_allclose(np.stack(whole["prediction"]), made.predict(x[:3]), atol=1e-5)


def test_frames_need_names_and_go_together_with_shards(spark: Any) -> None:
    x, y = points(30)
    df = spark.createDataFrame([(x[n].tolist(), int(y[n])) for n in range(30)], "x array<double>, y long")
    made = estimator()
    with pytest.raises(PlanError, match="label columns is None; it should not be None in training"):
        made.fit(df, feature_cols=["x"])
    with pytest.raises(PlanError, match="feature columns is None; it should not be None in prediction"):
        made.predict(df)
    shards = XShards.partition({"x": x, "y": y}, 3)
    columns = {"feature_cols": ["x"], "label_cols": ["y"]}
    history = made.fit(df, batch_size=10, **columns, validation_data=shards)
    assert history.column("val_num_samples") == [30]
    by_frame = made.evaluate(df, feature_cols=["x"], labels_cols=["y"])
    assert by_frame["num_samples"] == 30
    assert by_frame["val_loss"] == pytest.approx(history[0]["val_loss"], rel=1e-5)


def test_an_identity_gives_back_what_it_was_given(spark: Any, tmp_path: Path) -> None:
    made = Estimator.from_torch(model=Identity(), backend="bigdl")  # to predict, it needs neither optimizer nor loss
    df = spark.createDataFrame([(n, [float(n)] * 5) for n in range(20)], "n long, x array<double>").repartition(3)
    found = rows_of(made.predict(df, feature_cols=["x"]))
    assert sorted(found["n"]) == [*range(20)]
    assert [row for row in found.itertuples() if list(row.x) != list(row.prediction)] == []
    x = np.random.default_rng(0).normal(size=(110, 5)).astype(np.float32)
    shards = XShards.partition({"x": x}, 22)
    for loaded in (False, True):
        if loaded:
            path = made.save(tmp_path / "identity.pt")
            made = Estimator.from_torch(model=Identity(), backend="bigdl")
            made.load(path)
        parts = made.predict(shards).collect()
        assert [len(part["prediction"]) for part in parts] == [5] * 22
        assert np.array_equal(np.concatenate([part["prediction"] for part in parts]), x)


def test_rows_of_a_frame_in_shards_of_thirty(spark: Any) -> None:
    df = spark.createDataFrame([(float(n), 2.0 * n) for n in range(100)], "x double, y double").coalesce(1)
    shards = XShards.from_spark(df, shard_size=30)
    made = Estimator.from_torch(model=Sloped(2.0), loss=nn.MSELoss(), metrics=MSE(), backend="bigdl", workers=2)
    parts = made.predict(shards, feature_cols=["x"]).collect()
    assert [len(part) for part in parts] == [30, 30, 30, 10]
    whole = pd.concat(parts)
    assert whole["prediction"].tolist() == whole["y"].tolist() == [2.0 * n for n in range(100)]
    assert made.evaluate(shards, feature_cols=["x"], label_cols=["y"]) == {"num_samples": 100, "val_loss": 0, "MSE": 0}


def test_several_outputs_are_together_what_went_in() -> None:
    x = np.random.default_rng(0).normal(size=(31, 50)).astype(np.float32)
    made = Estimator.from_torch(model=Halves())
    (part,) = made.predict(XShards.partition({"x": x}, 1)).collect()
    assert [each.shape for each in part["prediction"]] == [(31, 24), (31, 26)]
    assert np.array_equal(np.concatenate(part["prediction"], axis=1), x)
    named = made.predict(pd.DataFrame({"x": list(x)}), feature_cols=["x"], output_cols=["left", "right"])
    assert list(named.columns) == ["x", "left", "right"]
    assert np.array_equal(np.hstack([np.stack(named["left"]), np.stack(named["right"])]), x)


@pytest.mark.parametrize("kind", ["spark", "shards of frames", "pandas", "ray"])
def test_two_columns_are_two_inputs(kind: str) -> None:
    x, y = line()
    frame = pd.DataFrame({"f1": x / 4, "f2": 3 * x / 4, "y": y})
    data: Any = frame
    if kind == "spark":
        session = shoal.engines.native("spark").session  # type: ignore[attr-defined]
        data = session.createDataFrame(frame.to_dict("records"))
    elif kind == "ray":
        shoal.engines.native("ray")
        import ray.data

        data = ray.data.from_pandas(frame)
    elif kind == "shards of frames":
        data = XShards.partition({name: frame[name].to_numpy() for name in frame}, 3).transform_shard(pd.DataFrame)
    model = Sloped()
    made = Estimator.from_torch(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.5),
        loss=nn.MSELoss(),
        backend={"spark": "bigdl", "ray": "ray"}.get(kind),
        workers=2,
    )
    history = made.fit(data, epochs=8, batch_size=8, feature_cols=["f1", "f2"], label_cols=["y"])
    assert history.column("num_samples") == [40] * 8
    assert made.get_model().slope.item() == pytest.approx(2, abs=0.05)
    found = made.predict(data, feature_cols=["f1", "f2"])
    assert isinstance(found, type(data))


def loader(config: dict[str, Any], batch_size: int) -> DataLoader[Any]:
    x, y = points(config["rows"])
    return DataLoader(TensorDataset(torch.tensor(x), torch.tensor(y)), batch_size=batch_size, shuffle=True)


def test_functions_make_model_loss_optimizer_and_data() -> None:
    made = estimator(loss=lambda config: nn.CrossEntropyLoss(), config={"rows": 90, "lr": 0.05})
    history = made.fit(loader, epochs=2, batch_size=20, validation_data=loader)
    assert history.column("num_samples") == history.column("val_num_samples") == [90, 90]
    assert history.column("batch_count") == [5, 5]


# What a training leaves behind.


def test_a_checkpoint_is_what_was_learnt_and_counts_on(tmp_path: Path) -> None:
    x, y = points(60)
    with_targets, without = XShards.partition({"x": x, "y": y}, 4), XShards.partition({"x": x}, 4)
    made = estimator(model_dir=str(tmp_path))
    made.fit(with_targets, epochs=4, batch_size=20, checkpoint_trigger=SeveralIteration(4))
    other = estimator()
    other.load_orca_checkpoint(tmp_path)
    assert distance(weights(other), weights(made)) == 0
    parts = [each.collect() for each in (other.predict(with_targets), other.predict(without))]
    assert all(np.array_equal(one["prediction"], two["prediction"]) for one, two in zip(*parts, strict=True))
    earlier = estimator("torch_distributed")
    earlier.load_orca_checkpoint(str(tmp_path), version=8, prefix="optimMethod-Model")
    assert distance(weights(earlier), weights(made)) > 0
    assert earlier.fit(with_targets, epochs=1, batch_size=20).column("epoch") == [3]
    assert other.fit(with_targets, epochs=1, batch_size=20).column("epoch") == [5]
    with pytest.raises(StateError, match="no complete checkpoint of step 7 in "):
        other.load_orca_checkpoint(tmp_path, version=7)
    with pytest.raises(StateError, match="no complete checkpoint in "):
        other.load_orca_checkpoint(tmp_path / "nothing")


def test_a_model_that_was_saved_is_the_one_that_is_loaded(tmp_path: Path) -> None:
    made, data = estimator("torch_distributed"), points(60)
    made.fit(data, epochs=1, batch_size=20)
    path, kept = made.save(tmp_path / "model.pt"), weights(made)
    assert [each.name for each in tmp_path.iterdir()] == ["model.pt"]  # the optimizer is in it
    made.fit(data, epochs=1, batch_size=20)
    later = weights(made)
    made.load(path)
    assert distance(weights(made), kept) == 0 < distance(later, kept)
    made.fit(data, epochs=1, batch_size=20)
    assert distance(weights(made), later) < 1e-6  # with the momentum that it had


# What is refused, and what is not.


def test_a_batch_size_beside_a_loader_and_unknown_backends_are_refused() -> None:
    with pytest.raises(PlanError, match="batch_size=4 is given beside a DataLoader"):
        estimator().fit(loader({"rows": 8}, 2), batch_size=4)
    with pytest.raises(PlanError, match="batch_size should be greater than 0"):
        estimator().fit(points(8), batch_size=0)
    with pytest.raises(PlanError, match=r"no backend 'nccl'; known are .*'torch_distributed'.*'ray', 'spark', 'bigdl'"):
        estimator("nccl")


def test_an_evaluation_needs_a_loss_or_metrics() -> None:
    made = estimator("torch_distributed", metrics=None)
    assert list(made.evaluate(points(30))) == ["num_samples", "val_loss"]
    found = made.evaluate(points(30), validation_metrics=[Accuracy()])
    assert list(found) == ["num_samples", "val_loss", "Accuracy"]
    assert list(made.evaluate(points(30))) == ["num_samples", "val_loss"]
    bare = estimator("torch_distributed", loss=None, metrics=None)
    with pytest.raises(PlanError, match="needs metrics"):
        bare.evaluate(points(30))
    assert bare.evaluate(points(30), validation_metrics="accuracy")["Accuracy"] == found["Accuracy"]


# Batch norm, of which a worker with one row can say nothing alone.


def test_six_rows_in_batches_of_two_train_a_batch_norm() -> None:
    made = estimator(model=normed)
    x, y = points(6)
    history = made.fit(DataLoader(TensorDataset(torch.tensor(x), torch.tensor(y)), batch_size=2), epochs=2)
    assert history.column("num_samples") == [6, 6]
    assert history.column("batch_count") == [3, 3]
    assert made.evaluate(DataLoader(TensorDataset(torch.tensor(x), torch.tensor(y)), batch_size=2))["num_samples"] == 6


@pytest.mark.parametrize(("workers", "batch", "options"), [(2, 3, {}), (3, 5, {}), (2, 8, {"sync_batch_norm": True})])
def test_batch_norm_over_all_workers_is_that_of_one(workers: int, batch: int, options: dict[str, Any]) -> None:
    """Of 22 rows in batches of 5, three workers have 2, 2 and 1, and in the end 1, 1 and none."""
    alone, several = estimator(None, model=normed, workers=1), estimator(None, model=normed, workers=workers, **options)
    data = points(22) if batch != 3 else points(21)
    histories = [each.fit(data, epochs=3, batch_size=batch, validation_data=points(40)) for each in (alone, several)]
    assert distance(weights(several), weights(alone)) < 1e-4
    for name in ("train_loss", "val_loss"):
        assert np.allclose(histories[0].column(name), histories[1].column(name), atol=1e-5)


def test_batch_norm_of_each_worker_is_left_alone_where_it_has_rows_enough() -> None:
    """As torch does it; what holds in evaluation is then the first one's, on all workers."""
    own = estimator(None, model=normed)
    history = own.fit(points(40), epochs=2, batch_size=8, validation_data=points(40))
    assert own.evaluate(points(40))["val_loss"] == pytest.approx(history[-1]["val_loss"], rel=1e-5)
    whole = estimator(None, model=normed, sync_batch_norm=True)
    whole.fit(points(40), epochs=2, batch_size=8)
    assert distance(weights(own), weights(whole)) > 1e-3


def test_one_row_is_too_few_for_batch_norm_on_any_number_of_workers() -> None:
    with pytest.raises(PlanError, match='batch norm needs two; leave a last batch of one row out with end="drop"'):
        estimator(None, model=normed).fit(points(7), batch_size=2)
    history = estimator(None, model=normed).fit(points(7), batch_size=2, end="drop")
    assert history.column("num_samples") == [6]
