"""What is done besides, while a model is trained: callbacks, files with the model, and how it goes."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import shoal
from shoal.errors import MissingExtraError, PlanError, StateError, WorkerDiedError
from shoal.learn import (
    Callback,
    EarlyStopping,
    History,
    LearningRateScheduler,
    ModelCheckpoint,
    SeveralIteration,
    _saving,
)
from shoal.learn._progress import Meter, Pace
from shoal.learn.metrics import Accuracy
from shoal.learn.pytorch import Estimator, MainCallback
from shoal.testing.faults import KillAt
from support.learn import shipped

pytestmark = pytest.mark.timeout(600)
TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with shipped(__name__):
        yield


@pytest.fixture(scope="module", autouse=True)
def _engine() -> Iterator[None]:
    with shoal.init("local", workers=2):
        yield


def clusters(count: int = 120) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Make rows of two kinds that overlap."""
    chance = np.random.default_rng(7)
    y = np.arange(count) % 2
    return (chance.normal(size=(count, 4)) + 0.7 * y[:, None]).astype(np.float32), y.astype(np.int64)


def network(config: dict[str, Any]) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def sgd(model: nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=config.get("lr", 0.2), momentum=0.9)


def estimator(workers: int = 2, **options: Any) -> Estimator:
    chosen = {"model": network, "loss": nn.CrossEntropyLoss(), **options}
    return Estimator.from_torch(optimizer=sgd, metrics=[Accuracy()], workers=workers, **chosen)


def weights(made: Estimator) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in made.get_model().state_dict().items()}


