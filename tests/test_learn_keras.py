"""Keras on several workers: the same steps on any number of them, after any loss, and files that Keras opens itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

import shoal
from shoal.errors import PlanError, StateError
from shoal.learn import Callback, EarlyStopping, SeveralIteration
from shoal.learn.keras._keras_choice import modules_for
from shoal.learn.metrics import Accuracy
from shoal.learn.tf2 import Estimator
from shoal.testing.faults import KillAt
from support.engine import by_value
from support.lengths import first

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # Keras, when it saves
]
Weights = list[np.ndarray[Any, Any]]


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__):
        yield


@pytest.fixture(scope="module", autouse=True)
def _engine() -> Iterator[None]:
    with shoal.init("local", workers=4):
        yield


def digits(count: int = 1797) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    found = load_digits()
    return (found.images[:count] / 16).astype(np.float32), found.target[:count].astype(np.int64)


def network(config: dict[str, Any]) -> Any:
    layers: list[Any] = [keras.Input((8, 8)), keras.layers.Flatten(), keras.layers.Dense(32, activation="tanh")]
    layers += [keras.layers.BatchNormalization()] if config.get("norm") else []
    layers += [keras.layers.Dropout(0.3)] if config.get("dropout") else []
    model = keras.Sequential([*layers, keras.layers.Dense(10)])
    model.compile(
        optimizer=keras.optimizers.SGD(config.get("lr", 0.3), momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2, name="top2")],
    )
    return model


def estimator(workers: int, **options: Any) -> Estimator:
    return Estimator.from_keras(model_creator=network, workers=workers, **options)


def weights(made: Estimator) -> Weights:
    return made.get_model().get_weights()


def distance(one: Weights, other: Weights) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def undisturbed() -> tuple[Weights, Any]:
    """What one worker makes of 36 steps, with a batch that is not full at the end of each epoch."""
    alone = estimator(1)
    with by_value(__name__):
        history = alone.fit(digits(), epochs=2, batch_size=100)
    return weights(alone), history


class Equal(Callback):
    """Looks whether all workers have the same weights after each epoch, and that metrics were not told twice."""

    def after_epoch(self, epoch: int, stats: Any) -> None:
        framework: Any = self.run.framework
        every = framework._member.all_gather([each.tobytes() for each in framework.model.get_weights()])
        assert all(each == every[0] for each in every), "weights differ between workers"


@pytest.mark.parametrize("workers", first(1, [2, 4]))
def test_weights_do_not_depend_on_the_number_of_workers(workers: int, undisturbed: tuple[Weights, Any]) -> None:
    several = estimator(workers)
    history = several.fit(digits(), epochs=2, batch_size=100, callbacks=[Equal()])
    assert distance(weights(several), undisturbed[0]) < 1e-5
    assert history.column("num_samples") == [1797] * 2
    assert history.column("batch_count") == [18] * 2
    for name in ("train_loss", "train_accuracy", "train_top2"):
        assert np.allclose(history.column(name), undisturbed[1].column(name), atol=1e-5)


class Parents(Callback):
    """Tells of whom a worker is a fork."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def before_step(self, step: int) -> None:
        (self._folder / f"{os.getpid()}").write_text(f"{os.getppid()}")


def test_workers_are_forks_of_one_that_has_imported_tensorflow(tmp_path: Path) -> None:
    for _ in range(2):
        estimator(2).fit(digits(40), batch_size=20, callbacks=[Parents(tmp_path)])
    parents = {path.read_text() for path in tmp_path.iterdir()}
    assert len(list(tmp_path.iterdir())) == 4
    assert len(parents) == 1
    assert parents != {f"{os.getpid()}"}


