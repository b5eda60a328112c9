"""The blocks on PyTorch of the documents on data and on training, with imports and data paths changed and nothing else.

scikit-learn's digits stand for MNIST, and two transforms of a few lines for torchvision's. Two slips of the blocks are
mended: the estimator is called ``est`` throughout, and ``model=model`` is ``model=model_creator``. Every block runs on
every engine; ``df`` is a data frame of that engine's own kind.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import shoal
from shoal.data import XShards
from shoal.errors import PlanError
from support import digits as datasets
from support.clusters import running
from support.learn import shipped

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
]

args = Namespace(lr=2e-3, epochs=2)
batch_size = 120
ROWS = 1797


@pytest.fixture(scope="module", autouse=True, params=["local", "ray", "spark", "dask"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    with running(request.param, workers=2):
        yield request.param


@pytest.fixture(autouse=True)
def _shipped() -> Iterator[None]:
    with shipped(__name__, "support.digits"):
        yield


class Compose:
    def __init__(self, steps: list[Any]) -> None:
        self.steps = steps

    def __call__(self, image: Any) -> Any:
        for step in self.steps:
            image = step(image)
        return image


class ToTensor:
    def __call__(self, image: Any) -> Any:
        return torch.from_numpy(np.array(image)[None].astype(np.float32) / 255)


class Normalize:
    def __init__(self, mean: tuple[float], std: tuple[float]) -> None:
        self.mean, self.std = mean[0], std[0]

    def __call__(self, image: Any) -> Any:
        return (image - self.mean) / self.std


transforms = SimpleNamespace(Compose=Compose, ToTensor=ToTensor, Normalize=Normalize)


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 5, stride=2), nn.Conv2d(8, 16, 5, stride=2)
        self.last = nn.Linear(16 * 4 * 4, 10)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return torch.log_softmax(self.last(x.flatten(1)), dim=1)


def loader() -> Any:
    return torch.utils.data.DataLoader(
        datasets.MNIST("/tmp/mnist", train=True, download=True,
                       transform=transforms.Compose([
                           transforms.ToTensor(),
                           transforms.Normalize((0.1307,), (0.3081,))
                       ])),
        batch_size=batch_size, shuffle=True)  # fmt: skip


def images(count: int) -> np.ndarray[Any, Any]:
    dataset = loader().dataset
    return np.stack([dataset[number][0].numpy() for number in range(count)])


def frame_of(engine: str, count: int) -> Any:
    """Make a data frame of an engine's own kind, in three parts: numbers, images and what they show."""
    dataset = loader().dataset
    labels = np.array([dataset[number][1] for number in range(count)])
    arrays = {"id": np.arange(count), "image": images(count), "label": labels}
    shards = XShards.partition(arrays, 3).transform_shard(as_frame)
    ways = {"local": shards.to_pandas, "ray": shards.to_ray, "spark": shards.to_spark_df, "dask": shards.to_dask}
    return ways[engine]()


