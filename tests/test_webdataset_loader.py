"""DataLoaders with real worker processes: nothing is read twice, nothing is lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from shoal.errors import ShardError
from shoal.testing.faults import http_server
from shoal.webdataset import (
    DataPipeline,
    SimpleShardList,
    WebDataset,
    WebLoader,
    ignore_and_continue,
    split_by_worker,
    tarfile_to_samples,
)
from support.webdataset_shards import SAMPLES, write_members, write_numbers, write_pictures

#: This machine may have fewer cores than a test has workers; torch says so in a warning.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_pictures(tmp_path_factory.mktemp("pictures") / "pictures.tgz", "gz")


def with_worker(sample: dict[str, Any]) -> tuple[int, str, int]:
    """Say which worker read a sample."""
    info = torch.utils.data.get_worker_info()
    assert info is not None
    return info.id, sample["__key__"], sample["cls"]


def read(dataset: Any, workers: int, **options: Any) -> list[Any]:
    return list(DataLoader(dataset, batch_size=None, num_workers=workers, collate_fn=as_it_is, **options))


def failure(dataset: Any, workers: int) -> Exception:
    """Give what reading raises, without the traceback: that would keep the loader, and with it its workers, alive."""
    try:
        read(dataset, workers)
    except Exception as error:
        return error.with_traceback(None)
    raise AssertionError("nothing was raised")


def as_it_is(sample: Any) -> Any:
    """Keep tuples: torch would make lists of them."""
    return sample


def test_it_is_an_iterable_dataset_of_torch() -> None:
    assert WebDataset.__base__ is IterableDataset
    assert str(WebDataset.__base__) == "<class 'torch.utils.data.dataset.IterableDataset'>"
    assert isinstance(DataPipeline([1]), IterableDataset)


def test_each_worker_has_shards_of_its_own(tmp_path: Path) -> None:
    urls = write_numbers(tmp_path, shards=4, each=5)
    got = read(WebDataset(urls).decode().map(with_worker), workers=2)
    by_worker = {worker: {key[:4] for w, key, _ in got if w == worker} for worker in range(2)}
    assert by_worker == {0: {"0000", "0002"}, 1: {"0001", "0003"}}
    assert sorted(cls for _, _, cls in got) == list(range(20))


def test_the_old_dialect_splits_too(tmp_path: Path) -> None:
    urls = write_numbers(tmp_path, shards=4, each=5)
    batches = list(DataLoader(WebDataset(urls, extensions="cls", shuffle=100), batch_size=4, num_workers=2))
    assert sorted(torch.cat([batch for (batch,) in batches]).tolist()) == list(range(20))


def test_a_dataset_that_is_not_prepared_is_read_by_each_worker(tmp_path: Path) -> None:
    urls = write_numbers(tmp_path, shards=2, each=3)
    got = read(WebDataset(urls, extensions="cls", prepare_for_worker=False), workers=2)
    assert Counter(cls for (cls,) in got) == dict.fromkeys(range(6), 2)


@pytest.mark.parametrize("compression", ["", "gz"])
@pytest.mark.parametrize(("shards", "each", "workers"), [(1, 50, 4), (2, 11, 3), (3, 7, 4), (1, 2, 4)])
def test_more_workers_than_shards(tmp_path: Path, compression: str, shards: int, each: int, workers: int) -> None:
    urls = write_numbers(tmp_path, shards, each, compression)
    dataset = WebDataset(urls).decode().map(with_worker)
    for _ in range(2):  # the second time there are indexes
        got = read(dataset, workers)
        assert sorted(cls for _, _, cls in got) == list(range(shards * each))
        if each >= workers:
            assert {worker for worker, _, _ in got} == set(range(workers))


@pytest.mark.parametrize("cached", [False, True])
def test_more_workers_than_remote_shards(tmp_path: Path, cached: bool) -> None:
    (path,) = write_numbers(tmp_path, shards=1, each=40)
    with http_server() as server:
        url = server.add("/numbers.tar", Path(path).read_bytes())
        dataset = WebDataset(url, cache_dir=str(tmp_path / "cache") if cached else None).decode().to_tuple("cls")
        for _ in range(2):
            assert sorted(read(dataset, workers=3)) == [(n,) for n in range(40)]


def test_more_workers_than_shards_with_renamed_files(tmp_path: Path) -> None:
    urls = write_numbers(tmp_path, shards=1, each=20)
    dataset = WebDataset(urls, rename_files=lambda name: name.replace(".cls", ".id")).decode().to_tuple("id")
    assert sorted(read(dataset, workers=3)) == [(n,) for n in range(20)]


def test_more_workers_than_a_damaged_shard(tmp_path: Path) -> None:
    (path,) = write_numbers(tmp_path, shards=1, each=30)
    Path(path).write_bytes(Path(path).read_bytes()[: 20 * 1024 + 512 + 100])
    dataset = WebDataset(path, handler=ignore_and_continue).decode(handler=ignore_and_continue).to_tuple("cls")
    assert sorted(read(dataset, workers=3)) == sorted(dataset)
    assert isinstance(failure(WebDataset(path), workers=2), ShardError)


def test_workers_without_a_sample_are_no_error_but_an_empty_dataset_is(tmp_path: Path) -> None:
    urls = write_numbers(tmp_path, shards=1, each=1)
    assert len(read(WebDataset(urls), workers=3)) == 1
    empty = [write_members(tmp_path / f"empty-{n}.tar", []) for n in range(2)]
    assert "No samples found" in str(failure(WebDataset(empty), workers=2))


def test_batches_of_one_shard_and_four_workers(pictures: str) -> None:
    dataset = WebDataset(pictures, workersplitter=split_by_worker).decode().to_tuple("cls")
    assert len(list(DataLoader(dataset, num_workers=4, batch_size=3))) == 16
    stages = DataPipeline(SimpleShardList(pictures), split_by_worker, tarfile_to_samples()).decode().to_tuple("cls")
    assert len(list(DataLoader(stages, num_workers=4, batch_size=3))) == 16


def test_whole_batches_only(pictures: str) -> None:
    dataset = WebDataset(pictures).decode().to_tuple("cls")
    loader = WebLoader(dataset, num_workers=4, batch_size=3, drop_last=True)
    assert len(list(loader)) == 15
    assert len(list(loader.unbatched())) == 45


def test_a_web_loader_batches_anew(pictures: str) -> None:
    dataset = WebDataset(pictures).select(lambda sample: sample["__key__"] != "000000")  # the large picture
    dataset = dataset.decode("torchrgb8").to_tuple("png", "cls")
    loader = WebLoader(dataset.batched(8), batch_size=None, num_workers=2).unbatched().shuffle(100).batched(10)
    batches = list(loader)
    assert sum(len(labels) for _, labels in batches) == SAMPLES - 1
    assert tuple(batches[0][0].shape) == (10, 3, 48, 64)
    assert [len(batch[1]) for batch in loader.with_epoch(3)] == [10, 10, 10]


def test_an_epoch_of_so_many_batches(tmp_path: Path) -> None:
    urls = write_numbers(tmp_path, shards=4, each=5)
    dataset = WebDataset(urls, resampled=True).decode().to_tuple("cls").batched(4)
    loader = WebLoader(dataset, batch_size=None, num_workers=2).with_epoch(30)
    assert [sum(1 for _ in loader) for _ in range(2)] == [30, 30]


def test_workers_shuffle_differently_in_each_epoch(tmp_path: Path) -> None:
    urls = write_numbers(tmp_path, shards=2, each=50)
    dataset = WebDataset(urls).decode().to_tuple("cls").shuffle(100)
    first, second = read(dataset, workers=2), read(dataset, workers=2)
    assert first != second
    assert sorted(first) == sorted(second) == [(n,) for n in range(100)]


def test_torchs_seed_repeats_the_order(tmp_path: Path) -> None:
    urls = write_numbers(tmp_path, shards=6, each=10)
    dataset = WebDataset(urls, extensions="cls", shuffle=100)
    orders = []
    for _ in range(2):
        torch.manual_seed(7)
        orders.append(read(dataset, workers=2))
    assert orders[0] == orders[1] != sorted(orders[0])


def test_spawned_workers(tmp_path: Path) -> None:
    urls = write_numbers(tmp_path, shards=3, each=4)
    dataset = WebDataset(urls, extensions="cls", shuffle=10)
    list(dataset)
    got = read(dataset, workers=2, multiprocessing_context="spawn")
    assert sorted(got) == [(n,) for n in range(12)]


def test_a_length_gives_a_loader_its_length(pictures: str) -> None:
    dataset = WebDataset(pictures).decode().to_tuple("cls").with_length(SAMPLES)
    assert len(DataLoader(dataset, batch_size=10)) == 5
