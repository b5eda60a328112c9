"""A loader inside torch's own loaders: the same batches in the same order, and a state that goes on exactly."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import shoal
from shoal.abc import Sample
from shoal.pipeline import Dataset

# torchdata 0.11 asks torch for something that torch is about to drop.
pytestmark = pytest.mark.filterwarnings(
    "ignore:'set_vital' is deprecated", "ignore:This DataLoader will create 3 worker processes"
)


def is_kept(sample: Sample) -> bool:
    return sample["cls"] % 3 != 0


PLANS: dict[str, Callable[[Dataset], Dataset]] = {
    "straight": lambda dataset: dataset,
    "filtered": lambda dataset: dataset.filter(is_kept),
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("torch")
    with shoal.shards.ShardWriter(folder / "%02d.tar", maxcount=40) as writer:
        for number in range(150):
            writer.write({"__key__": f"{number:04d}", "cls": number})
    return shoal.read_tar(folder / "*.tar").decode().shuffle("full", seed=3)


def keys(batches: object) -> list[list[str]]:
    return [list(batch["__key__"]) for batch in batches]  # type: ignore[attr-defined]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("plan", PLANS)
def test_worker_processes_change_nothing(dataset: Dataset, plan: str, workers: int) -> None:
    chosen = PLANS[plan](dataset)
    inside = DataLoader(chosen.loader(8).torch_dataset(), batch_size=None, num_workers=workers)
    assert keys(inside) == keys(chosen.loader(8))


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("plan", PLANS)
def test_a_stateful_data_loader_goes_on_exactly(dataset: Dataset, plan: str, workers: int) -> None:
    chosen = PLANS[plan](dataset)
    whole = keys(chosen.loader(8))
    loader = StatefulDataLoader(chosen.loader(8).torch_dataset(), batch_size=None, num_workers=workers)
    batches = iter(loader)
    first = [list(next(batches)["__key__"]) for _ in range(5)]
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    del batches
    again = StatefulDataLoader(chosen.loader(8).torch_dataset(), batch_size=None, num_workers=workers)
    again.load_state_dict(state)
    assert first + keys(again) == whole


def test_a_finished_epoch_is_followed_by_the_next(dataset: Dataset) -> None:
    loader = dataset.loader(8)
    epochs = [keys(loader), keys(loader)]
    stateful = StatefulDataLoader(dataset.loader(8).torch_dataset(), batch_size=None)
    assert keys(stateful) == epochs[0]
    again = StatefulDataLoader(dataset.loader(8).torch_dataset(), batch_size=None)
    again.load_state_dict(stateful.state_dict())
    assert keys(again) == epochs[1]


def test_the_protocol_works_without_torch(dataset: Dataset) -> None:
    whole = keys(dataset.loader(8))
    loader = dataset.loader(8)
    batches = iter(loader)
    first = [list(next(batches)["__key__"]) for _ in range(4)]
    state = json.loads(json.dumps(loader.state_dict()))
    again = dataset.loader(8, workers=0)
    again.load_state_dict(state)
    assert first + keys(again) == whole


def test_a_loader_that_is_pickled_goes_on_where_it_was(dataset: Dataset) -> None:
    whole = keys(dataset.loader(8))
    loader = dataset.loader(8)
    batches = iter(loader)
    first = [list(next(batches)["__key__"]) for _ in range(4)]
    assert first + keys(pickle.loads(pickle.dumps(loader))) == whole