def as_frame(shard: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame({**shard, "image": shard["image"].tolist()})


def in_order(frame: Any) -> pd.DataFrame:
    """Bring a data frame of any kind here, by its numbers."""
    if hasattr(frame, "take_all"):
        frame = pd.DataFrame(frame.take_all())
    elif hasattr(frame, "sparkSession"):
        frame = pd.DataFrame([row.asDict() for row in frame.collect()])
    elif hasattr(frame, "npartitions"):
        frame = shoal.engines.current().client.compute(frame).result()  # type: ignore[attr-defined]
    return frame.sort_values("id")


def test_a_loader_trains_a_model() -> None:
    from shoal.learn.pytorch import Estimator

    torch_model = LeNet()
    torch_optim = torch.optim.Adam(torch_model.parameters(), args.lr)
    torch_criterion = nn.NLLLoss()

    train_loader = torch.utils.data.DataLoader(
            datasets.MNIST("/tmp/mnist", train=True, download=True,
                           transform=transforms.Compose([
                               transforms.ToTensor(),
                               transforms.Normalize((0.1307,), (0.3081,))
                           ])),
            batch_size=batch_size, shuffle=True)  # fmt: skip

    est = Estimator.from_torch(model=torch_model, optimizer=torch_optim, loss=torch_criterion)
    first = est.fit(data=train_loader)

    again = est.fit(data=train_loader)
    assert [epoch["num_samples"] for epoch in [*first, *again]] == [ROWS, ROWS]
    assert first[0]["batch_count"] == -(-ROWS // batch_size)
    assert again[0]["train_loss"] < first[0]["train_loss"] / 2
    with pytest.raises(PlanError, match="batch_size=32 is given beside a DataLoader"):
        est.fit(data=train_loader, batch_size=32)


def train_data_creator(config: Any) -> Any:
    train_loader = torch.utils.data.DataLoader(
            datasets.MNIST(config["dir"], train=True, download=True,
                           transform=transforms.Compose([
                               transforms.ToTensor(),
                               transforms.Normalize((0.1307,), (0.3081,))
                           ])),
            batch_size=config["batch_size"], shuffle=True)  # fmt: skip
    return train_loader  # noqa: RET504  # as it is written there


def model_creator(config: Any) -> Any:
    model = LeNet()  # a torch.nn.Module
    model.train()
    return model


def optimizer_creator(model: Any, config: Any) -> Any:
    return torch.optim.Adam(model.parameters(), config["lr"])


def test_functions_make_the_data_the_model_and_the_optimizer(engine: str) -> None:
    from shoal.learn.pytorch import Estimator

    est = Estimator.from_torch(model=model_creator,
                               optimizer=optimizer_creator,
                               loss=nn.NLLLoss(),
                               config={"lr": 1e-2, "dir": "/tmp/mnist"},
                               backend="torch_distributed")  # fmt: skip
    df = frame_of(engine, 30)

    history = est.fit(data=train_data_creator, epochs=args.epochs, batch_size=batch_size)
    predictions = est.predict(data=df,
                              feature_cols=['image'])  # fmt: skip

    assert history.column("num_samples") == [ROWS, ROWS]
    assert history.column("batch_count") == [-(-ROWS // batch_size)] * 2
    assert history[1]["train_loss"] < history[0]["train_loss"] / 2
    assert type(predictions) is type(df)
    found = in_order(predictions)
    assert list(found.columns) == ["id", "image", "label", "prediction"]
    assert found["id"].tolist() == [*range(30)]
    np.testing.assert_allclose(np.stack([*found["prediction"]]), est.predict(images(30)), atol=1e-4)
    assert np.mean([int(np.argmax(cell)) for cell in found["prediction"]] == found["label"]) > 0.8


def test_instances_are_trained_with_that_backend_as_well() -> None:
    from shoal.learn.pytorch import Estimator

    model = LeNet()
    est = Estimator.from_torch(model=model,
                               optimizer=optimizer_creator,
                               loss=nn.NLLLoss(),
                               config={"lr": 1e-2},
                               backend="torch_distributed")  # fmt: skip
    history = est.fit(data=loader())
    assert history[0]["num_samples"] == ROWS
    assert est.get_model() is model


def instances() -> Any:
    from shoal.learn.pytorch import Estimator

    model = LeNet()  # a torch.nn.Module
    model.train()
    criterion = nn.NLLLoss()

    adam = torch.optim.Adam(model.parameters(), args.lr)
    est = Estimator.from_torch(model=model, optimizer=adam, loss=criterion)
    assert est.get_model() is model
    return est


def test_instances_are_trained_and_predict_for_shards() -> None:
    est, train_loader = instances(), loader()
    xshards = XShards.partition({"x": images(50)}, 4)

    history = est.fit(data=train_loader, epochs=args.epochs)
    predictions = est.predict(xshards)

    assert history.column("num_samples") == [ROWS, ROWS]
    assert history[1]["train_loss"] < history[0]["train_loss"]
    parts = predictions.collect()
    assert [part["prediction"].shape for part in parts] == [(13, 10), (13, 10), (12, 10), (12, 10)]
    whole = est.predict(images(50))
    np.testing.assert_allclose(np.concatenate([part["prediction"] for part in parts]), whole, atol=1e-5)


def test_instances_are_trained_with_a_frame(engine: str) -> None:
    est, df = instances(), frame_of(engine, 60)

    history = est.fit(data=df, epochs=3, batch_size=20, feature_cols=["image"], label_cols=["label"])

    assert history.column("num_samples") == [60, 60, 60]
    assert history[-1]["train_loss"] < history[0]["train_loss"]
