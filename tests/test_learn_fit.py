"""Training on several workers: the same steps on any number of them, and after any loss."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import shoal
from shoal.errors import PlanError, StateError, WorkerDiedError, WorkerHangError
from shoal.learn import Callback, EarlyStopping, History, SeveralIteration
from shoal.learn.metrics import Accuracy
from shoal.learn.pytorch import Estimator
from shoal.testing.faults import KillAt
from support.engine import by_value

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__):
        yield


@pytest.fixture(scope="module", autouse=True)
def _engine() -> Iterator[None]:
    with shoal.init("local", workers=4):
        yield


def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    found = load_digits()
    return (found.images / 16).astype(np.float32), found.target.astype(np.int64)


def network(config: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))


def sgd(model: torch.nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=config.get("lr", 0.3), momentum=0.9)


def estimator(workers: int, **options: Any) -> Estimator:
    return Estimator.from_torch(
        model=network, optimizer=sgd, loss=torch.nn.CrossEntropyLoss(), metrics=[Accuracy()], workers=workers, **options
    )


def weights(made: Estimator) -> dict[str, torch.Tensor]:
    return made.get_model().state_dict()


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.fixture(scope="module")
def undisturbed() -> tuple[dict[str, torch.Tensor], History]:
    """What one worker makes of 50 steps and a bit, with a batch that is not full at the end of each epoch."""
    alone = estimator(1)
    history = alone.fit(digits(), epochs=3, batch_size=100)
    return weights(alone), history


class Came(Callback):
    """Notes that a worker was there to the end, in a file of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def after_run(self) -> None:
        (self._folder / f"{self.run.rank}").write_text("done")


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_weights_do_not_depend_on_the_number_of_workers(
    workers: int, undisturbed: tuple[dict[str, torch.Tensor], History], tmp_path: Path
) -> None:
    several = estimator(workers)
    history = several.fit(digits(), epochs=3, batch_size=100, callbacks=[Came(tmp_path)])
    assert distance(weights(several), undisturbed[0]) < 1e-5
    assert history.column("num_samples") == [1797] * 3
    assert history.column("batch_count") == [18] * 3
    assert np.allclose(history.column("train_loss"), undisturbed[1].column("train_loss"), atol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == [str(rank) for rank in range(workers)]


def test_two_workers_of_sgd_to_the_digit() -> None:
    """One worker has x = 0 and the other x = 1, two rows each; y = 0, and the model is w * x from w = 1."""

    class Scale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.w * x

    model = Scale()
    made = Estimator.from_torch(
        model=model, optimizer=torch.optim.SGD(model.parameters(), 0.5), loss=torch.nn.MSELoss(), workers=2
    )
    x = np.array([0, 1, 0, 1], np.float32)[:, None]
    made.fit((x, np.zeros((4, 1), np.float32)), epochs=2, batch_size=4, shuffle=False)
    assert made.get_model() is model
    assert float(model.w.detach()) == 0.25


def test_a_limit_on_steps_ends_an_epoch_in_the_middle() -> None:
    x, y = digits()
    history = estimator(2).fit((x[:100], y[:100]), epochs=10, batch_size=4, max_steps=40)
    assert history.column("num_samples") == [100, 60]


@pytest.mark.parametrize(
    ("step", "rank", "trigger"), [(25, 1, SeveralIteration(10)), (40, 0, "everyepoch"), (7, 1, 50)]
)
def test_a_killed_worker_changes_nothing(
    step: int, rank: int, trigger: Any, tmp_path: Path, undisturbed: tuple[dict[str, torch.Tensor], History]
) -> None:
    (tmp_path / "marks").mkdir()
    killed = estimator(2, model_dir=str(tmp_path / "model"))
    history = killed.fit(
        digits(),
        epochs=3,
        batch_size=100,
        callbacks=[KillAt(step, rank, tmp_path / "marks" / f"{step}-{rank}")],
        checkpoint_trigger=trigger,
    )
    assert (tmp_path / "marks" / f"{step}-{rank}").exists()
    assert distance(weights(killed), undisturbed[0]) < 1e-5
    assert np.allclose(history.column("train_loss"), undisturbed[1].column("train_loss"), atol=1e-5)
    assert history.column("num_samples") == [1797] * 3


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_twenty_kills_change_nothing(tmp_path: Path, undisturbed: tuple[dict[str, torch.Tensor], History]) -> None:
    chance = random.Random(4)
    (tmp_path / "marks").mkdir()
    steps = sorted(chance.sample(range(1, 54), 20))
    kills = [KillAt(step, chance.randrange(2), tmp_path / "marks" / str(step)) for step in steps]
    killed = estimator(2, model_dir=str(tmp_path / "model"), restarts=20)
    killed.fit(digits(), epochs=3, batch_size=100, callbacks=kills, checkpoint_trigger=SeveralIteration(5))
    assert len(list((tmp_path / "marks").iterdir())) == 20
    assert distance(weights(killed), undisturbed[0]) < 1e-5


def test_one_that_is_killed_again_and_again_is_given_up(tmp_path: Path) -> None:
    class Die(Callback):
        def before_step(self, step: int) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerDiedError, match="rank"):
        estimator(2, restarts=1).fit(digits(), callbacks=[Die()])


