"""Training with MXNet, in the environment that has it: the same weights on any number of workers, whoever is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import f1_score

import shoal
from shoal.data import XShards
from shoal.environments import Guest, find
from shoal.errors import PlanError, StateError, WorkerDiedError, WorkerEnvironmentError
from shoal.learn import Callback, SeveralIteration
from shoal.learn.metrics import Accuracy
from shoal.learn.mxnet import Estimator, MXNetModel, create_config, gluon, mx
from support.engine import by_value, wait_until
from support.guests import is_running
from support.lengths import first

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Parameters = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__):
        yield


@pytest.fixture(scope="module", autouse=True)
def _engine() -> Iterator[None]:
    shoal.init("local", workers=2)
    yield
    shoal.shutdown()


def digits(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    found = load_digits()
    return (found.data[:count] / 16).astype(np.float32), found.target[:count].astype(np.int64)


def dense(config: dict[str, Any]) -> Any:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(16, activation="tanh", in_units=64), gluon.nn.Dense(10, in_units=16))
    net.initialize(mx.init.Xavier())
    return net


def cross_entropy(config: dict[str, Any]) -> Any:
    return gluon.loss.SoftmaxCrossEntropyLoss()


def accuracy(config: dict[str, Any]) -> Any:
    return mx.metric.Accuracy()


MOMENTUM = {"learning_rate": 0.2, "momentum": 0.9}


def estimator(workers: int = 2, **options: Any) -> Estimator:
    config = create_config("sgd", options.pop("optimizer_params", MOMENTUM), extra_config=options.pop("extra", None))
    given = {"model_creator": dense, "loss_creator": cross_entropy, **options}
    return Estimator.from_mxnet(config=config, num_workers=workers, **given)


def distance(one: Parameters, other: Parameters) -> float:
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


class Written(Callback):
    """Writes down the parameters that each worker has at the end, and the processes it had."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def before_run(self) -> None:
        framework = self.run.framework
        pids = [framework.guest.pid, *(pid for some in framework.nodes.pids.values() for pid in some)]
        (self._folder / f"{self.run.rank}-{self.run.attempt}.pids").write_text(" ".join(map(str, pids)))

    def after_run(self) -> None:
        (self._folder / f"{self.run.rank}.params").write_bytes(self.run.framework.dump("model")["model.params"])


def pids_in(folder: Path) -> set[int]:
    return {int(pid) for path in folder.glob("*.pids") for pid in path.read_text().split()}


def twin(parameters: Parameters) -> torch.nn.Sequential:
    """Make the same model of PyTorch, whose parameters have the same names but for the layer between."""
    made = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.Tanh(), torch.nn.Linear(16, 10))
    names = {"0.weight": "0.weight", "0.bias": "0.bias", "2.weight": "1.weight", "2.bias": "1.bias"}
    made.load_state_dict({ours: torch.tensor(parameters[theirs]) for ours, theirs in names.items()})
    return made


