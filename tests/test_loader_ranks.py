"""Real ranks under torch.distributed take the same number of steps and share every sample exactly once."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed

import shoal
from shoal.abc import Sample
from shoal.errors import PlanError
from shoal.pipeline import Dataset
from support.ranks import run_ranks

pytestmark = pytest.mark.slow


def write(folder: Path, name: str, counts: list[int]) -> str:
    number = 0
    for shard, count in enumerate(counts):
        with shoal.shards.TarWriter(folder / f"{name}-{shard}.tar") as writer:
            for _ in range(count):
                writer.write({"__key__": f"{name}{number:05d}", "cls": number})
                number += 1
    return str(folder / f"{name}-*.tar")


def tokens(sample: Sample) -> Sample:
    return {"tokens": np.full(1 + sample["cls"] % 7, sample["cls"])}


def keep(sample: Sample) -> bool:
    """Leave nearly nothing in odd lanes: unshuffled, sample i is in lane i mod 64."""
    return sample["cls"] % 2 == 0 or sample["cls"] == 1


def packed_mixture(folder: str) -> Dataset:
    a = shoal.read_tar(f"{folder}/a-*.tar").decode().filter(keep).map(tokens)
    b = shoal.read_tar(f"{folder}/b-*.tar").decode().filter(keep).map(tokens)
    return shoal.mix([a, b], [3, 1], exhausted="drop").pack(16, bins=2)


def parts(batch: Sample) -> list[str]:
    real = batch.get("__mask__", np.ones(len(batch["__key__"]), bool))
    return [key for row, is_real in zip(batch["__parts__"], real, strict=True) if is_real for key, _, _ in row]


def train(folder: str, end: str) -> tuple[int, list[list[str]]]:
    """Do what training does: a collective in every step, which hangs where ranks differ in their steps."""
    seen = []
    for batch in packed_mixture(folder).loader(8, end=end):
        total = torch.ones(1)
        distributed.all_reduce(total)
        assert total.item() == distributed.get_world_size()
        seen.append(parts(batch))
    return len(seen), seen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("ranks")
    write(path, "a", [300, 0, 200])
    write(path, "b", [150])
    return str(path)


@pytest.mark.parametrize("end", ["pad", "drop"])
def test_ranks_finish_together_over_a_filtered_packed_mixture(folder: str, end: str) -> None:
    results = run_ranks(train, 2, folder, end)
    assert len({steps for steps, _ in results}) == 1
    delivered = [[key for batch in seen for key in batch] for _, seen in results]
    assert len(delivered[1]) < 12 < len(delivered[0]) or end == "drop"
    wanted = [f"a{n:05d}" for n in range(500) if n % 2 == 0 or n == 1]
    wanted += [f"b{n:05d}" for n in range(150) if n % 2 == 0 or n == 1]
    counted = Counter(delivered[0] + delivered[1])
    assert max(counted.values(), default=1) == 1
    if end == "pad":
        assert sorted(counted) == sorted(wanted)
    alone = [parts(batch) for batch in packed_mixture(folder).loader(8, end=end)]
    together = [sorted(a + b) for a, b in zip(results[0][1], results[1][1], strict=True)]
    assert together == [sorted(batch) for batch in alone]


def evaluate(url: str, filtered: bool) -> tuple[int, int]:
    dataset = shoal.read_tar(url).decode()
    if filtered:
        dataset = dataset.filter(lambda sample: sample["cls"] < 1003)
    right = torch.zeros(1, dtype=torch.int64)
    steps = 0
    for batch in dataset.loader(64, to="torch"):
        mask = batch.get("__mask__", torch.ones(len(batch["cls"]), dtype=torch.bool))
        right += mask.sum()
        steps += 1
    distributed.all_reduce(right)
    return int(right), steps


@pytest.mark.parametrize(("samples", "filtered"), [(1003, False), (1500, True)])
def test_evaluation_counts_each_sample_once(tmp_path: Path, samples: int, filtered: bool) -> None:
    url = write(tmp_path, "e", [samples - 500, 500])
    results = run_ranks(evaluate, 4, url, filtered)
    assert [total for total, _ in results] == [1003] * 4
    assert len({steps for _, steps in results}) == 1


def interrupted(folder: str, steps: int, states: list[dict[str, Any]] | None) -> tuple[list[list[str]], dict[str, Any]]:
    loader = packed_mixture(folder).loader(8)
    if states is not None:
        loader.load_state_dict(states)
    seen = []
    for batch in loader:
        seen.append(parts(batch))
        if len(seen) == steps:
            break
    return seen, loader.state_dict()


def test_a_run_goes_on_with_another_number_of_ranks(folder: str) -> None:
    alone = [sorted(parts(batch)) for batch in packed_mixture(folder).loader(8)]
    first = run_ranks(interrupted, 2, folder, 3, None)
    states = json.loads(json.dumps([state for _, state in first]))
    second = run_ranks(interrupted, 3, folder, -1, states)
    together = [sorted(chain.from_iterable(rows)) for rows in zip(*(seen for seen, _ in first), strict=True)]
    together += [sorted(chain.from_iterable(rows)) for rows in zip(*(seen for seen, _ in second), strict=True)]
    assert together == alone


def refused(folder: str) -> str:
    dataset = shoal.read_tar(f"{folder}/a-*.tar").part(0, 2)
    with pytest.raises(PlanError) as caught:
        next(iter(dataset.loader(8)))
    next(iter(dataset.loader(8, rank=0, world_size=1)))
    return str(caught.value)


def test_a_part_is_not_split_again(folder: str) -> None:
    texts = run_ranks(refused, 2, folder)
    assert all("part 0 of 2 already" in text and "one sample in 4" in text for text in texts)