def distance(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


class Notes(Callback):
    """Writes down what is called, one file for each worker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def note(self, *words: Any) -> None:
        with (self._folder / str(self.run.rank)).open("a") as file:
            file.write(json.dumps(words) + "\n")

    def before_epoch(self, epoch: int) -> None:
        self.note("before epoch", epoch, self.run.epoch)

    def after_epoch(self, epoch: int, stats: Mapping[str, Any]) -> None:
        self.note("after epoch", epoch, self.run.epoch, sorted(stats))

    def after_step(self, step: int, loss: float) -> None:
        self.note("after step", step, self.run.step, self.run.rows)

    def before_validation(self) -> None:
        self.note("before validation")

    def after_validation(self, stats: Mapping[str, Any]) -> None:
        self.note("after validation", stats["num_samples"], sorted(stats))


def notes(folder: Path, rank: int) -> list[list[Any]]:
    return [json.loads(line) for line in (folder / str(rank)).read_text().splitlines()]


def test_callbacks_are_called_on_every_worker_with_what_all_have_done(tmp_path: Path) -> None:
    x, y = clusters(100)
    made = estimator()
    made.fit((x, y), epochs=1, batch_size=60, validation_data=(x[:30], y[:30]), callbacks=[Notes(tmp_path)])
    told = ["batch_count", "epoch", "last_train_loss", "num_samples", "train_loss"]
    told += ["val_Accuracy", "val_loss", "val_num_samples"]
    expected = [
        ["before epoch", 1, 0],
        ["after step", 1, 1, 60],
        ["after step", 2, 2, 100],
        ["before validation"],
        ["after validation", 30, ["Accuracy", "num_samples", "val_loss"]],
        ["after epoch", 1, 1, told],
    ]
    assert notes(tmp_path, 0) == notes(tmp_path, 1) == expected
    made.evaluate((x[:30], y[:30]), callbacks=[Notes(tmp_path)])
    assert notes(tmp_path, 1) == [*expected, *expected[3:5]]


def test_one_worker_that_stops_ends_the_epoch_of_all() -> None:
    class StopInTheMiddle(Callback):
        def after_step(self, step: int, loss: float) -> None:
            if self.run.rank == 1 and step == 2:
                self.run.stop("enough")

    history = estimator().fit(clusters(), epochs=5, batch_size=30, callbacks=[StopInTheMiddle()])
    assert history.column("batch_count") == [4]


# Files with the model


@pytest.mark.parametrize("where", ["here", "memory"])
def test_a_file_is_written_after_each_epoch_and_the_newest_is_found(where: str, tmp_path: Path) -> None:
    """``memory://`` is seen by the process that writes alone, so it is the one worker there that looks for it."""
    x, y = clusters()
    if where == "memory":

        class Look(Callback):
            def after_run(self) -> None:
                (tmp_path / "newest").write_text(str(Estimator.latest_checkpoint("memory://kept")))

        callbacks = [ModelCheckpoint("memory://kept/test-{epoch}"), Look()]
        estimator(1).fit((x, y), epochs=11, batch_size=60, callbacks=callbacks)
        assert (tmp_path / "newest").read_text() == "memory://kept/test-epoch=11.ckpt"
        return
    made = estimator()
    folder = tmp_path / "kept"
    made.fit((x, y), epochs=2, batch_size=30, callbacks=[ModelCheckpoint(folder / "test-{epoch}")])
    assert sorted(path.name for path in folder.iterdir()) == ["test-epoch=1.ckpt", "test-epoch=2.ckpt"]
    newest = Estimator.latest_checkpoint(folder)
    assert newest == str(folder / "test-epoch=2.ckpt") == made.latest_checkpoint(str(folder))
    other = estimator(1)
    other.load(newest)
    assert other.evaluate((x, y)) == pytest.approx(made.evaluate((x, y)), abs=1e-6)
    assert distance(weights(other), weights(made)) == 0
    other.load(folder / "test-epoch=1.ckpt")
    assert distance(weights(other), weights(made)) > 0
    assert other.fit((x, y), epochs=1, batch_size=30).column("epoch") == [2]
    assert distance(weights(other), weights(made)) < 1e-5, "momentum is in the file, too"
    assert set(torch.load(newest, weights_only=True)) == {"model", "optimizer", "epoch", "step"}


def test_files_of_steps_and_only_the_last_ones_stay(tmp_path: Path) -> None:
    made = estimator()
    each_four = ModelCheckpoint(tmp_path / "s" / "net-{epoch}-{iter}", by_epoch=False, interval=4, keep=2)
    every_second = ModelCheckpoint(tmp_path / "e" / "net-{epoch}", interval=2)
    over_and_over = ModelCheckpoint(tmp_path / "o" / "last")
    made.fit(clusters(), epochs=5, batch_size=30, callbacks=[each_four, every_second, over_and_over])
    names = {folder: sorted(path.name for path in (tmp_path / folder).iterdir()) for folder in "seo"}
    assert names == {
        "s": ["net-epoch=3-iter=16.ckpt", "net-epoch=4-iter=20.ckpt"],
        "e": ["net-epoch=2.ckpt", "net-epoch=4.ckpt"],
        "o": ["last.ckpt"],
    }
    assert torch.load(tmp_path / "o" / "last.ckpt", weights_only=True)["epoch"] == 5


def test_files_that_go_are_remembered_after_a_kill(tmp_path: Path) -> None:
    kept = ModelCheckpoint(tmp_path / "kept" / "net-{iter}", by_epoch=False, interval=1, keep=2)
    made = estimator(model_dir=str(tmp_path / "model"))
    callbacks = [kept, KillAt(5, 1, tmp_path / "mark")]
    made.fit(clusters(), epochs=2, batch_size=30, callbacks=callbacks, checkpoint_trigger=SeveralIteration(1))
    assert (tmp_path / "mark").exists()
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["net-iter=7.ckpt", "net-iter=8.ckpt"]


def test_weights_alone_are_a_file_of_torch(tmp_path: Path) -> None:
    x, y = clusters()
    made = estimator()
    made.fit((x, y), epochs=1, callbacks=[ModelCheckpoint(tmp_path / "net-{epoch}", save_weights_only=True)])
    path = tmp_path / "net-epoch=1.ckpt"
    model = network({})
    model.load_state_dict(torch.load(path, weights_only=True))
    assert distance(model.state_dict(), weights(made)) == 0
    other = estimator(1)
    other.load(path)
    assert np.array_equal(other.predict(x[:9]), made.predict(x[:9]))
    assert other.fit((x, y), epochs=1).column("epoch") == [1]


def test_safetensors_where_they_are_missing_say_what_brings_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MissingExtraError, match=r"writing \.safetensors needs safetensors.*shoal\[safetensors\]"):
        ModelCheckpoint("net-{epoch}.safetensors", save_weights_only=True)