def trained_by_torch(model: torch.nn.Module, x: Any, y: Any, epochs: int, batch: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for _ in range(epochs):
        for at in range(0, len(x), batch):
            loss = torch.nn.functional.cross_entropy(
                model(torch.tensor(x[at : at + batch])), torch.tensor(y[at : at + batch])
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def test_two_workers_have_the_same_bits_and_the_weights_of_one_and_of_torch(tmp_path: Path) -> None:
    x, y = digits(297)
    made = estimator(eval_metrics_creator=accuracy, validation_metrics_creator=accuracy, metrics=[Accuracy()])
    begun = made.get_model().parameters
    history = made.fit((x, y), 2, 100, shuffle=False, validation_data=(x[:91], y[:91]), callbacks=[Written(tmp_path)])
    several = made.get_model().parameters
    assert (tmp_path / "0.params").read_bytes() == (tmp_path / "1.params").read_bytes()
    assert len(pids_in(tmp_path)) == 4  # two guests, a scheduler and a server
    assert wait_until(lambda: not any(map(is_running, pids_in(tmp_path))))

    alone = estimator(1)
    alone.fit((x, y), 2, 100, shuffle=False)
    assert distance(several, alone.get_model().parameters) < 1e-5
    other = twin(begun)
    trained_by_torch(other, x, y, epochs=2, batch=100)
    with torch.no_grad():
        assert np.abs(other(torch.tensor(x)).numpy() - made.predict(x)).max() < 1e-4
        assert np.abs(twin(several)(torch.tensor(x)).numpy() - made.predict(x)).max() < 1e-5

    assert history.column("num_samples") == [297, 297]
    assert history.column("val_num_samples") == [91, 91]
    assert history[1]["train_loss"] < history[0]["train_loss"]
    assert history[-1]["val_accuracy"] == pytest.approx(history[-1]["val_Accuracy"])
    right = np.mean(made.predict(x[:91]).argmax(1) == y[:91])
    assert history[-1]["val_accuracy"] == pytest.approx(right)
    assert 0 < history[0]["train_accuracy"] < history[1]["train_accuracy"] <= 1
    found = made.evaluate((x[:91], y[:91]))
    assert found["val_loss"] == pytest.approx(history[-1]["val_loss"], rel=1e-6)
    assert found["accuracy"] == found["Accuracy"] == pytest.approx(right)


def scale(config: dict[str, Any]) -> Any:
    net = gluon.nn.Dense(1, use_bias=False, in_units=1)
    net.initialize(mx.init.One())
    return net


def squares(config: dict[str, Any]) -> Callable[[Any, Any], Any]:
    return lambda found, wanted: (found - wanted) ** 2


def test_two_workers_of_sgd_to_the_digit() -> None:
    """One worker has x = 0 and the other x = 1, two rows each; y = 0, and the model is w * x from w = 1."""
    options = {"optimizer_params": {"learning_rate": 0.5}, "model_creator": scale, "loss_creator": squares}
    made = estimator(**options)
    x = np.array([0, 1, 0, 1], np.float32)[:, None]
    made.fit((x, np.zeros((4, 1), np.float32)), epochs=2, batch_size=4, shuffle=False)
    assert made.get_model().parameters["weight"].item() == 0.25


def lenet(config: dict[str, Any]) -> Any:
    class LeNet(gluon.nn.HybridBlock):  # a class over there, where gluon is the library
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.convolution = gluon.nn.Conv2D(4, 3, activation="relu")
                self.pool = gluon.nn.MaxPool2D(2, 2)
                self.last = gluon.nn.Dense(10)

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            return self.last(self.pool(self.convolution(x)))

    return LeNet()


def train_iterator(config: dict[str, Any], kv: Any) -> Any:
    images, labels = config["data"]
    return mx.io.NDArrayIter(images, labels, batch_size=config["batch_size"], shuffle=True)


def test_the_first_steps_of_the_guide() -> None:
    """A model without shapes, a data creator, two workers and two servers; batches are those of all workers."""
    x, y = digits(75)
    config = create_config(log_interval=2, optimizer="adam", optimizer_params={"learning_rate": 0.02})
    assert config == {"optimizer": "adam", "optimizer_params": {"learning_rate": 0.02}, "log_interval": 2}
    est = Estimator.from_mxnet(
        config={**config, "data": (x.reshape(-1, 1, 8, 8), y)},
        model_creator=lenet,
        loss_creator=cross_entropy,
        num_workers=2,
        num_servers=2,
    )
    history = est.fit(train_iterator, epochs=2, reduce_results=False)
    assert [len(epoch) for epoch in history] == [2, 2]
    for epoch in history:
        assert sum(worker["num_samples"] for worker in epoch) == 75
        assert [worker["batch_count"] for worker in epoch] == [3, 3]  # of 32, 32 and 11 rows
    assert history[1][0]["train_loss"] != history[1][1]["train_loss"]
    assert est.predict(x.reshape(-1, 1, 8, 8)).shape == (75, 10)
    assert est.predict(np.zeros((0, 1, 8, 8), np.float32)).shape == (0, 10)
    model = est.get_model()
    assert model.parameters["convolution.weight"].shape == (4, 1, 3, 3)


def noisy(config: dict[str, Any]) -> Any:
    """Make a model that draws random numbers and counts along: what a resumed training has to get right, too."""
    net = gluon.nn.HybridSequential()
    layers = gluon.nn.Dense(16), gluon.nn.BatchNorm(), gluon.nn.Dropout(0.3), gluon.nn.Dense(10)
    net.add(*layers)
    return net


def shuffled(config: dict[str, Any], kv: Any) -> Any:
    x, y = config["data"]
    part = len(x) // kv.num_workers  # one who shares out by himself still gets everything
    mine = slice(kv.rank * part, (kv.rank + 1) * part)
    return mx.io.NDArrayIter(x[mine], y[mine], batch_size=config["batch_size"], shuffle=True)


def undisturbing(folder: Path | None = None, workers: int = 2, **options: Any) -> Estimator:
    adam = create_config("adam", {"learning_rate": 0.02}, extra_config={"data": digits(130)}, seed=3)
    where = {} if folder is None else {"model_dir": str(folder)}
    given = {"model_creator": noisy, "loss_creator": cross_entropy, "eval_metrics_creator": accuracy}
    return Estimator.from_mxnet(config=adam, num_workers=workers, **given, **where, **options)


EVERY = {"epochs": 3, "batch_size": 40, "checkpoint_trigger": SeveralIteration(3)}


@pytest.fixture(scope="module")
def undisturbed() -> tuple[Parameters, list[float]]:
    """What 12 steps make of a model, of which the last of each epoch has 10 rows and not 40."""
    with by_value(__name__):
        made = undisturbing()
        history = made.fit(shuffled, 3, 40)
        assert history.column("num_samples") == [130] * 3
        return dict(made.get_model().parameters), history.column("train_accuracy")


class Kill(Callback):
    """Kills a worker, its guest, or what it runs of the kvstore before a step, the first time that one comes there."""

    def __init__(self, who: str, rank: int, mark: Path) -> None:
        self._who, self._rank, self._mark = who, rank, mark

    def before_step(self, step: int) -> None:
        if step == 6 and self.run.rank == self._rank and not self._mark.exists():
            self._mark.touch()
            framework = self.run.framework
            own = {"worker": [os.getpid()], "guest": [framework.guest.pid], **framework.nodes.pids}
            os.kill(own[self._who][0], signal.SIGKILL)
            if self._who in framework.nodes.pids:
                time.sleep(60)  # whoever watches it ends this worker; a step might be quicker than that


@pytest.mark.parametrize(("who", "rank"), first(1, [("worker", 1), ("guest", 1), ("server", 0)]))
def test_whoever_is_killed_nothing_changes(
    who: str, rank: int, undisturbed: tuple[Parameters, list[float]], tmp_path: Path
) -> None:
    mark = tmp_path / "killed"
    made = undisturbing(tmp_path / "model", restarts=1)
    history = made.fit(shuffled, callbacks=[Written(tmp_path), Kill(who, rank, mark)], **EVERY)
    assert mark.exists()
    assert wait_until(lambda: not any(map(is_running, pids_in(tmp_path))))
    assert len(pids_in(tmp_path)) == 8  # two guests, a scheduler and a server, twice
    assert distance(dict(made.get_model().parameters), undisturbed[0]) < 1e-6
    assert history.column("train_accuracy") == pytest.approx(undisturbed[1])
    assert history.column("num_samples") == [130] * 3


def test_a_lost_scheduler_is_named_and_the_training_goes_on_later(
    undisturbed: tuple[Parameters, list[float]], tmp_path: Path
) -> None:
    begun = undisturbing(tmp_path / "model", restarts=0)
    lost = r"rank 0 died.* the scheduler of MXNet's kvstore \(process \d+\) ended with SIGKILL; the worker of rank 0"
    with pytest.raises(WorkerDiedError, match=lost):
        begun.fit(shuffled, callbacks=[Kill("scheduler", 0, tmp_path / "killed")], **EVERY)
    found = begun.latest_checkpoint()
    assert found is not None
    assert found.endswith("step-000000000003")
    made = undisturbing(tmp_path / "model", restarts=0)
    history = made.fit(shuffled, resume=True, **EVERY)
    assert distance(dict(made.get_model().parameters), undisturbed[0]) < 1e-6
    assert history.column("train_accuracy") == pytest.approx(undisturbed[1])


def test_workers_of_dask_train_alike(undisturbed: tuple[Parameters, list[float]]) -> None:
    made = undisturbing()
    shoal.shutdown()
    try:
        with shoal.init("dask", workers=2):
            made.fit(shuffled, 3, 40)
    finally:
        shoal.init("local", workers=2)
    assert distance(dict(made.get_model().parameters), undisturbed[0]) < 1e-6


def module(config: dict[str, Any]) -> Any:
    first = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=16, name="first")
    second = mx.sym.FullyConnected(mx.sym.Activation(first, act_type="relu"), num_hidden=10, name="second")
    return mx.mod.Module(mx.sym.SoftmaxOutput(second, name="softmax"))


def test_a_symbol_has_its_loss_in_it(tmp_path: Path) -> None:
    x, y = digits(230)
    options = {"model_creator": module, "loss_creator": None, "extra": {"init": mx.init.Xavier()}}
    made, alone = estimator(**options), estimator(1, **options)
    for each in (made, alone):
        history = each.fit((x, y), 4, 64, validation_data=(x, y))
    model = made.get_model()
    assert distance(dict(model.parameters), dict(alone.get_model().parameters)) < 1e-5
    found = made.predict(x)
    assert np.allclose(found.sum(axis=1), 1, atol=1e-5)
    assert history[-1]["val_loss"] == pytest.approx(-np.mean(np.log(found[np.arange(230), y])), rel=1e-4)
    assert history[-1]["val_loss"] < history[0]["val_loss"]

    assert model.save(tmp_path / "net") == [f"{tmp_path}/net-symbol.json", f"{tmp_path}/net-0000.params"]
    with Guest(find("mxnet")) as guest:
        again = guest.call(loaded_by_module, str(tmp_path / "net"), x)
    assert np.abs(again - found).max() < 1e-6


def loaded_by_module(prefix: str, x: Any) -> Any:
    made = mx.mod.Module.load(prefix, 0)
    rows = mx.io.NDArrayIter(x, batch_size=len(x))
    made.bind(rows.provide_data, for_training=False)
    return made.predict(rows).asnumpy()


def two_inputs(config: dict[str, Any]) -> Any:
    class Two(gluon.nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.last = gluon.nn.Dense(1)

        def hybrid_forward(self, F: Any, one: Any, other: Any) -> Any:
            return self.last(F.concat(one, other, dim=1))

    return Two()


def l2(config: dict[str, Any]) -> Any:
    return gluon.loss.L2Loss()


def regression(config: dict[str, Any]) -> Any:
    return [mx.metric.MAE(), mx.metric.RMSE()]


def test_shards_of_two_inputs_and_metrics_that_count_each_row_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    one, other = (rng.normal(size=(70, 3)).astype(np.float32) for _ in range(2))
    y = (one.sum(1) - other.sum(1)).astype(np.float32)
    cuts = (slice(0, 41), slice(41, 70))
    shards = XShards.from_shards([{"x": [one[cut], other[cut]], "y": y[cut]} for cut in cuts])
    options = {"model_creator": two_inputs, "loss_creator": l2, "optimizer_params": {"learning_rate": 0.1}}
    made = estimator(**options, validation_metrics_creator=regression)
    history = made.fit(shards, epochs=4, batch_size=20)
    assert history.column("num_samples") == [70] * 4
    predicted = made.predict(shards).collect()
    assert [each["prediction"].shape for each in predicted] == [(41, 1), (29, 1)]
    wrong = np.concatenate([each["prediction"][:, 0] for each in predicted]) - y
    found = made.evaluate(shards, batch_size=27)  # parts of 14 and 13 rows, and of 8
    assert found["num_samples"] == 70
    assert found["mae"] == pytest.approx(np.abs(wrong).mean(), rel=1e-5)
    assert found["rmse"] == pytest.approx(np.sqrt((wrong**2).mean()), rel=1e-5)
    assert found["val_loss"] == pytest.approx((wrong**2).mean() / 2, rel=1e-5)

    path = made.save(str(tmp_path / "kept"))
    other_one = estimator(**options)
    other_one.load(path)
    assert distance(dict(other_one.get_model().parameters), dict(made.get_model().parameters)) == 0
    different = estimator()
    different.load(path)
    with pytest.raises(StateError, match="has not the parameters of this model"):
        different.get_model()


def test_what_was_saved_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    """Momentum and the epoch are in the file; frames are data as arrays are."""
    x, y = digits(120)
    frame = pd.DataFrame({"pixels": list(x), "digit": y})
    columns = {"feature_cols": ["pixels"], "label_cols": ["digit"]}
    whole = estimator(1)
    whole.fit(frame, 2, 50, **columns)
    first = estimator(1)
    first.fit(frame, 1, 50, **columns)
    second = estimator(1)
    second.load(first.save(str(tmp_path / "half")))
    assert second.fit(frame, 1, 50, **columns).column("epoch") == [2]
    assert distance(dict(second.get_model().parameters), dict(whole.get_model().parameters)) == 0
    for path in (second.save(str(tmp_path / "net.params")), second.get_model().save(tmp_path / "net")[1]):
        third = estimator(1, extra={"seed": 5})
        third.load(path)
        assert distance(dict(third.get_model().parameters), dict(whole.get_model().parameters)) == 0
    predicted = second.predict(frame, feature_cols=["pixels"])
    assert np.allclose(np.stack(predicted["prediction"]), second.predict(x), atol=1e-6)


def binary(config: dict[str, Any]) -> Any:
    net = gluon.nn.Dense(2, in_units=64)
    net.initialize()
    return net


def two_metrics(config: dict[str, Any]) -> Any:
    return [mx.metric.F1(), mx.metric.create(lambda label, found: float(np.mean(label)), name="mean label")]


def loader(config: dict[str, Any], kv: Any) -> Any:
    x, y = config["data"]
    return gluon.data.DataLoader(gluon.data.ArrayDataset(x, y), config["batch_size"], shuffle=True)


def test_a_loader_is_dealt_out_and_an_epoch_has_as_many_batches_as_wanted(tmp_path: Path) -> None:
    x, y = digits(90)
    y = (y > 5).astype(np.float32)
    made = estimator(model_creator=binary, validation_metrics_creator=two_metrics, extra={"data": (x, y)})
    history = made.fit(loader, 2, 40, validation_data=loader, train_resize_batch_num=5)
    assert history.column("batch_count") == [5, 5]
    assert history.column("num_samples") == [40 + 40 + 10 + 40 + 40] * 2
    assert history.column("val_num_samples") == [90, 90]
    predicted = made.predict(x).argmax(1)
    assert history[-1]["val_f1"] == pytest.approx(f1_score(y, predicted), rel=1e-6)
    assert history[-1]["val_mean label"] == pytest.approx(y.mean(), rel=1e-5)


def test_what_cannot_be_trained_is_refused_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = digits(20)
    made = partial(Estimator.from_mxnet, model_creator=dense, loss_creator=cross_entropy)
    for config, reason in (
        ({"optimizer_params": {}, "log_interval": 1}, "optimizer must be specified in config"),
        ({**create_config(), "batch_size": 4}, "batch_size does not belong into the config; give it to fit"),
        (create_config, "config is a function; it should be a dict"),
    ):
        with pytest.raises(PlanError, match=reason):
            made(config=config)
    for options, reason in (
        ({"extra_config": [1]}, "extra_config must be a dict, and this is a list"),
        ({"optimizer_params": {"rescale_grad": 0.1}}, "gradients are means over the rows of a step already"),
        ({"log_interval": 0}, "log_interval=0"),
    ):
        with pytest.raises(PlanError, match=reason):
            create_config(**options)  # type: ignore[arg-type]
    for given, reason in (
        ({"backend": "horovod"}, "backend='horovod' does not train with MXNet's kvstore"),
        ({"num_servers": 0}, "num_servers=0; at least one is needed"),
        ({"loss_creator": "l2"}, "the creator of the loss is a str; it should be a function"),
    ):
        with pytest.raises(PlanError, match=reason):
            made(**{"config": create_config(), **given})
    with pytest.raises(TypeError, match="unexpected keyword argument 'cores'"):
        made(config=create_config(), cores=2)
    frame = pd.DataFrame({"pixels": list(x), "digit": y})
    with pytest.raises(PlanError, match=r"there is no column 'pixel'; the columns are pixels, digit"):
        estimator().fit(frame, feature_cols=["pixel"], label_cols=["digit"])
    with pytest.raises(PlanError, match="predict takes rows and no function"):
        estimator().predict(loader)
    monkeypatch.setenv("SHOAL_ENVIRONMENTS", str(tmp_path))
    with pytest.raises(WorkerEnvironmentError, match=r"there is no environment 'mxnet' yet: `shoal env create mxnet`"):
        estimator()


def digits_only(config: dict[str, Any]) -> int:
    return 3


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"loss_creator": None}, "a model of Gluon cannot be trained without a loss: give loss_creator"),
        ({}, r"cannot do this with inputs of the shapes \[\(10, 8, 7\)\].* and targets of \[\(10,\)\]"),
        ({"model_creator": digits_only}, "model_creator made a int; it should return a gluon.Block"),
    ],
)
def test_an_error_over_there_is_told_here(options: dict[str, Any], reason: str) -> None:
    x, y = digits(20)
    rows = (x, y) if options else (x.reshape(-1, 8, 8)[:, :, :7], y)
    with pytest.raises(PlanError, match=reason) as caught:
        estimator(1, **options).fit(rows, batch_size=10)
    assert "rank 0 of 1" in "\n".join(caught.value.__notes__)


