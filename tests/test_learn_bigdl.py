"""BigDL on a Spark of its own: models that are written here learn over there, and what they learn comes back."""

from __future__ import annotations

import importlib
import os
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import shoal
from shoal.data import XShards
from shoal.environments import Guest, find
from shoal.errors import PlanError, StateError, WorkerDiedError, WorkerEnvironmentError
from shoal.learn import Callback, EarlyStopping, EveryEpoch, LearningRateScheduler, ModelCheckpoint, SeveralIteration
from shoal.learn.bigdl import Estimator, Session
from shoal.learn.bigdl.feature.common import ArrayToTensor, ChainedPreprocessing, ScalarToTensor, SeqToTensor
from shoal.learn.bigdl.keras.layers import Dense
from shoal.learn.bigdl.keras.models import Sequential as KerasSequential
from shoal.learn.bigdl.nn.criterion import (
    ClassNLLCriterion,
    CrossEntropyCriterion,
    MSECriterion,
    MultiCriterion,
    ParallelCriterion,
)
from shoal.learn.bigdl.nn.layer import (
    CAddTable,
    ConcatTable,
    Linear,
    LogSoftMax,
    ParallelTable,
    Reshape,
    Sequential,
    SpatialBatchNormalization,
    SpatialConvolution,
)
from shoal.learn.bigdl.optim.optimizer import SGD, Adam, Step
from shoal.learn.metrics import MAE, MSE, Accuracy
from support.engine import by_value, wait_until
from support.guests import is_running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def _engine() -> Iterator[None]:
    shoal.init("local", workers=2)
    yield
    shoal.shutdown()


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__):
        yield


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """One process of BigDL for most of this file."""
    with Session() as made:
        assert made.cores == 2
        yield made


def plane(count: int = 40) -> tuple[Any, Any]:
    """Points, and a plane over them."""
    x = np.random.default_rng(1).random((count, 2)).astype(np.float32)
    return x, (x @ np.array([[1.0, 2.0], [3.0, -1.0]], np.float32) + 0.5).astype(np.float32)


def linear(session: Session | None, **options: Any) -> Estimator:
    given = {"model": Sequential().add(Linear(2, 2)), "loss": MSECriterion(), "optimizer": Adam(learningrate=0.1)}
    return Estimator.from_bigdl(**{**given, "metrics": [MAE()], "session": session, **options})


def alike(one: Any, other: Any) -> bool:
    """Tell whether predictions are the same; how Java's memory lies may change the last bit."""
    return np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=0, atol=1e-6)


def weights(made: Estimator) -> Any:
    return np.concatenate([each.ravel() for each in made.get_model().get_weights()])


@pytest.mark.parametrize(
    ("ours", "omitted"),
    [
        ("nn.layer", {"Node", "SharedStaticUtils"}),
        ("nn.criterion", set[str]()),
        ("nn.initialization_method", set[str]()),
        ("keras.models", set[str]()),
    ],
)
def test_names_are_those_of_bigdl(ours: str, omitted: set[str]) -> None:
    assert {*importlib.import_module(f"shoal.learn.bigdl.{ours}").__all__} == {*real_names()[ours]} - omitted


@pytest.mark.parametrize("ours", ["optim.optimizer", "feature.common", "keras.layers"])
def test_names_are_some_of_bigdl(ours: str) -> None:
    listed = importlib.import_module(f"shoal.learn.bigdl.{ours}").__all__
    assert len(listed) >= 5
    assert {*listed} <= {*real_names()[ours]}


_NAMES: dict[str, list[str]] = {}


def real_names() -> dict[str, list[str]]:
    """Ask the package itself, once, what classes it has."""

    def found() -> dict[str, list[str]]:
        import importlib
        import inspect

        modules = ["nn.layer", "nn.criterion", "nn.initialization_method", "optim.optimizer", "feature.common"]
        return {
            module: [
                name
                for name, value in vars(importlib.import_module(f"bigdl.dllib.{module}")).items()
                if inspect.isclass(value)
                and (module == "keras.layers" or value.__module__ == f"bigdl.dllib.{module}")
                and not name.startswith("_")
            ]
            for module in [*modules, "keras.layers", "keras.models"]
        }

    if not _NAMES:
        with Guest(find("bigdl"), quiet=True) as guest:
            _NAMES.update(guest.call(found))
    return _NAMES