@pytest.mark.parametrize("workers", [1, 3])
def test_a_training_goes_on_with_another_number_of_workers(
    workers: int, tmp_path: Path, undisturbed: tuple[dict[str, torch.Tensor], History]
) -> None:
    begun = estimator(2, model_dir=str(tmp_path))
    begun.fit(digits(), epochs=3, batch_size=100, max_steps=29, checkpoint_trigger=SeveralIteration(7))
    resumed = estimator(workers, model_dir=str(tmp_path))
    history = resumed.fit(digits(), epochs=3, batch_size=100, resume=True)
    assert distance(weights(resumed), undisturbed[0]) < 1e-5
    assert history.column("epoch") == [1, 2, 3]
    assert np.allclose(history.column("train_loss"), undisturbed[1].column("train_loss"), atol=1e-5)


def test_half_a_checkpoint_is_none(tmp_path: Path) -> None:
    begun = estimator(1, model_dir=str(tmp_path))
    begun.fit(digits(), epochs=1, batch_size=100, checkpoint_trigger=SeveralIteration(6))
    last = begun.latest_checkpoint()
    assert last is not None
    assert last.endswith("step-000000000018")
    (Path(last) / "manifest.json").unlink()
    before = begun.latest_checkpoint()
    assert before is not None
    assert before.endswith("step-000000000012")
    damaged = Path(before) / "model.pt"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(StateError, match=r"model.pt .* is not what was written"):
        estimator(1).fit(digits(), epochs=1, batch_size=100, resume=before)
    with pytest.raises(StateError, match="no checkpoint"):
        estimator(1).fit(digits(), resume=str(tmp_path / "nowhere"))
    with pytest.raises(PlanError, match="model_dir"):
        estimator(1).fit(digits(), resume=True)


def test_an_error_of_the_user_comes_once_with_its_rank() -> None:
    class Odd(Callback):
        def before_step(self, step: int) -> None:
            if step == 3 and self.run.rank == 1:
                raise ZeroDivisionError("odd step")

    with pytest.raises(ZeroDivisionError, match="odd step") as caught:
        estimator(2).fit(digits(), callbacks=[Odd()])
    assert any("rank 1 of 2" in note for note in caught.value.__notes__)


def test_who_hangs_is_named_with_where() -> None:
    class Hang(Callback):
        def before_step(self, step: int) -> None:
            if step == 5 and self.run.rank == 1:
                time.sleep(3600)

    with pytest.raises(WorkerHangError, match=r"rank 0 after step .*; rank 1 after step 4 in .*before_step") as caught:
        estimator(2).fit(digits(), callbacks=[Hang()], hang_seconds=8)
    assert "8 seconds" in str(caught.value)


def test_training_ends_when_nothing_gets_better() -> None:
    x, y = digits()
    made = estimator(2, config={"lr": 0.0})
    history = made.fit(
        (x[:200], y[:200]),
        epochs=20,
        validation_data=(x[200:300], y[200:300]),
        callbacks=[EarlyStopping("val_loss", patience=2)],
    )
    assert history.column("epoch") == [1, 2, 3]
    with pytest.raises(PlanError, match=r"no 'val_loss' to watch"):
        made.fit((x[:200], y[:200]), callbacks=[EarlyStopping()])