def test_weights_may_be_safetensors(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    made = estimator(2)
    made.fit(clusters(), epochs=1, callbacks=[ModelCheckpoint(tmp_path / "net.safetensors", save_weights_only=True)])
    there, here = load_file(tmp_path / "net.safetensors"), made.get_model().state_dict()
    assert there.keys() == here.keys()
    assert all(torch.equal(there[name], here[name]) for name in here)
    other = estimator(1)
    other.load(tmp_path / "net.safetensors")
    assert all(torch.equal(value, here[name]) for name, value in other.get_model().state_dict().items())
    with pytest.raises(PlanError, match="weights alone"):
        made.save(tmp_path / "whole.safetensors")


def test_a_file_is_complete_or_absent(tmp_path: Path) -> None:
    """Who dies while it is written leaves the one of before."""

    class DieWhileWriting(Callback):
        def after_epoch(self, epoch: int, stats: Mapping[str, Any]) -> None:
            if epoch == 2:
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # kills who writes more than it may into a file
                resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    callbacks = [DieWhileWriting(), ModelCheckpoint(tmp_path / "last")]
    with pytest.raises(WorkerDiedError):
        estimator(1, restarts=0).fit(clusters(), epochs=3, callbacks=callbacks)
    found = [path.name for path in tmp_path.iterdir() if path.suffix == ".ckpt"]
    assert found == ["last.ckpt"]
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["epoch"] == 1


def test_a_framework_without_files_of_its_own_gets_a_zip(tmp_path: Path) -> None:
    anything: Any = object()
    url = "memory://zipped/net.ckpt"
    assert _saving.write(anything, {"a": b"1", "b": b"2"}, {"epoch": 3, "step": 4}, url) == url
    assert _saving.read(anything, url) == ({"a": b"1", "b": b"2"}, {"epoch": 3, "step": 4})
    made = estimator(1)
    torch.save(network({}).state_dict(), tmp_path / "state")
    _saving.write(anything, {"model.pt": (tmp_path / "state").read_bytes()}, {"epoch": 3, "step": 4}, url)
    made.load(url)
    assert distance(weights(made), network({}).state_dict()) == 0
    with pytest.raises(StateError, match="no file that save wrote"):
        _saving.read(anything, str(tmp_path / "state"))


def test_what_is_no_file_of_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.ckpt").write_text("nothing of the kind")
    torch.save(3, tmp_path / "number.ckpt")
    made = estimator(1)
    for name, words in [("text.ckpt", "without running code"), ("number.ckpt", "int"), ("none.ckpt", "no checkpoint")]:
        with pytest.raises(StateError, match=words):
            made.load(tmp_path / name)
    assert Estimator.latest_checkpoint(tmp_path / "nowhere") is None
    assert made.latest_checkpoint() is None


def test_a_checkpoint_of_a_training_can_be_loaded(tmp_path: Path) -> None:
    x, y = clusters()
    made = estimator(model_dir=str(tmp_path))
    made.fit((x, y), epochs=2, batch_size=30)
    newest = Estimator.latest_checkpoint(tmp_path)
    assert newest is not None
    assert newest == made.latest_checkpoint()
    other = estimator(1)
    other.load(newest)
    assert distance(weights(other), weights(made)) == 0
    assert other.fit((x, y), epochs=1).column("epoch") == [3]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"interval": 0}, "interval=0"),
        ({"by_epoch": False}, "after how many steps"),
        ({"keep": 0}, "keep=0"),
        ({"filepath": "net-{loss}"}, "braces"),
    ],
)
def test_what_makes_no_sense_for_files_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        ModelCheckpoint(**{"filepath": "net-{epoch}", **options})


# Learning rates


def test_a_function_sets_the_rate_of_each_epoch_and_sees_the_last_one(tmp_path: Path) -> None:
    def halved(epoch: int, rate: float) -> float:
        with (tmp_path / str(os.getpid())).open("a") as file:
            file.write(f"{epoch}:{rate} ")
        return rate / 2

    made = estimator()
    made.set_tensorboard(str(tmp_path / "curves"), "net")
    for _ in range(2):
        made.fit(clusters(), epochs=2, batch_size=60, callbacks=[LearningRateScheduler(halved)])
    rates = made.get_train_summary("LearningRate")
    assert rates is not None
    assert [rate for _, rate in rates] == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.0125, 0.0125])
    seen = sorted(path.read_text() for path in tmp_path.iterdir() if path.is_file())
    assert seen == ["0:0.2 1:0.1 "] * 2 + ["2:0.05 3:0.025 "] * 2