def test_all_names_come_by_a_star() -> None:
    names: dict[str, Any] = {}
    exec("from shoal.learn.bigdl.nn.layer import *\nfrom shoal.learn.bigdl.optim.optimizer import *", names)
    assert repr(names["Adam"]()) == "<bigdl.dllib.optim.optimizer.Adam(...), which is made where it is sent>"
    assert "Linear" in names
    with pytest.raises(AttributeError, match=r"bigdl\.dllib\.nn\.layer of BigDL has no public class 'Linaer'"):
        importlib.import_module("shoal.learn.bigdl.nn.layer").Linaer  # noqa: B018


def test_it_predicts_before_it_has_learnt_and_learns_then(session: Session) -> None:
    x, y = plane()
    made = linear(session)
    before = made.predict(x)
    assert before.shape == (40, 2)
    assert before.dtype == np.float32
    history = made.fit((x, y), 8, batch_size=8)
    assert history.column("epoch") == list(range(1, 9))
    assert history.column("num_samples") == [40] * 8
    assert history.column("batch_count") == [5] * 8
    losses = history.column("train_loss")
    assert losses[-1] < losses[0] / 4
    found = made.evaluate((x, y))
    assert found["num_samples"] == 40
    predicted = made.predict(x)
    assert found["MAE"] == pytest.approx(np.abs(predicted - y).mean(), abs=1e-6)
    assert found["val_loss"] == pytest.approx(np.square(predicted - y).mean(), abs=1e-6)
    assert np.square(predicted - y).mean() < np.square(before - y).mean() / 4
    layer = next(iter(made.get_model().weights.values()))
    assert np.allclose(x @ layer["weight"].T + layer["bias"], predicted, atol=1e-5)
    assert "Linear" in repr(made.get_model())
    assert made.fit((x, y), 1, batch_size=8).column("epoch") == [9]


def test_steps_are_those_of_gradient_descent(session: Session) -> None:
    """To the 16 bits in which BigDL passes gradients around; ten rows in steps of four are three steps."""
    x, y = plane(10)
    made = linear(session, optimizer=SGD(learningrate=0.2), metrics=None)
    a, b = made.get_model().get_weights()
    history = made.fit((x, y), 2, batch_size=4, shuffle=False)
    losses = []
    for _ in range(2):
        for rows in ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]):
            away = x[rows] @ a.T + b - y[rows]
            losses.append(np.square(away).mean())
            a, b = a - 0.2 * 2 / 8 * away.T @ x[rows], b - 0.2 * 2 / 8 * away.sum(axis=0)
    assert np.allclose(weights(made), np.concatenate([a.ravel(), b]), atol=0.02)
    assert history[0]["num_samples"] == 10
    expected = [(4 * losses[n] + 4 * losses[n + 1] + 2 * losses[n + 2]) / 10 for n in (0, 3)]
    assert history.column("train_loss") == pytest.approx(expected, rel=0.05)


def test_summaries_have_a_point_for_each_step_and_each_validation(session: Session, tmp_path: Path) -> None:
    x, y = plane(4)
    made = linear(session)
    made.set_tensorboard(str(tmp_path), "app")
    assert made.get_train_summary("Loss") is None
    history = made.fit((x, y), 5, batch_size=4, validation_data=(x, y), validation_trigger=EveryEpoch())
    train, validation = made.get_train_summary("Loss"), made.get_validation_summary("MAE")
    assert train is not None
    assert validation is not None
    assert [step for step, _ in train] == [1, 2, 3, 4, 5]
    assert [value for _, value in train] == pytest.approx(history.column("train_loss"))
    assert [value for _, value in validation] == pytest.approx(history.column("val_MAE"))
    assert len(validation) == 5
    assert made.get_train_summary("LearningRate") == [(step, pytest.approx(0.1)) for step in range(1, 6)]
    assert (tmp_path / "app" / "train").is_dir()