def odd(config: dict[str, Any]) -> Any:
    class Odd(gluon.nn.Block):
        def __init__(self) -> None:
            super().__init__()
            self.last = gluon.nn.Dense(10, in_units=64)

        def forward(self, x: Any) -> Any:
            if float(x.max().asscalar()) > 50:
                raise ZeroDivisionError("odd rows")
            return self.last(x)

    return Odd()


def test_an_error_of_one_worker_ends_those_who_wait_for_it() -> None:
    x, y = digits(80)
    x[35] = 99
    with pytest.raises(ZeroDivisionError, match="odd rows") as caught:
        estimator(model_creator=odd).fit((x, y), batch_size=20, shuffle=False)
    assert "of 2, in a worker" in "\n".join(caught.value.__notes__)


def lossless(config: dict[str, Any]) -> Any:
    return mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=10)


def test_what_tells_nothing_is_refused_in_an_evaluation() -> None:
    made = estimator(1, model_creator=lossless, loss_creator=None)
    with pytest.raises(PlanError, match="tells no loss, and there are no metrics: give loss_creator"):
        made.evaluate(digits(20))


def test_a_model_that_has_seen_nothing_has_no_shapes() -> None:
    with pytest.raises(StateError, match="the shapes of this model follow from its inputs"):
        estimator(1, model_creator=lenet).get_model()
    assert isinstance(estimator(1).get_model(), MXNetModel)
