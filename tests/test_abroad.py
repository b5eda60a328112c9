"""Stages and shards whose functions run in another environment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from shoal.abc import Sample
from shoal.data import XShards
from shoal.environments import Abroad
from shoal.errors import GuestError, WorkerEnvironmentError
from support.clusters import running
from support.engine import by_value, numbers
from support.guests import bare_environment


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__):
        yield
    Abroad.close()


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment without any of our libraries but those that it borrows: another Python for all it knows."""
    return bare_environment(tmp_path_factory.mktemp("elsewhere") / "venv")


def prefix_of(sample: Sample) -> Sample:
    return {**sample, "prefix": sys.prefix}


class Adder:
    """Counts how often it is called, and adds a number."""

    def __init__(self, more: int) -> None:
        self.more, self.calls = more, 0

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        self.calls += 1
        return {**sample, "n": sample["n"] + self.more, "calls": self.calls}


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_stage_runs_elsewhere(elsewhere: Path, mode: str) -> None:
    found = list(numbers(40).map(prefix_of, environment=elsewhere, workers=2, mode=mode).run())
    assert [sample["n"] for sample in found] == list(range(40))
    assert {sample["prefix"] for sample in found} == {str(elsewhere)}


def test_a_class_is_built_once_by_each_guest(elsewhere: Path) -> None:
    stage = numbers(20).map(Adder, arguments={"more": 100}, environment=elsewhere, workers=1)
    found = list(stage.run())
    assert [sample["n"] for sample in found] == list(range(100, 120))
    assert [sample["calls"] for sample in found] == list(range(1, 21))


def test_a_predicate_and_one_that_makes_several(elsewhere: Path) -> None:
    odd = numbers(10).filter(lambda sample: sample["n"] % 2 == 1, environment=elsewhere)
    assert [sample["n"] for sample in odd.run()] == [1, 3, 5, 7, 9]
    twice = numbers(2).flat_map(lambda sample: [sample, {**sample, "n": -1}], environment=elsewhere)
    assert [sample["n"] for sample in twice.run()] == [0, -1, 1, -1]


def test_what_goes_wrong_elsewhere_is_told_with_its_sample(elsewhere: Path) -> None:
    def fails(sample: Sample) -> Sample:
        raise KeyError(sample["__key__"])

    with pytest.raises(Exception, match="k0") as caught:
        list(numbers(3).map(fails, environment=elsewhere).run())
    assert any(isinstance(error, GuestError) for error in (caught.value, caught.value.__cause__))


@pytest.mark.parametrize("engine", ["local", "dask"])
def test_shards_are_treated_elsewhere(engine: str, tmp_path: Path) -> None:
    """With numpy and pandas, which this environment has from ours."""
    folder = bare_environment(tmp_path / "venv")
    (packages,) = folder.glob("lib/python3.*/site-packages")
    (packages / "ours.pth").write_text(str(Path(np.__file__).parents[1]))
    with running(engine, workers=2):
        shards = XShards.from_shards([pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [3]})])
        made = shards.transform_shard(
            lambda frame, by: frame.assign(b=frame["a"] * by, at=sys.prefix), 10, environment=folder
        )
        frames = made.collect()
    assert [frame["b"].tolist() for frame in frames] == [[10, 20], [30]]
    assert {place for frame in frames for place in frame["at"]} == {str(folder)}


def test_a_named_function_needs_no_pickle(elsewhere: Path) -> None:
    assert Abroad("math:hypot", elsewhere)(3, 4) == 5.0
    assert XShards.from_shards([[3, 1, 2]]).transform_shard("builtins:sorted", environment=elsewhere).collect() == [
        [1, 2, 3]
    ]


def test_a_missing_environment_is_told_when_the_plan_is_made() -> None:
    with pytest.raises(WorkerEnvironmentError, match="there is no environment 'nowhere'"):
        numbers(1).map(prefix_of, environment="nowhere")