def test_validation_when_a_trigger_says_so(session: Session) -> None:
    seen: list[int] = []

    class Look(Callback):
        def after_validation(self, stats: Any) -> None:
            seen.append(self.run.step)

    x, y = plane(24)
    made = linear(session)
    options = {"validation_data": (x, y), "validation_trigger": SeveralIteration(2), "callbacks": [Look()]}
    history = made.fit((x, y), 2, batch_size=8, **options)
    assert seen == [2, 4, 6]
    assert history[-1]["val_MAE"] == pytest.approx(made.evaluate((x, y))["MAE"], abs=1e-6)


def test_what_was_saved_is_what_is_loaded(session: Session, tmp_path: Path) -> None:
    x, y = plane()
    made = linear(session)
    made.fit((x, y), 2, batch_size=8)
    path = made.save(tmp_path / "model.zip")
    assert {"model.bigdl", "model.bin", "optimizer.bin"} <= {*zipfile.ZipFile(path).namelist()}
    first = made.predict(x)
    other = linear(session, seed=5)
    assert not np.array_equal(other.predict(x), first)
    other.load(path)
    assert alike(other.predict(x), first)
    for each in (made, other):
        assert each.fit((x, y), 2, batch_size=8, shuffle=False).column("epoch") == [3, 4]
    assert np.array_equal(weights(made), weights(other)), "momentum and counts were in the file"
    zipfile.ZipFile(tmp_path / "empty.zip", "w").writestr("shoal.json", "{}")
    with pytest.raises(StateError, match="has no model of BigDL"):
        other.load(tmp_path / "empty.zip")


def test_java_makes_no_other_objects_of_a_file(session: Session, tmp_path: Path) -> None:
    """A file of somebody who has put a java.io.File where the optimizer should be."""
    name, kind, rest = b"java.io.File", b"Ljava/lang/String;", bytes.fromhex("7870740001787702002f78")
    foreign = b"\xac\xed\0\5sr\0\x0c" + name + bytes.fromhex("042da4450e0de4ff0300014c0004") + b"path"
    foreign += b"t\0\x12" + kind + rest
    made = linear(session)
    with zipfile.ZipFile(made.save(tmp_path / "model.zip")) as good, zipfile.ZipFile(tmp_path / "bad.zip", "w") as bad:
        for each in good.namelist():
            bad.writestr(each, foreign if each == "optimizer.bin" else good.read(each))
    made.load(tmp_path / "bad.zip")
    with pytest.raises(PlanError, match=r"BigDL fails in reading the model: .*REJECTED"):
        made.predict(plane(4)[0])
    made.load(tmp_path / "model.zip")
    assert made.predict(plane(4)[0]).shape == (4, 2)


class Stop(Exception):
    """Ends a training in the middle."""


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self._step = step

    def after_step(self, step: int, loss: float) -> None:
        if step == self._step:
            raise Stop


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_training_goes_on_from_its_checkpoint_as_if_nothing_had_been(
    session: Session, optimizer: str, tmp_path: Path
) -> None:
    def method() -> Any:
        if optimizer == "adam":
            return Adam(learningrate=0.1)
        return SGD(learningrate=0.1, momentum=0.9, dampening=0.0, leaningrate_schedule=Step(3, 0.5))

    x, y = plane(22)
    whole = linear(session, optimizer=method())
    expected = whole.fit((x, y), 3, batch_size=4)
    options = {"batch_size": 4, "checkpoint_trigger": SeveralIteration(4)}
    begun = linear(session, optimizer=method(), model_dir=str(tmp_path))
    with pytest.raises(Stop):
        begun.fit((x, y), 3, callbacks=[StopAt(10)], **options)
    ended = linear(session, optimizer=method(), model_dir=str(tmp_path), seed=0)
    history = ended.fit((x, y), 3, resume=True, **options)
    assert np.array_equal(weights(ended), weights(whole))
    assert history.column("epoch") == [1, 2, 3]
    assert history.column("train_loss") == pytest.approx(expected.column("train_loss"), rel=1e-6)
    assert history.column("num_samples") == [22] * 3
    again = linear(session, optimizer=method())
    again.load_orca_checkpoint(tmp_path, version=16)
    latest = linear(session, optimizer=method())
    latest.load(tmp_path, is_checkpoint=True)
    assert not np.array_equal(weights(again), weights(ended))
    with pytest.raises(StateError, match="no complete checkpoint of step 7"):
        again.load_orca_checkpoint(tmp_path, version=7)


