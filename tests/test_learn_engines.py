"""The same training on every engine: the same weights, also after a worker was killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shoal
from shoal.learn import Callback, SeveralIteration
from shoal.learn.pytorch import Estimator
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


def trained(workers: int, **options: Any) -> dict[str, torch.Tensor]:
    made = Estimator.from_torch(
        model=network,
        optimizer=sgd,
        loss=torch.nn.CrossEntropyLoss(),
        workers=workers,
        model_dir=options.pop("model_dir", None),
    )
    history = made.fit(rows(), epochs=3, batch_size=50, **options)
    assert history.column("num_samples") == [470] * 3
    return made.get_model().state_dict()


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, torch.Tensor]:
    with by_value(__name__), shoal.init("local", workers=2):
        return trained(1)


class KillAt(Callback):
    """Kills a worker after a step, the first time that one comes there."""

    def __init__(self, step: int, mark: Path) -> None:
        self._step, self._mark = step, mark

    def after_step(self, step: int, loss: float) -> None:
        if step == self._step and self.run.rank == 1 and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("engine", ["ray", "dask", "spark"])
def test_weights_are_those_of_one_worker_here(
    engine: str, undisturbed: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    with shoal.init(engine, workers=2):
        there = trained(2)
        assert max(float((there[name] - undisturbed[name]).abs().max()) for name in there) < 1e-5
        mark = tmp_path / "killed"
        killed = trained(
            2,
            model_dir=str(tmp_path / "model"),
            callbacks=[KillAt(13, mark)],
            checkpoint_trigger=SeveralIteration(5),
        )
        assert mark.exists()
        assert max(float((killed[name] - undisturbed[name]).abs().max()) for name in killed) < 1e-5