def test_a_rate_can_be_set_before_each_step() -> None:
    """Plain gradient steps on w * x with x = 1, y = 0: each step takes 2 * rate of w away."""

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(1))

        def forward(self, x: Any) -> Any:
            return self.w * x

    model = Scale()
    made = Estimator.from_torch(
        model=model, optimizer=torch.optim.SGD(model.parameters(), 99.0), loss=nn.MSELoss(), workers=2
    )
    rates = [0.0, 0.25, 0.125]
    schedule = LearningRateScheduler(lambda step, rate: rates[step], by_step=True)
    made.fit((np.ones((12, 1), np.float32), np.zeros((12, 1), np.float32)), batch_size=4, callbacks=[schedule])
    made.get_model()
    assert float(model.w.detach()) == 1.0 * 0.5 * 0.75


def test_a_kill_in_the_middle_of_an_epoch_sets_the_rate_once(tmp_path: Path) -> None:
    def halved(epoch: int, rate: float) -> float:
        return rate / 2

    straight, killed = estimator(), estimator(model_dir=str(tmp_path / "model"))
    straight.fit(clusters(), epochs=3, batch_size=30, callbacks=[LearningRateScheduler(halved)])
    killed.fit(
        clusters(),
        epochs=3,
        batch_size=30,
        callbacks=[LearningRateScheduler(halved), KillAt(7, 0, tmp_path / "mark")],
        checkpoint_trigger=SeveralIteration(2),
    )
    assert (tmp_path / "mark").exists()
    assert distance(weights(straight), weights(killed)) < 1e-6


def test_without_an_optimizer_there_is_no_rate_to_set() -> None:
    made = Estimator.from_torch(model=network, loss=nn.CrossEntropyLoss(), workers=1)
    with pytest.raises(PlanError, match="no learning rate to set"):
        made.fit(clusters(), callbacks=[LearningRateScheduler(lambda epoch, rate: rate)])


# What callbacks remember