def test_a_checkpoint_after_each_epoch_is_the_model_as_it_was(session: Session, tmp_path: Path) -> None:
    x, y = plane(8)
    made = linear(session, model_dir=str(tmp_path))
    made.fit((x, y), 2, batch_size=4, checkpoint_trigger=EveryEpoch())
    other = linear(session, seed=9)
    other.load(tmp_path, is_checkpoint=True)
    assert np.array_equal(weights(other), weights(made))
    assert alike(other.predict(x), made.predict(x))
    assert made.latest_checkpoint() is not None


class KillJava(Callback):
    """Kills what the guest of a session has started, after a step."""

    def __init__(self, session: Session, step: int) -> None:
        self._session, self._step = session, step

    def after_step(self, step: int, loss: float) -> None:
        if step == self._step:
            for pid in processes(self._session)[1:]:
                os.kill(pid, signal.SIGKILL)


def processes(session: Session) -> list[int]:
    """List the guest, and what it has started."""
    assert session.guest is not None
    pid = session.guest.pid
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def test_a_killed_process_is_told_and_the_training_goes_on(session: Session, tmp_path: Path) -> None:
    x, y = plane(16)
    with Session(cores=2) as mortal:
        made = linear(mortal, model_dir=str(tmp_path))
        told = r"BigDL is gone: the Java process of BigDL has died.*fit\(resume=True\) goes on from the last checkpoint"
        with pytest.raises(WorkerDiedError, match=told):
            made.fit((x, y), 4, batch_size=8, callbacks=[KillJava(mortal, 6)])
        assert mortal.guest is None
        history = made.fit((x, y), 4, batch_size=8, resume=True)
        assert history.column("epoch") == [1, 2, 3, 4]
        learnt, pids = weights(made), processes(mortal)
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match=r"BigDL is gone.*SIGKILL"):
            made.predict(x)
        assert wait_until(lambda: not any(map(is_running, pids)))
    whole = linear(session)
    whole.fit((x, y), 4, batch_size=8)
    assert np.array_equal(weights(whole), learnt)


def classes(count: int = 60) -> tuple[Any, Any]:
    """Points left and right of a line, which are of the classes 1 and 2."""
    x = np.random.default_rng(2).normal(size=(count, 2)).astype(np.float32)
    return x, (x.sum(axis=1) > 0).astype(np.float32) + 1


@pytest.mark.parametrize("kind", ["layers", "function", "config", "keras"])
def test_accuracy_is_that_of_the_predictions(session: Session, kind: str) -> None:
    x, y = classes()
    model: Any = Sequential().add(Linear(2, 2)).add(LogSoftMax())
    loss: Any = ClassNLLCriterion()
    if kind == "function":
        model, loss = lambda: Sequential().add(Linear(2, 2)).add(LogSoftMax()), lambda: ClassNLLCriterion()
    elif kind == "config":

        def model(config: dict[str, Any]) -> Any:
            return Sequential().add(Linear(2, config["classes"]))

        loss = CrossEntropyCriterion()
    elif kind == "keras":
        model = KerasSequential().add(Dense(2, input_shape=(2,), activation="log_softmax"))
    made = linear(session, model=model, loss=loss, metrics=Accuracy(zero_based_label=False), config={"classes": 2})
    made.fit({"x": x, "y": y}, 5, batch_size=10)
    found = made.evaluate({"x": x, "y": y})
    assert found["Accuracy"] == np.mean(made.predict(x).argmax(axis=1) + 1 == y)
    assert found["Accuracy"] > 0.8


def adding(*widths: int) -> Any:
    """Give the sum of what several inputs become."""
    inputs = ParallelTable()
    for width in widths:
        inputs.add(Sequential().add(Reshape([width])).add(Linear(width, 1)))
    return Sequential().add(inputs).add(CAddTable())


