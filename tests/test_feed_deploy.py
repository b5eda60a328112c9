"""Feeders on engines: started, killed, replaced, scaled, and beside a training."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal import feed
from shoal.abc import Sample
from shoal.errors import FeedWarning, PlanError
from shoal.feed._scaling import Bounds, Pressure, bounds_of
from shoal.learn.pytorch import Estimator
from shoal.pipeline import Dataset
from support.clusters import running
from support.engine import by_value
from support.feed import same_batches
from support.lengths import first

ENGINES = ["local", "ray", "spark", "dask"]
COUNT = 600


@pytest.fixture(scope="module", autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__):
        yield


@pytest.fixture(scope="module", params=first(2, ENGINES))
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    with running(request.param, workers=5):
        yield request.param


def rows() -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(COUNT, 8)).astype(np.float32)
    return shoal.from_arrays({"x": x, "y": (x.sum(axis=1) > 0).astype(np.int64)}).shuffle("full", seed=0)


def noisy(sample: Sample, rng: np.random.Generator) -> Sample:
    return {"x": sample["x"] + np.float32(rng.normal() / 100), "y": sample["y"], "pid": os.getpid()}


def test_feeders_of_an_engine_give_what_a_local_loader_gives(engine: str) -> None:
    dataset = rows().map(noisy, random=True).map(lambda sample: {"x": sample["x"], "y": sample["y"]})
    with feed.deploy(dataset, feeders=2) as feeders:
        assert len(set(feeders.urls)) == 2
        assert same_batches(feeders.loader(32), dataset.loader(32))
        parts = [feeders.loader(32, rank=rank, world_size=2) for rank in range(2)]
        for rank, part in enumerate(parts):
            assert same_batches(part, dataset.loader(32, rank=rank, world_size=2))


def pids_of(batches: Any) -> set[int]:
    return {pid for batch in batches for pid in batch["pid"].tolist()}


def test_a_feeder_that_is_killed_is_started_anew(engine: str) -> None:
    dataset = rows().map(noisy, random=True)
    expected = [batch["x"].tobytes() for batch in dataset.loader(10)]
    with feed.deploy(dataset, feeders=2) as feeders:
        loader = feeders.loader(10, timeout=30)
        before, known = pids_of(loader), set(feeders.urls)
        assert len(before) == 2
        loader.epoch = 0
        batches = iter(loader)
        got = [batch["x"].tobytes() for batch in islice(batches, 3)]
        os.kill(min(before), signal.SIGKILL)
        with pytest.warns(FeedWarning, match="has gone"):
            got += [batch["x"].tobytes() for batch in batches]
        assert got == expected
        until = time.monotonic() + 120
        while sum(info.at_work for info in loader.feeders()) < 2 or set(feeders.urls) == known:
            assert time.monotonic() < until, f"{loader.feeders()} of {feeders.urls}"
            time.sleep(0.1)
        again = pids_of(loader)
        assert len(again) == 2
        assert min(before) not in again


def slow(sample: Sample) -> Sample:
    time.sleep(0.01)
    return {"x": sample["x"], "y": sample["y"], "pid": os.getpid()}


def test_feeders_are_added_while_trainers_wait(engine: str) -> None:
    dataset = rows().map(slow)
    with feed.deploy(dataset, feeders=(1, 3), workers=1) as feeders:
        assert len(feeders.urls) == 1
        loader = feeders.loader(8)
        seen: set[int] = set()
        for _ in range(20):
            seen |= pids_of(loader)
            if len(seen) > 1:
                break
        assert len(seen) > 1
        assert len(feeders.urls) > 1


def test_feeders_that_are_not_needed_hand_over_and_end() -> None:
    dataset = rows().map(noisy, random=True)
    expected = [batch["x"].tobytes() for batch in dataset.loader(10)]
    with feed.deploy(dataset, feeders=2) as feeders:
        loader = feeders.loader(10)
        batches = iter(loader)
        got = [batch["x"].tobytes() for batch in islice(batches, 2)]
        feeders.scale(1)
        got += [batch["x"].tobytes() for batch in batches]
        assert got == expected
        assert len(feeders.urls) == 1
        feeders.scale(2)
        feeders.wait()
        assert len(feeders.urls) == 2


def model(config: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(8, 2)


def optimizer(net: torch.nn.Module, config: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1)


def estimator(**options: Any) -> Estimator:
    return Estimator.from_torch(
        model=model, optimizer=optimizer, loss=torch.nn.CrossEntropyLoss(), workers=2, **options
    )


def weights(of: Estimator) -> list[bytes]:
    return [parameter.detach().numpy().tobytes() for parameter in of.get_model().parameters()]


def test_a_training_with_feeders_learns_what_it_learns_without(engine: str) -> None:
    dataset = rows().map(noisy, random=True)
    alone, fed = estimator(), estimator()
    expected = alone.fit(dataset, epochs=2, batch_size=60)
    history = fed.fit(dataset, epochs=2, batch_size=60, feeders=2)
    assert history.column("train_loss") == expected.column("train_loss")
    assert weights(fed) == weights(alone)


def test_a_training_may_use_feeders_that_are_there(tmp_path: Path) -> None:
    dataset = rows().map(noisy, random=True)
    alone = estimator()
    alone.fit(dataset, epochs=2, batch_size=60)
    with feed.deploy(dataset, feeders=1) as feeders:
        deployed = estimator(model_dir=str(tmp_path))
        deployed.fit(dataset, epochs=1, batch_size=60, feeders=feeders)
        with feed.serve(dataset) as served:
            deployed.fit(dataset, epochs=1, batch_size=60, feeders=[served.url])
    assert weights(deployed) == weights(alone)


def test_data_that_no_feeder_can_prepare_is_refused() -> None:
    loader = torch.utils.data.DataLoader([(torch.zeros(8), 0)], batch_size=1)
    with pytest.raises(PlanError, match="feeders prepare a Dataset, or what becomes one"):
        estimator().fit(loader, feeders=2)


@pytest.mark.parametrize("feeders", [0, (3, 2), (0, 2)])
def test_a_number_of_feeders_that_makes_no_sense_is_refused(feeders: Any) -> None:
    with pytest.raises(PlanError, match="feeders="):
        bounds_of(feeders)


@given(
    st.lists(st.dictionaries(st.sampled_from("ab"), st.floats(0, 1)), max_size=60), st.integers(1, 5), st.integers(0, 5)
)
def test_however_long_trainers_wait_the_bounds_hold(readings: list[dict[str, float]], least: int, more: int) -> None:
    bounds = Bounds(least, least + more)
    now = Pressure(least)
    for reading in readings:
        before, now = now.wanted, now.after(reading, bounds)
        assert bounds.least <= now.wanted <= bounds.most
        if now.wanted > before:
            assert max(reading.values()) > 0.1
        if now.wanted < before:
            assert max(reading.values()) < 0.01


def test_it_grows_soon_and_shrinks_late() -> None:
    now = Pressure(4)
    for _ in range(2):
        now = now.after({"a": 0.6}, Bounds(1, 9))
    assert now.wanted == 6
    for _ in range(14):
        now = now.after({"a": 0.0}, Bounds(1, 9))
    assert now.wanted == 6
    assert now.after({"a": 0.0}, Bounds(1, 9)).wanted == 5
    assert now.after({}, Bounds(1, 9)).wanted == 6