class WorseFrom(Callback):
    """Makes the weights worse from an epoch on, by the same numbers each time."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def after_epoch(self, epoch: int, stats: Mapping[str, Any]) -> None:
        if epoch >= self._epoch:
            with torch.no_grad():
                for parameter in self.run.framework.model.parameters():  # type: ignore[attr-defined]
                    parameter += 1.0 + epoch


def stopping(made: Estimator, *more: Callback, restore: bool = False, **options: Any) -> History:
    x, y = clusters()
    watch = EarlyStopping(patience=4, restore_best=restore)
    return made.fit(
        (x, y), epochs=20, batch_size=30, validation_data=(x, y), callbacks=[WorseFrom(3), watch, *more], **options
    )


def test_a_killed_run_stops_at_the_same_epoch_with_the_best_weights(tmp_path: Path) -> None:
    straight, killed = estimator(), estimator(model_dir=str(tmp_path / "model"))
    expected = stopping(straight, restore=True)
    assert len(expected) < 20
    best = int(np.argmin(expected.column("val_loss"))) + 1
    assert len(expected) == best + 4
    history = stopping(
        killed, KillAt(4 * best + 9, 1, tmp_path / "mark"), restore=True, checkpoint_trigger=SeveralIteration(3)
    )
    assert (tmp_path / "mark").exists()
    assert history.column("epoch") == expected.column("epoch")
    assert np.allclose(history.column("val_loss"), expected.column("val_loss"), atol=1e-5)
    assert distance(weights(killed), weights(straight)) < 1e-5
    x, y = clusters()
    assert killed.evaluate((x, y))["val_loss"] == pytest.approx(min(expected.column("val_loss")), abs=1e-5)
    assert stopping(estimator()).column("epoch") == expected.column("epoch")


def test_epochs_without_a_validation_do_not_count() -> None:
    x, y = clusters()
    watch = EarlyStopping(patience=2)
    options = {"epochs": 20, "validation_data": (x, y), "callbacks": [watch], "validation_freq": 2}
    assert len(estimator(config={"lr": 0.0}).fit((x, y), **options)) == 6
    with pytest.raises(PlanError, match="no 'val_los' to watch"):
        estimator().fit((x, y), validation_data=(x, y), callbacks=[EarlyStopping("val_los")])


def test_a_run_that_had_stopped_is_not_begun_again_by_a_kill(tmp_path: Path) -> None:
    class StopAfter(Callback):
        def after_epoch(self, epoch: int, stats: Mapping[str, Any]) -> None:
            if epoch == 2:
                self.run.stop("enough")

    class DieAtTheEnd(Callback):
        def after_run(self) -> None:
            if self.run.rank == 0 and not (tmp_path / "mark").exists():
                (tmp_path / "mark").touch()
                os.kill(os.getpid(), signal.SIGKILL)

    made = estimator(model_dir=str(tmp_path / "model"))
    history = made.fit(clusters(), epochs=5, batch_size=30, callbacks=[StopAfter(), DieAtTheEnd()])
    assert (tmp_path / "mark").exists()
    assert history.column("epoch") == [1, 2]
    assert made.fit(clusters(), epochs=5, batch_size=30, resume=True).column("epoch") == [1, 2, 3, 4, 5]


def test_what_a_callback_remembers_has_to_be_plain(tmp_path: Path) -> None:
    class Odd(Callback):
        def state_dict(self) -> dict[str, Any]:
            return {"what": object()}

    with pytest.raises(PlanError, match="state_dict of Odd"):
        estimator(1, model_dir=str(tmp_path)).fit(clusters(), callbacks=[Odd()])


def test_callbacks_of_one_class_keep_their_own_memories(tmp_path: Path) -> None:
    class Remembers(Callback):
        def __init__(self, name: str) -> None:
            self._name, self._seen = name, b""

        def after_epoch(self, epoch: int, stats: Mapping[str, Any]) -> None:
            self._seen += f"{self._name}{epoch} ".encode()

        def after_run(self) -> None:
            (tmp_path / f"{self._name}-{self.run.rank}").write_bytes(self._seen)

        def state_dict(self) -> dict[str, Any]:
            return {"seen": self._seen}

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            self._seen = state["seen"]

    made = estimator(model_dir=str(tmp_path / "model"))
    callbacks = [Remembers("a"), KillAt(10, 1, tmp_path / "mark"), Remembers("b")]
    made.fit(clusters(), epochs=3, batch_size=30, callbacks=callbacks)
    assert (tmp_path / "mark").exists()
    found = {path.name: path.read_text() for path in tmp_path.glob("?-?")}
    assert found == {f"{name}-{rank}": f"{name}1 {name}2 {name}3 " for name in "ab" for rank in range(2)}


# Who does the steps


@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.01, "scheduler_creator": "halving"}])
def test_the_default_main_callback_changes_nothing(options: dict[str, Any]) -> None:
    def halving(optimizer: Any, config: dict[str, Any]) -> Any:
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    chosen = {**options, **({"scheduler_creator": halving} if options else {})}
    plain, main = estimator(**chosen), estimator(**chosen)
    plain.fit(clusters(100), epochs=2, batch_size=30, accumulate=2)
    main.fit(clusters(100), epochs=2, batch_size=30, accumulate=2, callbacks=[MainCallback()])
    assert distance(weights(plain), weights(main)) == 0


class Named(nn.Module):
    """Takes and gives dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network({})

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"logits": self.inner(batch["x"]), "rows": len(batch["x"])}


class OfNames(MainCallback):
    """Knows how to call such a model."""

    def on_iter_forward(self, runner: Any) -> None:
        x, y = runner.batch
        runner.output = runner.model({"x": x})["logits"]
        runner.loss = runner.criterion(runner.output, y)

    def on_pred_forward(self, runner: Any) -> None:
        (x,) = runner.batch
        runner.output = runner.model({"x": x})["logits"]


def named(config: dict[str, Any]) -> nn.Module:
    return Named()


def test_a_main_callback_deals_with_dicts() -> None:
    x, y = clusters(100)
    plain, other = estimator(), estimator(model=named)
    expected = plain.fit((x, y), epochs=2, batch_size=30, validation_data=(x, y))
    history = other.fit((x, y), epochs=2, batch_size=30, validation_data=(x, y), callbacks=[OfNames()])
    assert np.allclose(history.column("val_loss"), expected.column("val_loss"), atol=1e-6)
    assert history.column("val_Accuracy") == expected.column("val_Accuracy")
    main = [OfNames()]
    assert other.evaluate((x, y), callbacks=main) == pytest.approx(plain.evaluate((x, y)), abs=1e-6)
    assert np.allclose(other.predict(x, callbacks=main), plain.predict(x), atol=1e-6)
    stream = other.predict(shoal.from_arrays({"x": x}), callbacks=main)
    assert np.allclose(np.stack([row["prediction"] for row in stream]), plain.predict(x), atol=1e-6)


