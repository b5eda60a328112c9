"""Training with Horovod, in the environment that has it: the same weights, whoever is killed."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import shoal
from shoal.abc import Framework, Member
from shoal.environments import Environment, find
from shoal.errors import GuestError, PlanError, StateError, WorkerDiedError, WorkerEnvironmentError
from shoal.learn import Callback, LearningRateScheduler, SeveralIteration
from shoal.learn._abroad import AbroadFramework
from shoal.learn._resident import Resident
from shoal.learn.metrics import Accuracy
from shoal.learn.pytorch import Estimator, MainCallback
from shoal.learn.pytorch._torch_crossing import as_arrays, as_tensors
from support.clusters import running
from support.engine import by_value, wait_until
from support.guests import is_running
from support.lengths import first

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__):
        yield


@pytest.fixture(scope="module", autouse=True)
def _engine() -> Iterator[None]:
    shoal.init("local", workers=2)
    yield
    shoal.shutdown()


def digits(count: int = 1797) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    found = load_digits()
    return (found.images[:count] / 16).astype(np.float32), found.target[:count].astype(np.int64)


def network(config: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))


def sgd(model: torch.nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)


def estimator(workers: int = 2, backend: str | None = "horovod", **options: Any) -> Estimator:
    made = {"model": network, "optimizer": sgd, "loss": torch.nn.CrossEntropyLoss(), "metrics": [Accuracy()], **options}
    return Estimator.from_torch(workers=workers, backend=backend, **made)


def weights(made: Estimator) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in made.get_model().state_dict().items()}


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.fixture(scope="module")
def alone() -> dict[str, torch.Tensor]:
    """What one worker without Horovod makes of 54 steps, of which the last of each epoch has 97 rows and not 100."""
    with by_value(__name__):
        made = estimator(1, "torch_distributed")
        made.fit(digits(), epochs=3, batch_size=100)
        return weights(made)


class Guests(Callback):
    """Writes down which processes have the model."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def before_run(self) -> None:
        (self._folder / f"{self.run.attempt}-{self.run.rank}").write_text(str(self.run.framework.guest.pid))


def test_weights_are_those_of_one_worker_without_it(alone: dict[str, torch.Tensor], tmp_path: Path) -> None:
    x, y = digits()
    made = estimator()
    history = made.fit(
        (x, y), epochs=3, batch_size=100, validation_data=(x[:301], y[:301]), callbacks=[Guests(tmp_path)]
    )
    assert distance(weights(made), alone) < 1e-5
    assert history.column("num_samples") == [1797] * 3
    assert history.column("val_num_samples") == [301] * 3
    assert history.column("val_Accuracy")[-1] > 0.95
    found = made.evaluate((x[:301], y[:301]))
    assert found["num_samples"] == 301
    assert found["val_loss"] == pytest.approx(history[-1]["val_loss"])
    assert found["Accuracy"] == history[-1]["val_Accuracy"]
    pids = [int(path.read_text()) for path in sorted(tmp_path.iterdir())]
    assert len(set(pids)) == 2
    assert wait_until(lambda: not any(map(is_running, pids)))


def forgetful(config: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(1)
    layers = torch.nn.Linear(64, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 10)
    return torch.nn.Sequential(torch.nn.Flatten(), *layers)


def adam(model: torch.nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def steps(optimizer: torch.optim.Optimizer, config: dict[str, Any]) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.9)


@pytest.mark.long
def test_what_a_model_counts_and_drops_is_as_without_it() -> None:
    options = {"model": forgetful, "optimizer": adam, "scheduler_creator": steps, "clip_norm": 0.5}
    made = [estimator(2, backend, **options) for backend in ("horovod", "torch_distributed")]
    for each in made:
        for _ in range(2):
            each.fit(digits(290), epochs=1, batch_size=50, accumulate=2)
    assert distance(weights(made[0]), weights(made[1])) < 1e-5


class Scale(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(1))
        self.unused = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w * x


def test_two_workers_of_sgd_to_the_digit() -> None:
    """One worker has x = 0 and the other x = 1, two rows each; y = 0, and the model is w * x from w = 1."""
    model = Scale()
    optimizer = torch.optim.SGD([{"params": [model.w]}, {"params": [model.unused], "weight_decay": 0.5}], 0.5)
    made = estimator(model=model, optimizer=optimizer, loss=torch.nn.MSELoss(), metrics=None)
    x = np.array([0, 1, 0, 1], np.float32)[:, None]
    made.fit((x, np.zeros((4, 1), np.float32)), epochs=2, batch_size=4, shuffle=False)
    assert made.get_model() is model
    assert float(model.w.detach()) == 0.25
    assert float(model.unused.detach()) == 1.0


class Kill(Callback):
    """Kills a worker or its guest after a step, the first time that one comes there."""

    def __init__(self, who: str, rank: int, mark: Path) -> None:
        self._who, self._rank, self._mark = who, rank, mark

    def after_step(self, step: int, loss: float) -> None:
        if step == 25 and self.run.rank == self._rank and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid() if self._who == "worker" else self.run.framework.guest.pid, signal.SIGKILL)
            time.sleep(4)  # nobody calls the guest meanwhile


