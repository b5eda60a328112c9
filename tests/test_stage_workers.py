"""Who does a stage: classes that workers build, what each of them uses, and where Ray lets it be done."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.abc import Pool
from shoal.errors import PlanError
from support.clusters import running
from support.devices import Far, doubled
from support.engine import by_value, numbers


class Adder:
    """Takes long to build, as a model does, and counts how often it was."""

    built: list[int] = []

    def __init__(self, more: int = 1, log: str | None = None) -> None:
        self.more, self.calls = more, 0
        Adder.built.append(threading.get_ident())
        if log is not None:
            Path(log, f"{os.getpid()}-{len(Adder.built)}").touch()

    def __call__(self, sample: Any) -> Any:
        self.calls += 1
        return {"n": sample["n"] + self.more, "calls": self.calls, "pid": os.getpid()}


@pytest.fixture(autouse=True)
def _forget() -> None:
    Adder.built.clear()


def test_a_class_is_built_once() -> None:
    found = list(numbers(200).map(Adder, arguments={"more": 5}))
    assert [sample["n"] for sample in found] == list(range(5, 205))
    assert found[-1]["calls"] == 200
    assert len(Adder.built) == 1


def test_each_worker_builds_its_own() -> None:
    found = list(numbers(2000).map(Adder, workers=3).run(workers=2))
    assert [sample["n"] for sample in found] == list(range(1, 2001))
    assert 1 <= len(Adder.built) == len(set(Adder.built)) <= 3


def test_each_process_builds_its_own(tmp_path: Path) -> None:
    with by_value(__name__):
        found = list(numbers(2000).map(Adder, arguments={"log": str(tmp_path)}, workers=2, mode="process"))
    assert [sample["n"] for sample in found] == list(range(1, 2001))
    assert Adder.built == []
    assert {int(path.name.partition("-")[0]) for path in tmp_path.iterdir()} == {sample["pid"] for sample in found}
    assert len(list(tmp_path.iterdir())) <= 2


def test_classes_filter_and_spread_too() -> None:
    class Keep:
        def __init__(self, of: int) -> None:
            self.of = of

        def __call__(self, sample: Any) -> bool:
            return bool(sample["n"] % self.of == 0)

    class Twice:
        def __call__(self, sample: Any) -> Iterator[Any]:
            yield from [sample, sample]

    dataset = numbers(10).filter(Keep, arguments={"of": 5}).flat_map(Twice)
    assert [sample["n"] for sample in dataset] == [0, 0, 5, 5]
    assert "filter(test_classes_filter_and_spread_too.<locals>.Keep)" in repr(dataset)


def test_classes_that_are_functions_stay_functions() -> None:
    assert [sample["n"] for sample in numbers(3).map(dict)] == [0, 1, 2]
    with pytest.raises(PlanError, match=r"for a class with a __call__, and dict is none; use functools\.partial"):
        numbers(3).map(dict, arguments={"a": 1})


def test_what_building_raises_names_the_stage() -> None:
    with pytest.raises(TypeError, match="more_or_less") as caught:
        list(numbers(3).map(Adder, arguments={"more_or_less": 1}))
    assert "in stage map(Adder)" in "\n".join(caught.value.__notes__)


class OnDevice:
    device = "cpu"

    def __call__(self, batch: Any) -> Any:
        import torch

        assert isinstance(batch["x"], torch.Tensor)
        assert batch["x"].device == torch.device(self.device)
        return {"y": batch["x"].float() * 2, "half": batch["x"].bfloat16(), "words": batch["words"]}


def test_batches_go_to_the_device_that_is_asked_for() -> None:
    dataset = numbers(10).map(lambda sample: {"x": np.full(3, sample["n"]), "words": "a"}).batch(4).map(OnDevice)
    found = list(dataset)
    assert [batch["y"].shape for batch in found] == [(4, 3), (4, 3), (2, 3)]
    assert isinstance(found[0]["y"], np.ndarray)
    assert found[0]["y"][3].tolist() == [6, 6, 6]
    assert type(found[0]["half"]).__name__ == "Tensor"
    assert found[0]["words"] == ["a"] * 4


def test_as_many_workers_as_fit() -> None:
    processors = os.cpu_count() or 1
    assert Pool("auto", cpus=2).bounds[1] == max(processors // 2, 1)
    assert Pool("auto", cpus=1000).bounds == (1, 1)
    with pytest.raises(PlanError, match=r"cpus=-1"):
        Pool(cpus=-1)
    with pytest.raises(PlanError, match=r"gpus=-1"):
        numbers(1).map(dict, gpus=-1)


def test_no_more_work_at_once_than_was_asked_for() -> None:
    lock, running, most = threading.Lock(), [0], [0]

    def counted(sample: Any) -> Any:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.001)
        with lock:
            running[0] -= 1
        return sample

    assert len(list(numbers(600, shard=20).map(counted, workers=2))) == 600
    assert most[0] == 2


def test_functions_have_a_range_of_workers_too() -> None:
    assert [sample["n"] for sample in numbers(100).map(dict, workers=(1, 4))] == list(range(100))


def test_gpus_that_are_not_there_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(PlanError, match=r"map\(dict\) want 2 gpus at once, and this machine has 1"):
        list(numbers(1).map(dict, workers=2, gpus=1))
    assert len(list(numbers(3).map(dict, workers=1, gpus=1, mode="thread"))) == 3


@pytest.fixture(scope="module")
def on_ray() -> Iterator[None]:
    modules = (__name__, "support.devices", "support.lane_sources", "support.engine")
    with running("ray", workers=2, num_gpus=1), by_value(*modules):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("on_ray")
class TestOnRay:
    """Stages in processes are actors, the order is the same, and without an order Ray Data runs everything."""

    def test_a_stage_in_processes_is_done_by_actors(self, tmp_path: Path) -> None:
        dataset = numbers(1000).map(Adder, arguments={"log": str(tmp_path)}, workers=2, mode="process", cpus=0.5)
        found = list(dataset)
        assert [sample["n"] for sample in found] == list(range(1, 1001))
        assert os.getpid() not in {sample["pid"] for sample in found}
        assert 1 <= len(list(tmp_path.iterdir())) <= 2

    def test_a_range_of_workers_stays_within_it(self, tmp_path: Path) -> None:
        dataset = numbers(4000).map(Adder, arguments={"log": str(tmp_path)}, workers=(1, 2), mode="process", cpus=0.1)
        assert len(list(dataset)) == 4000
        assert 1 <= len(list(tmp_path.iterdir())) <= 2

    def test_a_feed_keeps_its_order_and_resumes(self) -> None:
        def loader() -> Any:
            stage = {"workers": 2, "mode": "process", "cpus": 0.1}
            return numbers(500).shuffle("full", seed=7).map(Adder, **stage).loader(16)

        plain = [batch["n"].tolist() for batch in numbers(500).shuffle("full", seed=7).map(Adder).loader(16)]
        first = loader()
        batches = iter(first)
        begun = [next(batches)["n"].tolist() for _ in range(11)]
        state = first.state_dict()
        batches.close()
        second = loader()
        second.load_state_dict(state)
        assert begun + [batch["n"].tolist() for batch in second] == plain

    def test_an_actor_that_is_killed_changes_nothing(self, tmp_path: Path) -> None:
        def fatal(sample: Any) -> Any:
            if sample["n"] == 150 and not (tmp_path / "died").exists():
                (tmp_path / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return sample

        found = list(numbers(300).map(fatal, workers=1, mode="process", cpus=0.1))
        assert [sample["n"] for sample in found] == list(range(300))
        assert (tmp_path / "died").exists()

    def test_errors_of_actors_name_stage_and_sample(self) -> None:
        def broken(sample: Any) -> Any:
            return {"n": 1 / (sample["n"] - 70)}

        with pytest.raises(ZeroDivisionError) as caught:
            list(numbers(100).map(broken, workers=1, mode="process", cpus=0.1))
        assert "at sample 'k70'" in "\n".join(caught.value.__notes__)

    def test_an_actor_takes_samples_to_its_device_and_back(self) -> None:
        class Placed:
            def __call__(self, sample: Any) -> Any:
                return {**doubled(sample), "gpus": os.environ["CUDA_VISIBLE_DEVICES"], "pid": os.getpid()}

        device = Far()
        arrays = numbers(200).map(lambda sample: {**sample, "x": np.full(3, sample["n"])}).batch(10)
        found = list(arrays.map(Placed, device=device, workers=1, gpus=0.5, cpus=0.1))
        assert [batch["x"][0, 0] for batch in found] == [2 * n for n in range(0, 200, 10)]
        assert {batch["gpus"] for batch in found} == {"0"}
        assert os.getpid() not in {batch["pid"] for batch in found}
        assert device.log == []

    def test_ray_data_takes_samples_to_devices_and_back(self) -> None:
        arrays = numbers(100, shard=50).map(lambda sample: {**sample, "x": np.full(3, sample["n"])})
        twice = arrays.map(doubled, device=Far()).map(doubled, device=Far(), workers=1, cpus=0.1).on(Far())
        assert sorted(int(sample["x"][0]) for sample in twice.unordered()) == [4 * n for n in range(100)]

    def test_without_an_order_ray_data_runs_it(self, tmp_path: Path) -> None:
        stage = {"arguments": {"log": str(tmp_path)}, "workers": (1, 2), "cpus": 0.1}
        dataset = numbers(1000, shard=100).filter(lambda sample: sample["n"] % 2 == 0).map(Adder, **stage)
        run = dataset.unordered().run()
        found = list(run)
        assert sorted(sample["n"] for sample in found) == list(range(1, 1000, 2))
        assert os.getpid() not in {sample["pid"] for sample in found}
        assert 1 <= len(list(tmp_path.iterdir())) <= 2
        assert run.statistics().samples == 500

    def test_random_stages_draw_the_same_in_any_order(self) -> None:
        def drawn(sample: Any, rng: np.random.Generator) -> Any:
            return {"n": sample["n"], "x": rng.random()}

        dataset = numbers(300, shard=50).map(drawn, random=True)
        expected = {sample["n"]: sample["x"] for sample in dataset}
        assert {sample["n"]: sample["x"] for sample in dataset.unordered()} == expected

    def test_ray_data_names_what_failed(self) -> None:
        def broken(sample: Any) -> Any:
            return {"n": 1 / (sample["n"] - 170)}

        dataset = numbers(300).unordered().map(broken)
        with pytest.raises(ZeroDivisionError) as caught:
            list(dataset)
        assert "at sample 'k170'" in "\n".join(caught.value.__notes__)
        run = dataset.run(on_error="skip")
        assert len(list(run)) == 299
        (failure,) = run.ledger
        assert (failure.key, failure.offset) == ("k170", 20)