def test_epochs_are_counted_on() -> None:
    x, y = digits()
    made = estimator(1)
    assert made.fit((x[:200], y[:200]), epochs=2).column("epoch") == [1, 2]
    assert made.fit((x[:200], y[:200]), epochs=1).column("epoch") == [3]


@pytest.mark.parametrize("workers", [1, 2])
def test_accumulated_batches_are_one_step(workers: int) -> None:
    x, y = digits()
    whole, parts = estimator(1), estimator(workers)
    whole.fit((x[:400], y[:400]), epochs=2, batch_size=100, shuffle=False)
    parts.fit((x[:400], y[:400]), epochs=2, batch_size=50, accumulate=2, shuffle=False)
    assert distance(weights(whole), weights(parts)) < 1e-5


def test_gradients_are_clipped_and_bf16_learns() -> None:
    x, y = digits()
    tight = estimator(2, clip_norm=1e-6)
    before = weights(tight)
    tight.fit((x[:400], y[:400]), epochs=1, batch_size=100)
    assert distance(weights(tight), before) < 1e-4
    history = estimator(2, amp=True).fit((x, y), epochs=3, batch_size=100)
    assert history.column("train_loss")[-1] < history.column("train_loss")[0] / 2


def test_what_was_saved_is_what_is_loaded(tmp_path: Path) -> None:
    x, y = digits()
    made = estimator(2)
    made.fit((x[:400], y[:400]), epochs=2, batch_size=100)
    path = made.save(tmp_path / "kept" / "model.pt")
    kept, first = weights(made), made.predict(x[:10])
    made.fit((x[:400], y[:400]), epochs=1, batch_size=100)
    assert distance(weights(made), kept) > 0
    other = estimator(1)
    other.load(path)
    assert distance(weights(other), kept) == 0
    assert np.array_equal(other.predict(x[:10]), first)
    assert other.fit((x[:400], y[:400]), epochs=1).column("epoch") == [3]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(PlanError, match="no backend 'gloo'"):
        estimator(1, backend="gloo")
    with pytest.raises(PlanError, match="batch_size should be greater than 0"):
        estimator(1).fit(digits(), batch_size=0)
    with pytest.raises(PlanError, match="config"):
        estimator(1, config={"batch_size": 3})
    with pytest.raises(PlanError, match="no callback"):
        estimator(1).fit(digits(), callbacks=[print])
    with pytest.raises(PlanError, match="needs an optimizer and a loss"):
        Estimator.from_torch(model=network, workers=1).fit(digits())


def test_curves_are_written_and_read(tmp_path: Path) -> None:
    x, y = digits()
    made = estimator(2)
    assert made.get_train_summary("Loss") is None
    made.set_tensorboard(str(tmp_path), "app")
    made.fit((x[:400], y[:400]), epochs=2, batch_size=100, validation_data=(x[400:500], y[400:500]))
    losses, rates, speed = (made.get_train_summary(tag) for tag in ("Loss", "LearningRate", "Throughput"))
    assert losses is not None
    assert [step for step, _ in losses] == list(range(1, 9))
    assert losses[-1][1] < losses[0][1]
    assert rates == [(step, pytest.approx(0.3)) for step in range(1, 9)]
    assert speed is not None
    assert all(value > 0 for _, value in speed)
    accuracy = made.get_validation_summary("Accuracy")
    assert accuracy is not None
    assert [step for step, _ in accuracy] == [4, 8]
    assert len(list((tmp_path / "app" / "train").iterdir())) == 1


