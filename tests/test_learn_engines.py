"""The same training on every engine: the same order and weights, also after a worker was killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shoal
from shoal.learn import Callback, SeveralIteration
from shoal.learn.pytorch import Estimator
from shoal.testing.faults import KillAt
from support.clusters import running
from support.engine import by_value

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__):
        yield


def rows() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x = np.random.default_rng(0).normal(size=(470, 6)).astype(np.float32)
    return x, (x.sum(axis=1) > 0).astype(np.int64)


def network(config: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def sgd(model: torch.nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)


def estimator(workers: int, model_dir: str | None = None) -> Estimator:
    return Estimator.from_torch(
        model=network, optimizer=sgd, loss=torch.nn.CrossEntropyLoss(), workers=workers, model_dir=model_dir
    )


def trained(workers: int, **options: Any) -> dict[str, torch.Tensor]:
    made = estimator(workers, options.pop("model_dir", None))
    history = made.fit(rows(), epochs=3, batch_size=50, **options)
    assert history.column("num_samples") == [470] * 3
    return made.get_model().state_dict()


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, torch.Tensor]:
    with by_value(__name__), shoal.init("local", workers=2):
        return trained(1)


@pytest.fixture(scope="module")
def cluster(undisturbed: dict[str, torch.Tensor], request: pytest.FixtureRequest) -> Iterator[str]:
    with running(request.param, workers={"local": 4, "ray": 3}.get(request.param, 2)):
        yield request.param


class Noting(torch.nn.Module):
    """Notes the numbers of the rows that it is given to learn from."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.noted: list[list[int]] = []

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        self.noted.append(numbers.long().tolist())
        return self.weight * numbers


def noting(config: dict[str, Any]) -> torch.nn.Module:
    return Noting()


class Notes(Callback):
    """Keeps what each worker has noted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def after_run(self) -> None:
        noted = self.run.framework.model.noted  # type: ignore[attr-defined]
        (self._folder / str(self.run.rank)).write_text(json.dumps(noted))


def order(workers: int, folder: Path, batch: int) -> list[list[int]]:
    """Train for two epochs, and give the rows of each global batch in their order: slot g is rank g mod W's next."""
    made = Estimator.from_torch(
        model=noting,
        optimizer=lambda model, config: torch.optim.SGD(model.parameters(), lr=0.0),
        loss=torch.nn.MSELoss(),
        workers=workers,
    )
    numbers = np.arange(470, dtype=np.float32)
    made.fit((numbers, numbers), epochs=2, batch_size=batch, callbacks=[Notes(folder)])
    parts = [json.loads((folder / str(rank)).read_text()) for rank in range(workers)]
    batches = []
    for number, mine in enumerate(zip(*parts, strict=True)):
        first = number % -(-470 // batch) * batch  # epochs begin with slot 0
        sources = [iter(part) for part in mine]
        slots = range(first, first + sum(map(len, mine)))
        batches.append([next(sources[slot % workers]) for slot in slots])
    return batches


@pytest.mark.parametrize("cluster", ["local"], indirect=True)
def test_rows_come_in_the_same_order_on_any_number_of_workers(cluster: str, tmp_path: Path) -> None:
    found = {}
    for workers in (1, 2, 4):
        (tmp_path / str(workers)).mkdir()
        found[workers] = order(workers, tmp_path / str(workers), batch=50)
    alone = found[1]
    assert [len(batch) for batch in alone] == [*[50] * 9, 20] * 2
    epochs = [[number for batch in some for number in batch] for some in (alone[:10], alone[10:])]
    assert sorted(epochs[0]) == sorted(epochs[1]) == [*range(470)]
    assert epochs[0] != epochs[1]
    assert found[2] == alone
    assert found[4] == alone


@pytest.mark.parametrize("cluster", ["ray", "dask", "spark"], indirect=True)
def test_weights_are_those_of_one_worker_here(
    cluster: str, undisturbed: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    assert distance(trained(2), undisturbed) < 1e-5
    mark = tmp_path / "killed"
    killed = trained(
        2,
        model_dir=str(tmp_path / "model"),
        callbacks=[KillAt(13, 1, mark)],
        checkpoint_trigger=SeveralIteration(5),
    )
    assert mark.exists()
    assert distance(killed, undisturbed) < 1e-5


@pytest.mark.parametrize("cluster", ["ray"], indirect=True)
@pytest.mark.parametrize("workers", [1, 3])
def test_a_training_that_was_stopped_goes_on_with_other_workers(
    cluster: str, workers: int, undisturbed: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    begun = estimator(2, model_dir=str(tmp_path))
    begun.fit(rows(), epochs=3, batch_size=50, max_steps=13, checkpoint_trigger=SeveralIteration(4))
    assert distance(begun.get_model().state_dict(), undisturbed) > 1e-3
    assert distance(trained(workers, model_dir=str(tmp_path), resume=True), undisturbed) < 1e-5