def test_a_model_may_have_its_own_loss_and_labels_may_be_dicts() -> None:
    class Own(MainCallback):
        def on_iter_forward(self, runner: Any) -> None:
            x, labels = runner.batch
            runner.output = runner.model(x)
            runner.loss = nn.functional.cross_entropy(runner.output, labels["kind"])

    x, y = clusters(100)
    rows = [(row, {"kind": kind}) for row, kind in zip(torch.tensor(x), torch.tensor(y), strict=True)]
    loader: Any = torch.utils.data.DataLoader(rows, batch_size=30)  # type: ignore[arg-type]
    own = Estimator.from_torch(model=network, optimizer=sgd, workers=2)
    own.fit(loader, epochs=2, callbacks=[Own()])
    plain = estimator()
    plain.fit((x, y), epochs=2, batch_size=30, shuffle=False)
    assert distance(weights(own), weights(plain)) < 1e-6
    assert own.evaluate(loader, callbacks=[Own()])["val_loss"] == pytest.approx(plain.evaluate((x, y))["val_loss"])


def test_a_main_callback_may_take_steps_and_set_rates_in_its_own_way() -> None:
    class Mine(MainCallback):
        def on_iter_backward(self, runner: Any) -> None:
            runner.optimizer.zero_grad()
            runner.loss.backward()
            runner.optimizer.step()

        def on_lr_adjust(self, runner: Any) -> None:
            for group in runner.optimizer.param_groups:
                group["lr"] *= 0.5

    def halving(optimizer: Any, config: dict[str, Any]) -> Any:
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    mine, plain = estimator(), estimator(scheduler_creator=halving)
    mine.fit(clusters(), epochs=2, batch_size=30, callbacks=[Mine()])
    plain.fit(clusters(), epochs=2, batch_size=30)
    assert distance(weights(mine), weights(plain)) < 1e-6


def test_a_main_callback_is_one_of_the_callbacks_and_comes_first(tmp_path: Path) -> None:
    class Main(MainCallback):
        def before_epoch(self, epoch: int) -> None:
            with (tmp_path / str(self.run.rank)).open("a") as file:
                file.write('["main"]\n')

    estimator().fit(clusters(), callbacks=[Notes(tmp_path), Main()])
    assert [words[0] for words in notes(tmp_path, 1)][:2] == ["main", "before epoch"]


def test_two_main_callbacks_are_refused() -> None:
    made = estimator(1)
    with pytest.raises(PlanError, match="one MainCallback, and these are 2: MainCallback and OfNames"):
        made.fit(clusters(), callbacks=[MainCallback(), OfNames()])
    with pytest.raises(PlanError, match="one MainCallback"):
        made.evaluate(clusters(), callbacks=[MainCallback(), OfNames()])
    with pytest.raises(PlanError, match="EarlyStopping is called while a model learns"):
        made.predict(clusters()[0], callbacks=[EarlyStopping()])
    with pytest.raises(PlanError, match="no callback"):
        made.evaluate(clusters(), callbacks=[print])


def test_who_sets_no_loss_is_told_so() -> None:
    class Forgetful(MainCallback):
        def on_iter_forward(self, runner: Any) -> None:
            runner.output = runner.model(*runner.features)

    with pytest.raises(PlanError, match="Forgetful has set no loss"):
        estimator(1).fit(clusters(), callbacks=[Forgetful()])


# Numbers of each worker


def test_the_numbers_of_each_worker(tmp_path: Path) -> None:
    x, y = clusters(101)
    options: dict[str, Any] = {"epochs": 2, "batch_size": 50, "validation_data": (x[:11], y[:11])}
    whole = estimator().fit((x, y), **options)
    made = estimator(model_dir=str(tmp_path / "model"))
    options |= {"callbacks": [KillAt(5, 0, tmp_path / "mark")], "checkpoint_trigger": SeveralIteration(2)}
    nested = made.fit((x, y), **options, reduce_results=False)
    assert (tmp_path / "mark").exists()
    assert [len(epoch) for epoch in nested] == [2, 2]
    assert nested.column("num_samples") == [[51, 50]] * 2
    assert nested.column("batch_count") == [[3, 3]] * 2
    assert nested.column("val_num_samples") == [[11, 11]] * 2
    for one, (first, second) in zip(whole, nested, strict=True):
        mean = (first["train_loss"] * 51 + second["train_loss"] * 50) / 101
        assert mean == pytest.approx(one["train_loss"], abs=1e-5)
        assert first["val_loss"] == second["val_loss"] == pytest.approx(one["val_loss"], abs=1e-5)
    assert "workers" not in whole[0]
    assert repr(nested).count("\n") == 3