def test_rows_are_cut_into_several_inputs(session: Session) -> None:
    x, y = plane()
    made = linear(session, model=adding(1, 1), feature_preprocessing=[[1], [1]])
    frame = pd.DataFrame({"features": list(x), "label": y[:, 0]})
    losses = made.fit(frame, 3, batch_size=8).column("train_loss")
    assert losses[-1] < losses[0]
    assert np.stack(made.predict(frame)["prediction"]).shape == (40, 1)
    parts = pd.DataFrame({"a": x[:, 0], "b": list(x), "c": list(np.hstack([x, x])), "label": y[:, 0]})
    columns = ["a", "b", "c"]
    several = linear(session, model=adding(1, 2, 4), feature_preprocessing=[[1], [2], [2, 2]])
    several.fit(parts, 1, batch_size=8, feature_cols=columns)
    assert np.stack(several.predict(parts, feature_cols=columns)["prediction"]).shape == (40, 1)
    apart = several.predict([x[:, :1], x, np.hstack([x, x])])
    assert alike(apart, np.stack(several.predict(parts, feature_cols=columns)["prediction"]))
    with pytest.raises(PlanError, match=r"sizes \[\[1\], \[2\], \[2, 2\]\] have 7 numbers, and a row has 2"):
        several.predict(x)


def test_columns_are_joined_unless_they_are_cut(session: Session) -> None:
    x, y = plane()
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": y[:, 0], "d": y[:, 1]})
    made = linear(session)
    history = made.fit(frame, 2, batch_size=8, feature_cols=["a", "b"], label_cols=["c", "d"])
    assert history.column("num_samples") == [40, 40]
    same = linear(session)
    same.fit((x, y), 2, batch_size=8)
    assert np.array_equal(weights(made), weights(same))
    predicted = made.predict(frame, feature_cols=["a", "b"])
    assert alike(np.stack(predicted["prediction"]), same.predict(x))
    targets = linear(
        session,
        model=Sequential().add(ConcatTable().add(Linear(2, 1)).add(Linear(2, 1))),
        loss=ParallelCriterion().add(MSECriterion()).add(MSECriterion()),
        label_preprocessing=[[1], [1]],
        metrics=None,
    )
    losses = targets.fit(frame, 4, batch_size=8, feature_cols=["a", "b"], label_cols=["c", "d"]).column("train_loss")
    assert losses[-1] < losses[0]
    both = targets.predict(x)
    assert [each.shape for each in both] == [(40, 1), (40, 1)]


@pytest.mark.parametrize(
    ("features", "labels"),
    [
        (SeqToTensor([2]), SeqToTensor([2])),
        (ArrayToTensor([2]), ChainedPreprocessing([SeqToTensor([2])])),
        ([2], None),
    ],
)
def test_preprocessing_of_bigdl_itself(session: Session, features: Any, labels: Any) -> None:
    x, y = plane(8)
    made = linear(session, feature_preprocessing=features, label_preprocessing=labels)
    made.fit((x, y), 1, batch_size=8)
    plain = linear(session)
    plain.fit((x, y), 1, batch_size=8)
    assert alike(made.predict(x), plain.predict(x))


def test_a_number_is_a_tensor(session: Session) -> None:
    x, y = plane(8)
    single = linear(session, model=Sequential().add(Linear(1, 1)), label_preprocessing=ScalarToTensor())
    assert single.fit((x[:, :1], y[:, 0]), 1, batch_size=8).column("num_samples") == [8]


def test_shards_stay_shards_and_predict_the_same(session: Session) -> None:
    x, y = plane()
    made = linear(session)
    shards = XShards.partition({"x": x, "y": y}, 3)
    assert made.fit(shards, 2, batch_size=8).column("num_samples") == [40, 40]
    found = made.predict(shards)
    assert isinstance(found, XShards)
    assert [len(each["prediction"]) for each in found.collect()] == [14, 13, 13]
    together = np.concatenate([each["prediction"] for each in found.collect()])
    assert alike(together, made.predict(x))
    frames = XShards.from_shards(
        [pd.DataFrame({"features": list(x[n : n + 20]), "label": list(y[n : n + 20])}) for n in (0, 20)]
    )
    assert made.evaluate(frames)["num_samples"] == 40
    assert alike(np.concatenate([np.stack(each["prediction"]) for each in made.predict(frames)]), together)
    dataset = shoal.from_arrays({"x": x, "y": y})
    assert made.evaluate(dataset)["MAE"] == pytest.approx(made.evaluate((x, y))["MAE"], abs=1e-6)
    assert alike([sample["prediction"] for sample in made.predict(dataset)], together)