def test_what_workers_import_beforehand_is_what_they_would_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    assert modules_for({}) == modules_for({"KERAS_BACKEND": "tensorflow"}) == ("tensorflow",)
    assert modules_for({"KERAS_BACKEND": "torch"}) == (), "a program that chose it by itself"
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    assert "keras" in modules_for({"KERAS_BACKEND": "torch"})
    assert modules_for({"KERAS_BACKEND": "tensorflow"}) == ()
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert modules_for({"KERAS_BACKEND": "jax"}) == (), "it has threads from its beginning"


def test_it_learns_what_keras_learns_by_itself() -> None:
    x, y = digits(400)
    made = estimator(2)
    alone = made.get_model()
    begin = alone.get_weights()
    shared = Estimator.from_keras(alone, workers=2)
    shared.fit((x, y), epochs=2, batch_size=50, shuffle=False)
    same = network({})
    same.set_weights(begin)
    same.fit(x, y, epochs=2, batch_size=50, shuffle=False, verbose=0)
    assert shared.get_model() is alone
    assert distance(alone.get_weights(), same.get_weights()) < 1e-5
    found = shared.evaluate((x, y), batch_size=70)
    told = same.evaluate(x, y, verbose=0, return_dict=True)
    assert found["num_samples"] == 400
    assert found["val_loss"] == pytest.approx(told["loss"], abs=1e-4)
    assert found["accuracy"] == pytest.approx(told["accuracy"], abs=1e-6)
    assert np.allclose(shared.predict(x), same.predict(x, verbose=0), atol=1e-4)


class Scale(keras.layers.Layer):
    """One number times the input."""

    def build(self, shape: Any) -> None:
        self.w = self.add_weight(shape=(), initializer="ones")

    def call(self, x: Any) -> Any:
        return self.w * x


def just_output(targets: Any, found: Any) -> Any:
    return found + 0 * targets


def test_two_workers_of_sgd_to_the_digit() -> None:
    """One worker has x = 0 and the other x = 1, two rows each; y = 0, and the model is w * x from w = 1."""
    model = keras.Sequential([keras.Input((1,)), Scale()])
    model.compile(optimizer=keras.optimizers.SGD(0.5), loss="mse")
    made = Estimator.from_keras(keras_model=model, workers=2)
    x = np.array([0, 1, 0, 1], np.float32)[:, None]
    made.fit((x, np.zeros((4, 1), np.float32)), epochs=2, batch_size=4, shuffle=False)
    assert made.get_model() is model
    assert float(model.get_weights()[0]) == 0.25


def test_a_schedule_counts_steps_and_not_workers() -> None:
    model = keras.Sequential([keras.Input((1,)), Scale()])
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.1)
    model.compile(optimizer=keras.optimizers.SGD(rate), loss=just_output)
    made = Estimator.from_keras(keras_model=model, workers=2)
    history = made.fit((np.ones((16, 1), np.float32), np.zeros((16, 1), np.float32)), epochs=1, batch_size=8)
    assert history[0]["batch_count"] == 2
    assert float(made.get_model().get_weights()[0]) == pytest.approx(1 - 0.1 - 0.01)
    assert int(made.get_model().optimizer.iterations) == 2