class Suicide(torch.nn.Sequential):
    """Kills its process in the middle of a step, the first time that one comes there."""

    mark: Path
    steps = 0

    def forward(self, x: torch.Tensor) -> Any:
        self.steps += self.training
        if self.steps == 25 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


def suicide(config: dict[str, Any]) -> torch.nn.Module:
    made = Suicide(*network(config))
    made.mark = config["mark"]
    return made


@pytest.mark.parametrize(("who", "rank"), first(2, [("worker", 1), ("guest", 0), ("guest", 1), ("itself", 0)]))
def test_a_killed_worker_or_guest_changes_nothing(
    who: str, rank: int, alone: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    mark = tmp_path / "killed"
    model = {"model": suicide, "config": {"mark": mark}} if who == "itself" else {}
    made = estimator(model_dir=str(tmp_path / "model"), restarts=1, **model)
    kill = [] if who == "itself" else [Kill(who, rank, mark)]
    history = made.fit(digits(), epochs=3, batch_size=100, callbacks=kill, checkpoint_trigger=SeveralIteration(10))
    assert mark.exists()
    assert distance(weights(made), alone) < 1e-5
    assert history.column("num_samples") == [1797] * 3


@pytest.mark.parametrize("engine", first(1, ["ray", "dask", "spark"]))
def test_other_engines_begin_again_when_a_guest_is_killed(
    engine: str, alone: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    mark = tmp_path / "killed"
    made = estimator(model_dir=str(tmp_path / "model"), restarts=1)
    shoal.shutdown()
    try:
        with running(engine, workers=2):
            kill = Kill("guest", 1, mark)
            made.fit(digits(), epochs=3, batch_size=100, callbacks=[kill], checkpoint_trigger=SeveralIteration(10))
    finally:
        shoal.init("local", workers=2)
    assert mark.exists()
    assert distance(weights(made), alone) < 1e-5


def test_guests_that_always_die_are_given_up() -> None:
    class Die(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> Any:
            os._exit(3)

    with pytest.raises(WorkerDiedError, match=r"rank \d died; the gang began 2 times"):
        estimator(model=lambda config: Die(64, 10), restarts=1).fit(digits(100))


def test_a_training_goes_on_with_another_backend(alone: dict[str, torch.Tensor], tmp_path: Path) -> None:
    options = {"model_dir": str(tmp_path)}
    begun = estimator(2, "torch_distributed", **options)
    begun.fit(digits(), epochs=3, batch_size=100, max_steps=23, checkpoint_trigger=SeveralIteration(7))
    between = estimator(**options)
    between.fit(digits(), epochs=3, batch_size=100, max_steps=45, checkpoint_trigger=SeveralIteration(7), resume=True)
    assert between.latest_checkpoint() is not None
    ended = estimator(1, None, **options)
    history = ended.fit(digits(), epochs=3, batch_size=100, resume=True)
    assert distance(weights(ended), alone) < 1e-5
    assert history.column("epoch") == [1, 2, 3]


def error_rate(predictions: torch.Tensor, targets: torch.Tensor) -> float:
    return float((torch.argmax(predictions, dim=1) != targets).float().mean())


def test_what_was_saved_is_what_is_loaded(tmp_path: Path) -> None:
    x, y = (torch.from_numpy(each) for each in digits(400))
    made = estimator(metrics=[Accuracy(), error_rate])
    made.fit(DataLoader(TensorDataset(x, y), batch_size=100), epochs=2)
    found = made.evaluate((x.numpy(), y.numpy()))
    assert found["Accuracy"] + found["error_rate"] == pytest.approx(1)
    path = made.save(str(tmp_path / "model.pt"))
    first = made.predict(x[:10].numpy())
    assert first.shape == (10, 10)
    assert first.dtype == np.float32
    for other in (estimator(), estimator(1, None)):
        other.load(path)
        assert distance(weights(other), weights(made)) == 0
        assert np.array_equal(other.predict(x[:10].numpy()), first)
        assert other.fit((x.numpy(), y.numpy()), epochs=1).column("epoch") == [3]
    shards = shoal.data.XShards.from_shards([{"x": x[:5].numpy()}, {"x": x[5:10].numpy()}])
    predicted = made.predict(shards).collect()
    assert np.allclose(np.concatenate([each["prediction"] for each in predicted]), first, atol=1e-6)


def test_the_rate_is_set_over_there(tmp_path: Path) -> None:
    class Rates(Callback):
        def after_step(self, step: int, loss: float) -> None:
            (tmp_path / f"{self.run.rank}-{step}").write_text(str(self.run.framework.learning_rate))

    made = estimator()
    before = weights(made)
    rates = LearningRateScheduler(lambda epoch, rate: rate * 0 if epoch == 0 else 0.125)
    made.fit(digits(100), epochs=1, batch_size=50, callbacks=[rates, Rates()])
    assert {path.read_text() for path in tmp_path.iterdir()} == {"0.0"}
    assert distance(weights(made), before) == 0


class Unmoved(MainCallback):
    """Takes no account of any row."""

    def on_iter_backward(self, runner: Any) -> None:
        runner.weight = 0.0
        super().on_iter_backward(runner)


def test_who_does_the_steps_does_them_over_there() -> None:
    made = estimator()
    before = weights(made)
    made.fit(digits(100), epochs=1, batch_size=50, callbacks=[Unmoved()])
    assert distance(weights(made), before) == 0


def normed(config: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10), torch.nn.BatchNorm1d(10))


def gentle(model: torch.nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)  # small batches make much of small differences


@pytest.mark.parametrize(("batch", "options"), first(1, [(3, {}), (20, {"sync_batch_norm": True})]))
def test_batch_norm_over_all_workers_is_that_of_one(batch: int, options: dict[str, Any]) -> None:
    alone = estimator(1, None, model=normed, optimizer=gentle)
    several = estimator(2, model=normed, optimizer=gentle, **options)
    for each in (alone, several):
        each.fit(digits(60), epochs=2, batch_size=batch)
    assert distance(weights(several), weights(alone)) < 1e-4


class Odd(torch.nn.Module):
    """Fails in one of the workers, at its second step."""

    def __init__(self, folder: Path, kind: type[Exception]) -> None:
        super().__init__()
        self.inner, self._folder, self._kind, self._steps = network({}), folder, kind, 0

    def forward(self, x: torch.Tensor) -> Any:
        import horovod.torch as hvd

        self._steps += 1
        if hvd.rank() == 1 and self._steps == 2:
            (self._folder / str(time.monotonic_ns())).touch()
            raise self._kind("odd step")
        return self.inner(x)


class OwnError(Exception):
    """One that only the user knows."""


@pytest.mark.parametrize(("kind", "comes"), [(ZeroDivisionError, ZeroDivisionError), (OwnError, GuestError)])
def test_an_error_of_the_model_comes_once_with_its_rank(
    kind: type[Exception], comes: type[Exception], tmp_path: Path
) -> None:
    made = estimator(model=lambda config: Odd(tmp_path, kind))
    with pytest.raises(comes, match="odd step") as caught:
        made.fit(digits(200), batch_size=20)
    notes = "\n".join(caught.value.__notes__)
    assert "rank 1 of 2" in notes
    assert "in forward" in notes
    assert len(list(tmp_path.iterdir())) == 1
    if isinstance(caught.value, GuestError):
        assert caught.value.kind is not None
        assert caught.value.kind.endswith("OwnError")


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match="needs an optimizer and a loss"):
        estimator(optimizer=None).fit(digits(100))
    monkeypatch.setenv("SHOAL_ENVIRONMENTS", str(tmp_path))
    with pytest.raises(
        WorkerEnvironmentError, match=r"^there is no environment 'horovod' yet: `shoal env create horovod` builds it$"
    ):
        estimator()


class Doubling(Framework):
    """Nothing but numpy; what it learns is how many rows it saw."""

    learning_rate = 0.5

    def __init__(self) -> None:
        self.files: Mapping[str, bytes] = {}
        self.seen = 0

    def build(self) -> None:
        self.seen = int(self.files.get("seen", b"0"))

    def join(self, member: Member) -> None:
        self.told = member.all_gather(None)

    def train(self, features: Sequence[Any], labels: Sequence[Any], weight: float, last: bool) -> float:
        self.seen += len(features[0])
        return float(np.mean(features[0] - labels[0])) * weight

    def evaluate(self, features: Sequence[Any], labels: Sequence[Any]) -> tuple[Any, float | None]:
        return features[0] * 2, None

    def predict(self, features: Sequence[Any]) -> Any:
        if len(features) > 1:
            raise UnicodeDecodeError("ascii", b"x", 0, 1, "more than one")
        return {"double": features[0] * 2, "numpy": np.__version__, "python": sys.prefix}

    def total(self, numbers: Sequence[float]) -> list[float]:
        return [number * 3 for number in numbers]

    def end_epoch(self, stats: Mapping[str, Any]) -> Mapping[str, Any]:
        self.learning_rate = 0.25
        return {"rows": self.seen + stats["more"]}

    def dump(self, parts: str = "all") -> dict[str, bytes]:
        return {} if parts == "own" else {"seen": str(self.seen).encode()}

    def load(self, files: Mapping[str, bytes]) -> None:
        self.seen = int(files.get("seen", self.seen))

    def leave(self, done: bool) -> None:
        raise KeyError("left")


def doubling() -> AbroadFramework:
    return AbroadFramework(partial(Resident, Doubling()), find("mxnet"))


def test_a_framework_of_numpy_alone_lives_in_an_old_environment() -> None:
    made = doubling()
    assert made.format == "numpy"
    made.files = {"seen": b"5"}
    sent = pickle.loads(pickle.dumps(made))
    sent.build()
    try:
        rows = np.arange(4, dtype=np.float32)
        assert sent.train([rows], [rows - 1], 0.5, True) == 0.5
        found = sent.predict([rows])
        assert found["double"].tolist() == [0, 2, 4, 6]
        assert found["numpy"] == "1.23.5"
        assert found["python"] != sys.prefix
        assert sent.total([1, 2.5]) == [3, 7.5]
        assert sent.learning_rate == 0.5
        assert sent.end_epoch({"more": 1}) == {"rows": 10}
        assert sent.learning_rate == 0.25
        assert sent.dump() == {"seen": b"9"}
        own = sent.dump("own")
        sent.load({"seen": b"7", **own})
        assert sent.dump() == {"seen": b"7"}
        with pytest.raises(GuestError, match="more than one"):
            sent.predict([rows, rows])
        sent.learning_rate = 1.0
        assert sent.learning_rate == 1.0
        with pytest.raises(IndexError, match="list index out of range"):
            sent.train([rows], [], 1.0, True)
        guest = sent.guest
        assert guest is not None
        assert copy(sent).guest is None
        assert pickle.loads(pickle.dumps(sent)).guest is None
        with pytest.raises(KeyError, match="left"):
            sent.leave(True)
        assert not is_running(guest.pid)
    finally:
        sent.leave(False)
    with pytest.raises(StateError, match="build or join comes first"):
        sent.predict([rows])


def test_code_goes_to_the_same_python_only() -> None:
    older = Environment("older", sys.executable, "3.8.20")
    with pytest.raises(PlanError, match=r"the environment 'older' has 3\.8; run this program with 3\.8, or build"):
        AbroadFramework(partial(Resident, Doubling()), older)


def test_a_guest_that_is_killed_outside_of_a_gang_is_an_error() -> None:
    made = doubling()
    made.build()
    assert made.guest is not None
    os.kill(made.guest.pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match="SIGKILL"):
        made.total([1])
    made.build()
    assert made.total([1]) == [3]
    made.leave(False)


def test_tensors_cross_as_arrays_without_copies() -> None:
    tensor = torch.arange(6.0).reshape(2, 3).requires_grad_()
    values = [tensor, (torch.ones(2, dtype=torch.bfloat16), "text"), {"a": np.arange(2), "b": torch.tensor(3)}]
    there = as_arrays(values)
    first, (second, text), named = as_tensors(there)
    assert first.data_ptr() == tensor.data_ptr()
    assert torch.equal(first, tensor.detach())
    assert second.dtype is torch.bfloat16
    assert second.tolist() == [1, 1]
    assert text == "text"
    assert isinstance(named["a"], np.ndarray)
    assert named["b"].item() == 3