def test_a_frame_of_the_users_own_spark(session: Session, tmp_path: Path) -> None:
    """The blocks of the document on training: that Spark is another one, of another version."""
    spark = shoal.engines.native("spark").session  # type: ignore[attr-defined]
    x, y = plane(24)
    pd.DataFrame({"features": list(x), "label": list(y)}).to_parquet(tmp_path / "data.parquet")

    linear_model = Sequential().add(Linear(2, 2))
    mse_criterion = MSECriterion()
    est = Estimator.from_bigdl(
        model=linear_model, loss=mse_criterion, optimizer=Adam(learningrate=0.1), session=session
    )
    df = spark.read.parquet(f"{tmp_path}/data.parquet").repartition(2)
    before = est.evaluate((x, y))["val_loss"]
    est.fit(df, 4, batch_size=4)
    result_df = est.predict(df)

    found = result_df.collect()
    assert result_df.columns == ["features", "label", "prediction"]
    assert len(found) == 24
    assert all(len(row["prediction"]) == 2 for row in found)
    assert np.mean([np.subtract(row["prediction"], row["label"]) ** 2 for row in found]) < before / 2
    shards = XShards.from_shards([{"x": np.array([row["features"] for row in found], np.float32)}])
    [same] = est.predict(shards).collect()
    assert alike(np.array([row["prediction"] for row in found], np.float32), same["prediction"])


def test_a_model_moves_to_torch(session: Session) -> None:
    """With its convolution, its batch norm and what that remembers, and its classes."""
    pictures = np.random.default_rng(3).normal(size=(16, 2, 6, 5)).astype(np.float32)
    labels = (pictures.mean(axis=(1, 2, 3)) > 0).astype(np.float32) + 1
    model = Sequential().add(SpatialConvolution(2, 3, 3, 2, 1, 2, 1, 0).set_name("conv"))
    model.add(SpatialBatchNormalization(3).set_name("norm")).add(Reshape([45])).add(Linear(45, 2).set_name("out"))
    model.add(LogSoftMax())
    made = linear(session, model=model, loss=ClassNLLCriterion(), metrics=None)
    made.fit((pictures, labels), 2, batch_size=8)
    layers = made.get_model().weights
    moved = nn.Sequential(nn.Conv2d(2, 3, (2, 3), (2, 1), (0, 1)), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(45, 2))
    moved.append(nn.LogSoftmax(1)).eval()
    torch_names = {"weight": "weight", "bias": "bias", "runningMean": "running_mean", "runningVar": "running_var"}
    with torch.no_grad():
        for place, name in ((0, "conv"), (1, "norm"), (3, "out")):
            for ours, theirs in torch_names.items():
                if ours in layers[name]:
                    values = layers[name][ours][0] if (name, ours) == ("conv", "weight") else layers[name][ours]
                    getattr(moved[place], theirs).copy_(torch.from_numpy(values))
        expected = moved(torch.from_numpy(pictures)).numpy()
        loss = nn.NLLLoss()(torch.from_numpy(expected), torch.from_numpy(labels).long() - 1)
    assert {"runningMean", "runningVar"} <= layers["norm"].keys()
    assert np.allclose(made.predict(pictures), expected, atol=1e-4)
    assert made.evaluate((pictures, labels), batch_size=16)["val_loss"] == pytest.approx(float(loss), abs=1e-4)


def test_gradients_are_cut_off(session: Session) -> None:
    x, y = plane(8)
    options = {"optimizer": SGD(learningrate=1.0), "metrics": None}
    made = linear(session, **options)
    before = weights(made)
    made.set_constant_gradient_clipping(-0.001, 0.001)
    made.fit((x, y), 1, batch_size=8)
    assert np.abs(weights(made) - before).max() == pytest.approx(0.001, rel=0.02)
    made.set_l2_norm_gradient_clipping(0.01)
    before = weights(made)
    made.fit((x, y), 1, batch_size=8)
    assert np.linalg.norm(weights(made) - before) == pytest.approx(0.01, rel=0.02)
    made.clear_gradient_clipping()
    before = weights(made)
    made.fit((x, y), 1, batch_size=8)
    assert np.linalg.norm(weights(made) - before) > 0.1
    with pytest.raises(PlanError, match="the first has to be smaller"):
        made.set_constant_gradient_clipping(1, -1)
    with pytest.raises(PlanError, match="cannot be shortened to 0"):
        made.set_l2_norm_gradient_clipping(0)