def dropping(config: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(1)
    layers = torch.nn.Linear(64, 32), torch.nn.Dropout(0.5), torch.nn.Linear(32, 10)
    return torch.nn.Sequential(torch.nn.Flatten(), *layers)


def dropping_estimator(**options: Any) -> Estimator:
    return Estimator.from_torch(
        model=dropping, optimizer=sgd, loss=torch.nn.CrossEntropyLoss(), workers=2, seed=3, **options
    )


def test_random_numbers_go_on_after_a_kill_and_in_the_next_fit(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    x, y = digits()
    whole, killed, twice = dropping_estimator(), dropping_estimator(model_dir=str(tmp_path)), dropping_estimator()
    whole.fit((x[:400], y[:400]), epochs=2, batch_size=50)
    kill = KillAt(11, 1, tmp_path / "marks" / "11-1")
    killed.fit((x[:400], y[:400]), epochs=2, batch_size=50, callbacks=[kill], checkpoint_trigger=SeveralIteration(3))
    assert (tmp_path / "marks" / "11-1").exists()
    assert distance(weights(killed), weights(whole)) < 1e-6
    for _ in range(2):
        twice.fit((x[:400], y[:400]), epochs=1, batch_size=50)
    assert distance(weights(twice), weights(whole)) < 1e-6


def test_a_step_of_several_batches_that_is_not_full_is_taken() -> None:
    x, y = digits()
    whole, parts = estimator(1, config={"lr": 0.1}), estimator(2, config={"lr": 0.1})
    whole.fit((x[:80], y[:80]), epochs=1, batch_size=80, shuffle=False)
    parts.fit((x[:80], y[:80]), epochs=1, batch_size=20, accumulate=4, shuffle=False)
    assert distance(weights(whole), weights(parts)) < 1e-5
    before = weights(parts)
    parts.fit((x[:20], y[:20]), epochs=1, batch_size=20, accumulate=4, shuffle=False)
    assert distance(weights(parts), before) > 1e-6


@pytest.mark.slow
def test_a_compiled_model_learns_the_same() -> None:
    x, y = digits()
    plain, compiled = estimator(2), estimator(2, compile=True)
    for each in (plain, compiled):
        each.fit((x[:400], y[:400]), epochs=2, batch_size=100)
    assert distance(weights(plain), weights(compiled)) < 1e-5


def test_a_long_validation_is_no_hang() -> None:
    class Slow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(64, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not self.training:
                time.sleep(1.0)
            return self.layer(x.flatten(1))  # type: ignore[no-any-return]

    x, y = digits()
    made = Estimator.from_torch(model=lambda config: Slow(), optimizer=sgd, loss=torch.nn.CrossEntropyLoss(), workers=2)
    history = made.fit((x[:20], y[:20]), validation_data=(x[:200], y[:200]), batch_size=10, hang_seconds=8)
    assert history[0]["val_num_samples"] == 200


def test_who_has_no_row_to_evaluate_holds_nobody_up() -> None:
    def normed(config: dict[str, Any]) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10), torch.nn.BatchNorm1d(10))

    x, y = digits()
    made = Estimator.from_torch(model=normed, optimizer=sgd, loss=torch.nn.CrossEntropyLoss(), workers=2)
    history = made.fit((x[:40], y[:40]), epochs=2, batch_size=8, validation_data=(x[:1], y[:1]))
    assert history.column("val_num_samples") == [1, 1]
    assert history[-1]["val_loss"] == pytest.approx(made.evaluate((x[:1], y[:1]))["val_loss"], abs=1e-5)


def test_as_many_checkpoints_stay_as_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x, y = digits()
    made = estimator(2, model_dir="kept", keep_checkpoints=2)
    made.fit((x[:400], y[:400]), batch_size=50, checkpoint_trigger=SeveralIteration(2))
    (run,) = (folder for folder in (tmp_path / "kept").iterdir() if folder.name != "curves")
    assert sorted(folder.name for folder in run.iterdir()) == ["step-000000000006", "step-000000000008"]
    assert made.latest_checkpoint() == str(run / "step-000000000008")
    assert made.get_train_summary("Loss") is not None
    with pytest.raises(PlanError, match="keep_checkpoints=0"):
        estimator(2, keep_checkpoints=0)
    with pytest.raises(PlanError, match="give a local folder"):
        made.set_tensorboard("s3://bucket/logs", "app")
    assert estimator(2, model_dir="s3://bucket/models").get_train_summary() is None