# How it goes


def test_speed_is_that_of_the_last_seconds() -> None:
    meter = Meter(window=5.0)
    words = ""
    for second in range(20):
        rows = 10 * second if second < 10 else 100 + 1000 * (second - 10)
        words = meter.described(float(second), Pace(1, 1, second, 40, second, 40 - second, rows, 1.0))
    assert words == "epoch 1/1  step 19/40  loss 1.0000  1,000 samples/s  0:00:21 left"
    again = meter.described(20.0, Pace(1, 1, 12, 40, 12, 28, 0, 1.0))
    assert again == "epoch 1/1  step 12/40  loss 1.0000", "workers began again"
    unknown = meter.described(21.0, Pace(2, 2, 1, None, 13, None, 50, 1.0))
    assert unknown == "epoch 2/2  step 1  loss 1.0000  50 samples/s"


def test_a_log_has_a_line_for_each_epoch(capfd: pytest.CaptureFixture[str]) -> None:
    x, y = clusters()
    made = estimator()
    made.fit((x, y), epochs=2, batch_size=30)
    made.fit((x, y), epochs=2, batch_size=30, progress=False)
    assert capfd.readouterr() == ("", "")
    made.fit((x, y), epochs=2, batch_size=30, validation_data=(x, y), progress=True)
    out, lines = capfd.readouterr()
    assert out == ""
    pattern = r"epoch (\d)  num_samples 120  batch_count 4  train_loss [\d.]+  .* val_loss [\d.]+ .*"
    assert [match and match[1] for match in (re.match(pattern, line) for line in lines.splitlines())] == ["5", "6"]


SLOW = """
    import time
    import numpy as np
    import torch
    import shoal
    from shoal.learn import Callback
    from shoal.learn.pytorch import Estimator

    class Slow(Callback):
        def after_step(self, step, loss):
            time.sleep({pause})

    def optimizer(model, config):
        return torch.optim.SGD(model.parameters(), lr=0.1)

    if __name__ == "__main__":
        x = np.ones((40, 1), np.float32)
        with shoal.init("local", workers=2):
            made = Estimator.from_torch(
                model=lambda config: torch.nn.Linear(1, 1), optimizer=optimizer, loss=torch.nn.MSELoss(), workers=2
            )
            made.fit((x, x), epochs=2, batch_size=4, callbacks=[Slow()], progress={progress})
"""


def started(folder: Path, pause: float, progress: bool | None, stderr: int) -> subprocess.Popen[bytes]:
    script = folder / "slow.py"
    script.write_text(textwrap.dedent(SLOW).format(pause=pause, progress=progress))
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    return subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=stderr, env=environment)


def test_a_terminal_has_a_bar(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = started(tmp_path, 0.15, None, theirs)
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 1 << 16):
            seen += part
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    out, _ = process.communicate(timeout=300)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert process.returncode == 0, text
    assert out == b""
    moments = re.findall(r"epoch (\d)/2  step (\d+)/10  loss [\d.]+  [\d,]+ samples/s  0:00:\d\d left", text)
    assert {epoch for epoch, _ in moments} == {"1", "2"}
    assert len({step for _, step in moments}) > 3
    assert [match[1] for match in re.finditer(r"epoch (\d)  num_samples 40 ", text)] == ["1", "2"]


@pytest.mark.slow
def test_a_long_epoch_has_a_line_now_and_then(tmp_path: Path) -> None:
    process = started(tmp_path, 1.2, True, subprocess.PIPE)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err.decode()
    assert out == b""
    lines = err.decode().splitlines()
    between = [line for line in lines if "  step " in line]
    assert [line.split("  ")[0] for line in lines if "num_samples" in line] == ["epoch 1", "epoch 2"]
    assert len(lines) == len(between) + 2
    assert len(between) <= 12, "not a line for every step"
    # Where the first step is slow, its line comes before anybody knows how fast the others are.
    known = next(line for line in between if "left" in line)
    assert re.fullmatch(r"epoch [12]/2  step \d+/10  loss [\d.]+  \d samples/s  0:00:\d\d left", known)