def test_callbacks_stop_keep_and_slow_down(session: Session, tmp_path: Path) -> None:
    x, y = plane(8)
    made = linear(session, optimizer=None)
    callbacks = [
        LearningRateScheduler(lambda epoch, rate: 0.0),
        EarlyStopping("val_loss", patience=2, restore_best=True),
        ModelCheckpoint(f"{tmp_path}/net-{{epoch}}", keep=1),
    ]
    before = weights(made)
    history = made.fit((x, y), 9, batch_size=8, validation_data=(x, y), callbacks=callbacks)
    assert len(history) == 3
    assert np.array_equal(weights(made), before)
    path = Estimator.latest_checkpoint(tmp_path)
    assert path is not None
    other = linear(session, seed=4)
    other.load(path)
    assert np.array_equal(weights(other), before)
    assert made.fit((x, y), 9, batch_size=4, max_steps=3).column("num_samples") == [8, 4]


def test_what_cannot_be_is_said_plainly(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = plane(8)
    made = linear(session)
    with pytest.raises(
        PlanError, match=r"Only orca metrics are supported, but get str \('accuracy'\); give those of shoal"
    ):
        linear(session, metrics=["accuracy"])
    with pytest.raises(
        PlanError,
        match=r"batch_size=3 cannot be shared out among the 2 cores of BigDL; give a multiple of 2, such as 2",
    ):
        made.fit((x, y), 1, batch_size=3)
    with pytest.raises(PlanError, match="BigDL fails in predicting: size mismatch, m1:2x5 m2:2x2"):
        made.fit((np.ones((8, 5), np.float32), y), 1, batch_size=4)
    with pytest.raises(PlanError, match="BigDL fails in computing the loss"):
        made.fit((x, np.ones((8, 3), np.float32)), 1, batch_size=4)
    with pytest.raises(PlanError, match="BigDL takes numbers, and there are values of type complex64"):
        made.fit((x, y.astype(np.complex64)), 1, batch_size=4)
    with pytest.raises(PlanError, match="there is no column 'features'; the columns are a, label"):
        made.fit(pd.DataFrame({"a": x[:, 0], "label": y[:, 0]}), 1)
    with pytest.raises(PlanError, match="a training needs a loss"):
        linear(session, loss=None).fit((x, y), 1)
    with pytest.raises(PlanError, match="an evaluation without a loss needs metrics"):
        linear(session, loss=None, metrics=None).evaluate((x, y))
    assert linear(session, loss=None, metrics=MSE).evaluate((x, y))["MSE"] > 0
    with pytest.raises(PlanError, match=r"model= is a int; write it with shoal\.learn\.bigdl\.nn"):
        linear(session, model=3)
    with pytest.raises(PlanError, match="loss= is a Linear, and no Criterion of BigDL"):
        linear(session, loss=Linear(2, 2)).predict(x)
    with pytest.raises(PlanError, match="batch_size should be greater than 0"):
        made.predict(x, batch_size=0)
    with pytest.raises(PlanError, match="there is no row to learn from"):
        made.fit((x[:0], y[:0]), 1)
    with pytest.raises(PlanError, match="at least one is needed"):
        Session(cores=0)
    monkeypatch.setenv("SHOAL_ENVIRONMENTS", str(tmp_path))
    with pytest.raises(WorkerEnvironmentError, match="there is no environment 'bigdl' yet: `shoal env create bigdl`"):
        linear(None)


def test_it_says_nothing(capfd: pytest.CaptureFixture[str], session: Session) -> None:
    x, y = plane(8)
    made = linear(session, metrics=None)
    made.fit((x, y), 1, batch_size=4)
    assert capfd.readouterr() == ("", "")
    made.fit((x, y), 1, batch_size=4, progress=True)
    assert "epoch 2" in capfd.readouterr().err


def test_several_losses_and_a_weighted_sum(session: Session) -> None:
    x, y = plane(8)
    loss = MultiCriterion()
    loss.add(MSECriterion(), 0.5)
    loss.add(MSECriterion(), 0.25)
    made = linear(session, loss=loss, metrics=None)
    found = made.evaluate((x, y))
    assert found["val_loss"] == pytest.approx(0.75 * np.square(made.predict(x) - y).mean(), rel=1e-5)