class Seen(keras.callbacks.Callback):
    """Writes down what it is called with, on each worker."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._write(f"begin {epoch}")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        assert set(logs) == {"loss", "accuracy", "top2"}
        self._write(f"batch {batch}")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._write(f"end {epoch} {' '.join(sorted(logs))}")

    def _write(self, line: str) -> None:
        assert self.model.optimizer is not None
        with (self._path / str(os.getpid())).open("a") as file:
            file.write(f"{line}\n")


def test_a_killed_worker_changes_nothing(tmp_path: Path) -> None:
    """Also not random numbers, moving means, counted metrics, nor what callbacks of Keras do once an epoch."""
    (tmp_path / "seen").mkdir()
    (tmp_path / "calm").mkdir()
    found = []
    for name, kills in (("calm", []), ("killed", [KillAt(25, 1, tmp_path / "25-1")])):
        made = estimator(2, config={"norm": True, "dropout": True}, model_dir=str(tmp_path / name))
        slower = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
        seen = [Seen(tmp_path / "seen")] if kills else []
        history = made.fit(
            digits(),
            epochs=2,
            batch_size=100,
            callbacks=[slower, *seen, *kills],
            checkpoint_trigger=SeveralIteration(10),
            validation_data=digits(200),
        )
        found.append((weights(made), history, made.get_model().optimizer))
    (calm, before, _), (killed, after, optimizer) = found
    assert (tmp_path / "25-1").exists()
    assert distance(calm, killed) < 1e-6
    assert float(optimizer.learning_rate) == pytest.approx(0.3 / 4)
    assert int(optimizer.iterations) == 36
    for name in ("train_loss", "train_accuracy", "val_loss", "val_accuracy"):
        assert np.allclose(before.column(name), after.column(name), atol=1e-6), name
    lines = [path.read_text().splitlines() for path in (tmp_path / "seen").iterdir()]
    assert sum("begin 0" in each for each in lines) == 2
    ends = [line for each in lines for line in each if line.startswith("end 1")]
    assert ends == ["end 1 accuracy learning_rate loss top2 val_accuracy val_loss val_top2"] * 2
    assert [each[-2] for each in lines if each[-1].startswith("end 1")] == ["batch 17"] * 2


def test_a_training_goes_on_with_another_number_of_workers(tmp_path: Path, undisturbed: tuple[Weights, Any]) -> None:
    begun = estimator(2, model_dir=str(tmp_path))
    begun.fit(digits(), epochs=2, batch_size=100, max_steps=23, checkpoint_trigger=SeveralIteration(7))
    resumed = estimator(1, model_dir=str(tmp_path))
    history = resumed.fit(digits(), epochs=2, batch_size=100, resume=True)
    assert distance(weights(resumed), undisturbed[0]) < 1e-5
    assert history.column("epoch") == [1, 2]
    assert np.allclose(history.column("train_loss"), undisturbed[1].column("train_loss"), atol=1e-5)


def test_callbacks_of_keras_count_epochs_on_and_end_a_training(tmp_path: Path) -> None:
    made = estimator(2)
    first = [Seen(tmp_path), keras.callbacks.ModelCheckpoint(str(tmp_path / "kept-{epoch}.keras"))]
    made.fit(digits(200), epochs=2, batch_size=100, callbacks=first)
    again = made.fit(
        digits(200),
        epochs=9,
        batch_size=100,
        callbacks=[Seen(tmp_path), keras.callbacks.EarlyStopping("loss", min_delta=100.0, patience=1)],
        validation_data=digits(150),
        validation_freq=2,
        validation_steps=1,
    )
    assert again.column("epoch") == [3, 4]
    assert [("val_loss" in epoch) for epoch in again] == [False, True]
    assert again[1]["val_num_samples"] == 100
    logs = sorted(path.read_text().split() for path in tmp_path.iterdir() if path.suffix != ".keras")
    numbers = [[word for word in text if word.isdigit()] for text in logs]
    assert numbers == [list("00101011")] * 2 + [list("20123013")] * 2
    for epoch in (1, 2):
        plain = keras.saving.load_model(tmp_path / f"kept-{epoch}.keras")
        assert type(plain.optimizer) is keras.optimizers.SGD
        assert int(plain.optimizer.iterations) == 2 * epoch
    x, _ = digits(20)
    assert plain.predict(x, verbose=0).shape == (20, 10)
    with pytest.raises(PlanError, match="model_dir"):
        made.fit(digits(20), callbacks=[keras.callbacks.BackupAndRestore(str(tmp_path))])


def test_what_was_saved_opens_in_keras_and_is_what_is_loaded(tmp_path: Path) -> None:
    x, y = digits(200)
    made = estimator(1)
    made.fit((x, y), epochs=2, batch_size=100)
    path = made.save(tmp_path / "kept" / "model.keras")
    kept, first = weights(made), made.predict(x[:10])
    plain = keras.saving.load_model(path)
    assert distance(plain.get_weights(), kept) == 0
    assert int(plain.optimizer.iterations) == 4
    made.save_weights(tmp_path / "w.weights.h5")
    made.save_keras_model(tmp_path / "whole.keras")
    made.fit((x, y), epochs=1, batch_size=100)
    assert distance(weights(made), kept) > 0
    other = estimator(1)
    other.load(path)
    assert distance(weights(other), kept) == 0
    assert np.array_equal(other.predict(x[:10]), first)
    other.load_weights(tmp_path / "w.weights.h5")
    assert np.array_equal(Estimator.load_keras_model(tmp_path / "whole.keras").predict(x[:10]), first)
    kept_too = shoal.learn.ModelCheckpoint(tmp_path / "net-{epoch}")
    alone = shoal.learn.ModelCheckpoint(tmp_path / "alone" / "net", save_weights_only=True)
    goes_on = other.fit((x, y), epochs=1, batch_size=100, callbacks=[kept_too, alone])
    assert goes_on.column("epoch") == [3]
    assert distance(weights(made), weights(other)) < 1e-6
    newest = Estimator.latest_checkpoint(str(tmp_path))
    assert newest is not None
    for written in (newest, tmp_path / "alone" / "net.ckpt"):
        again = estimator(1)
        again.load(written)
        assert distance(weights(made), weights(again)) < 1e-6
        assert int(again.get_model().optimizer.iterations) == (6 if written == newest else 0)
    wider = Estimator.from_keras(model_creator=lambda config: keras.Sequential([keras.Input((3,)), Scale()]))
    with pytest.raises((StateError, ValueError)):
        wider.load(path)
    (tmp_path / "other.keras").write_bytes(b"something else")
    with pytest.raises(StateError, match="no file of Keras"):
        other.load(tmp_path / "other.keras")


def test_accumulated_batches_are_one_step_and_classes_have_weights() -> None:
    x, y = digits(400)
    plain, first, second = network({}), network({}), network({})
    bare = keras.models.clone_model(second)
    for other in (first, bare):
        other.set_weights(plain.get_weights())
    classes = {number: 1.0 + number / 10 for number in range(10)}
    whole = Estimator.from_keras(first, workers=1)
    parts = Estimator.from_keras(bare, workers=2, compile_args_creator=compiled)
    whole.fit((x, y), epochs=1, batch_size=100, shuffle=False, class_weight=classes)
    parts.fit((x, y), epochs=1, batch_size=50, accumulate=2, shuffle=False, class_weight=classes)
    plain.fit(x, y, epochs=1, batch_size=100, shuffle=False, class_weight=classes, verbose=0)
    assert distance(weights(whole), weights(parts)) < 1e-5
    assert distance(weights(whole), plain.get_weights()) < 1e-5


def compiled(config: dict[str, Any]) -> dict[str, Any]:
    rate = config.get("lr", 0.3)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return {"optimizer": keras.optimizers.SGD(rate, momentum=0.9), "loss": loss, "metrics": ["accuracy"]}


def two_by_two(config: dict[str, Any]) -> Any:
    user, item = keras.Input((1,), name="user"), keras.Input((1,), name="item")
    both = keras.layers.Concatenate()([user, item])
    score, kind = keras.layers.Dense(1, name="score"), keras.layers.Dense(2, name="kind", activation="softmax")
    outputs = [score(both), kind(both)]
    inputs = {"user": user, "item": item} if config.get("named") else [user, item]
    model = keras.Model(inputs, outputs)
    model.compile(optimizer="adam", loss=["mse", "sparse_categorical_crossentropy"], metrics=[["mae"], ["accuracy"]])
    return model


@pytest.mark.parametrize("named", first(1, [True, False]))
def test_several_inputs_and_outputs(named: bool) -> None:
    numbers = np.arange(48, dtype=np.float32)
    columns = {"item": numbers / 48, "user": 1 - numbers / 48, "a": numbers, "b": numbers.astype(int) % 2}
    frame = pd.DataFrame(columns)
    made = Estimator.from_keras(model_creator=two_by_two, config={"named": named}, workers=2, metrics=None)
    history = made.fit(frame, epochs=1, batch_size=8, feature_cols=["user", "item"], label_cols=["a", "b"])
    assert {"train_score_mae", "train_kind_accuracy"} <= set(history[0])
    found = made.predict(frame, feature_cols=["user", "item"], output_cols=["score", "kind"])
    model = made.get_model()
    given = [frame["user"].to_numpy()[:, None], frame["item"].to_numpy()[:, None]]
    score, kind = model.predict(dict(zip(["user", "item"], given, strict=True)) if named else given, verbose=0)
    assert np.allclose(np.stack(found["score"]), score, atol=1e-5)
    assert np.allclose(np.stack(found["kind"]), kind, atol=1e-5)
    assert len(made.predict((given[0], given[1]))) == 2


def test_metrics_of_shoal_stand_beside_those_of_keras() -> None:
    x, y = digits(300)
    made = estimator(2, metrics=[Accuracy()])
    history = made.fit((x, y), epochs=3, batch_size=50, validation_data=(x, y), callbacks=[EarlyStopping(patience=3)])
    assert np.allclose(history.column("val_Accuracy"), history.column("val_accuracy"))
    assert history.column("val_loss")[-1] < history.column("val_loss")[0]
    assert made.fit((x, y), batch_size=50, steps_per_epoch=8)[0]["num_samples"] == 400


def lazy(config: dict[str, Any]) -> Any:
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10)])
    model.compile(optimizer="sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def test_a_model_that_learns_its_shapes_from_the_data() -> None:
    x, y = digits(100)
    made = Estimator.from_keras(model_creator=lazy, workers=2)
    made.fit((x, y), epochs=1, batch_size=50, callbacks=[Equal()])
    model = made.get_model()
    assert model.built
    assert np.allclose(made.predict(x), model.predict(x, verbose=0), atol=1e-5)
    before = weights(made)
    made.set_constant_gradient_clipping(-1e-9, 1e-9)
    made.fit((x, y), epochs=1, batch_size=50)
    assert distance(weights(made), before) < 1e-6


def words(config: dict[str, Any]) -> Any:
    text = keras.Input((1,), dtype="string")
    numbers = keras.layers.StringLookup(vocabulary=["no", "yes"], output_mode="one_hot")(text)
    model = keras.Model(text, keras.layers.Dense(1, kernel_initializer="zeros")(numbers))
    model.compile(optimizer=keras.optimizers.SGD(0.5), loss="mse")
    return model


def test_texts_go_into_layers_that_take_them() -> None:
    frame = pd.DataFrame({"word": ["yes", "no"] * 20, "y": [1.0, 0.0] * 20})
    made = Estimator.from_keras(model_creator=words, workers=1)
    made.fit(frame, epochs=20, batch_size=10, feature_cols=["word"], label_cols=["y"])
    found = made.predict(frame, feature_cols=["word"])
    assert np.allclose(np.stack(found["prediction"])[:, 0], frame["y"], atol=0.1)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(PlanError, match="Horovod cannot be built"):
        estimator(1, backend="horovod")
    with pytest.raises(PlanError, match="no backend 'gloo'"):
        estimator(1, backend="gloo")
    with pytest.raises(PlanError, match="batch_size does not belong into the config"):
        estimator(1, config={"batch_size": 3})
    with pytest.raises(PlanError, match="no model of Keras"):
        Estimator.from_keras(keras_model=3)
    with pytest.raises(PlanError, match="not both"):
        Estimator.from_keras(network({}), model_creator=network)
    with pytest.raises(PlanError, match="no callback"):
        estimator(1).fit(digits(10), callbacks=[3])
    with pytest.raises(PlanError, match="compile"):
        Estimator.from_keras(keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten()]), workers=1).fit(digits(10))
