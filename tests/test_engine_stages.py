"""Stages with workers give what they give without: the same samples, order, batches, digests and states."""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st

import shoal
from shoal.abc import Block, Pool, Sample, Shard
from shoal.errors import SampleError
from shoal.pipeline import Dataset, Loader, mix
from shoal.testing import faults
from support.engine import by_value, forward, held, held_again, numbers, same, wait_until
from support.engine_plans import PLANS, with_pools
from support.lane_models import Case, cases, dataset_of
from support.lane_oracle import Epoch, Hopeless
from support.lane_sources import MemorySource
from support.lengths import first

pytestmark = pytest.mark.filterwarnings("ignore:.* cannot be entered in the middle")

COUNT = 150


@pytest.fixture(autouse=True, scope="module")
def _functions_of_tests_travel_by_value() -> Iterator[None]:
    """Or each worker would import pytest and hypothesis."""
    with by_value(__name__, "support.engine_plans", "support.engine", "support.lane_models", "support.lane_sources"):
        yield


def epoch_of(loader: Loader, stop: int | None = None) -> tuple[list[Sample], list[Any], str]:
    """Run an epoch: the batches, the state after each of them, and the digest."""
    batches, states = [], []
    for batch in islice(loader, stop):
        batches.append(batch)
        states.append(json.loads(json.dumps(loader.state_dict())))
    digest = loader.order_digest()
    loader.close()
    return batches, states, digest


def is_same_epoch(got: tuple[list[Sample], list[Any], str], expected: tuple[list[Sample], list[Any], str]) -> bool:
    """Compare batches, digest and positions; what lanes drew last, which a state also has, may be further ahead."""
    places = [[{name: state[name] for name in _PLACE} for state in states] for _, states, _ in (got, expected)]
    return same(got[0], expected[0]) and places[0] == places[1] and got[2] == expected[2]


_PLACE = ("epoch", "step", "slot", "rank", "world_size", "plan")


def check_same(plain: Dataset, pooled: Dataset, batch_size: int, **options: Any) -> None:
    """Compare epochs, resumes either way, and storage order of one plan without workers and with some."""
    expected = epoch_of(plain.loader(batch_size, workers=0))
    got = epoch_of(pooled.loader(batch_size, **options))
    assert is_same_epoch(got, expected)
    assert same(list(pooled.run(**options)), list(plain.run()))
    if len(expected[0]) > 1:
        middle = len(expected[0]) // 2
        for dataset, others, states in ((plain, {"workers": 0}, got[1]), (pooled, options, expected[1])):
            resumed = dataset.loader(batch_size, **others)
            resumed.load_state_dict(states[middle - 1])
            assert same(epoch_of(resumed)[0], expected[0][middle:])


@pytest.mark.parametrize("workers", [3, (1, 4), pytest.param(1, marks=pytest.mark.long)], ids=str)
@pytest.mark.parametrize("name", PLANS)
def test_threads_make_no_difference(name: str, workers: Any) -> None:
    plain, own = PLANS[name](COUNT, {}), PLANS[name](COUNT, {"workers": workers})
    check_same(plain, plain, 8, workers=workers)
    check_same(plain, own, 8, workers=0)
    check_same(plain, own, 8, workers=2)


@pytest.mark.parametrize("name", first(7, PLANS))
def test_processes_make_no_difference(name: str) -> None:
    plain, own = PLANS[name](COUNT, {}), PLANS[name](COUNT, {"workers": 1, "mode": "process"})
    expected = epoch_of(plain.loader(8, workers=0))
    for dataset, options in ((plain, {"workers": 2, "mode": "process"}), (own, {"workers": 2}), (own, {"workers": 0})):
        assert is_same_epoch(epoch_of(dataset.loader(8, **options)), expected)
    assert same(list(own.run()), list(plain.run()))
    assert same(list(plain.run(workers=1, mode="process")), list(plain.run()))


def test_a_state_of_processes_is_gone_on_from_with_threads_and_back() -> None:
    plain = PLANS["nested mixture"](COUNT, {})
    own = PLANS["nested mixture"](COUNT, {"workers": 1, "mode": "process"})
    batches, states, _ = epoch_of(own.loader(8, workers=2))
    third = len(batches) // 3
    threads = plain.loader(8, workers=2)
    threads.load_state_dict(states[third - 1])
    middle, later, _ = epoch_of(threads, stop=third)
    assert same(middle, batches[third : 2 * third])
    processes = own.loader(8, workers=1, mode="process")
    processes.load_state_dict(later[-1])
    assert same(epoch_of(processes)[0], batches[2 * third :])


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_decoding_and_stages_of_others_have_workers_too(tmp_path: Path, mode: str) -> None:
    with shoal.shards.TarWriter(tmp_path / "a.tar") as writer:
        for number in range(40):
            writer.write({"__key__": f"{number:03}", "npy": np.full((3, 4), number), "cls": number})
    from shoal.pipeline.stages import Map

    raw = shoal.read_tar(tmp_path / "a.tar").shuffle("full", seed=3)
    stage = Map(lambda sample: {**sample, "sum": int(sample["npy"].sum())})
    plain = raw.decode().apply(stage)
    own = raw.decode(workers=2, mode=mode).apply(stage, workers=1, mode=mode).select("sum", "cls")
    check_same(plain.select("sum", "cls"), own, 7, workers=1)
    views = raw.views()
    assert [bytes(each["npy"]) for each in views.run(workers=1)] == [each["npy"] for each in raw.run()]


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
@pytest.mark.parametrize("memory", ["0", "1", "300"])
@pytest.mark.parametrize("name", ["map", "flat_map", "batch", "nested mixture"])
def test_little_memory_is_enough(monkeypatch: pytest.MonkeyPatch, name: str, memory: str, batch_size: int) -> None:
    plain, own = PLANS[name](60, {}), PLANS[name](60, {"workers": 2})
    expected = epoch_of(plain.loader(batch_size, workers=0))
    monkeypatch.setenv("SHOAL_MEMORY", memory)
    assert same(epoch_of(own.loader(batch_size, workers=1))[0], expected[0])
    assert same(list(own.run(workers=1)), list(plain.run()))


# Plans at random


def pools(processes: bool) -> st.SearchStrategy[Pool | None]:
    threads = st.sampled_from([None, None, Pool(1), Pool(3), Pool((1, 3)), Pool(0)])
    return st.one_of(threads, threads, st.just(Pool(1, "process"))) if processes else threads


def options_for(data: st.DataObject, processes: bool) -> dict[str, Any]:
    options = {"workers": data.draw(st.sampled_from([0, 1, 2, (1, 3)]))}
    return {**options, "mode": "process"} if processes and data.draw(st.booleans()) else options


def worth_it(case: Case, slots: int) -> bool:
    """Tell whether a plan comes to an end, or to so many slots, in a time that is known."""
    epoch = Epoch(case.model, case.lanes, 0, wrap=case.wrap)
    try:
        for slot in range(slots):
            epoch.at(slot)
    except Hopeless:
        return False
    return True


def check_any(data: st.DataObject, *, processes: bool = False) -> None:
    case, size = data.draw(cases()), data.draw(st.sampled_from([1, 3, 8, 40]))
    steps = data.draw(st.sampled_from([5, 12])) if case.endless else None
    if not worth_it(case, (steps or 0) * size + 4 * case.lanes + 400):
        reject()
    options = {"steps": steps, "end": "wrap" if case.wrap else "pad"}
    plain = dataset_of(case.model).lanes(case.lanes)
    expected, states, digest = epoch_of(plain.loader(size, workers=0, **options))
    chosen = pools(processes)
    for _ in range(2):
        pooled, own = with_pools(plain, lambda: data.draw(chosen)), options_for(data, processes)
        note(f"{own}: {pooled!r}")
        loader, begin = pooled.loader(size, **own, **options), 0
        if expected and data.draw(st.booleans()):
            begin = data.draw(st.integers(1, len(expected)))
            loader.load_state_dict(states[begin - 1])
        got = epoch_of(loader)
        assert is_same_epoch(got, (expected[begin:], states[begin:], digest if begin < len(expected) else got[2]))
        if data.draw(st.booleans()):
            states = [*states[:begin], *got[1]]


@pytest.mark.soak
@settings(max_examples=settings.default.max_examples // 2)
@given(data=st.data())
def test_any_plan_with_threads_anywhere(data: st.DataObject) -> None:
    check_any(data)


@pytest.mark.soak
@settings(max_examples=max(settings.default.max_examples // 20, 8))
@given(data=st.data())
def test_any_plan_with_processes_anywhere(data: st.DataObject) -> None:
    check_any(data, processes=True)


# Workers that are killed


def slow_double(sample: Sample) -> Sample:
    time.sleep(0.001)
    return {**sample, "n": 2 * sample["n"]}


def kill_a_worker(number: int) -> None:
    """Kill one of the workers of this process, by turns; other tests may have left children of another kind."""
    there = faults.workers()
    with suppress(ProcessLookupError):  # it may have been killed before, and is just being replaced
        if there:
            os.kill(there[number % len(there)], signal.SIGKILL)


def check_killed(count: int, kills: int) -> None:
    """Kill workers from another thread, all over an epoch, and compare with one that was left in peace."""

    def plan(**own: Any) -> Dataset:
        trained = numbers(count).map(slow_double, **own).map(jittered, random=True)
        return mix([trained, forward(count // 3)], [3, 1], exhausted="drop").map(jittered, random=True, **own)

    expected = list(plan().loader(16, workers=0))
    before = held()
    loader, got = plan(workers=2, mode="process").loader(16, workers=1), []
    every = len(expected) // (kills + 1)
    for number, batch in enumerate(loader, 1):
        got.append(batch)
        if number % every == 0 and number // every <= kills:
            killer = threading.Thread(target=kill_a_worker, args=(number // every,))
            killer.start()
    assert same(got, expected)
    deaths = {stage.pool: stage.deaths for stage in loader.statistics().stages}
    assert kills // 2 <= sum(deaths.values()) <= kills  # one that had nothing to do is not missed before it is needed
    assert held_again(before)


def jittered(sample: Sample, rng: np.random.Generator) -> Sample:
    return {**sample, "noise": rng.normal()}


def test_killed_workers_change_nothing() -> None:
    check_killed(1200, 3)


@pytest.mark.soak
@pytest.mark.slow
def test_fifty_killed_workers_change_nothing() -> None:
    check_killed(12_000, 50)


def fatal(key: str) -> Callable[[Sample], Sample]:
    def die_of_it(sample: Sample) -> Sample:
        if sample["__key__"] == key:
            os.kill(os.getpid(), signal.SIGKILL)
        return {**sample, "n": sample["n"] + 1}

    return die_of_it


def test_a_sample_that_kills_its_worker_is_named() -> None:
    dataset = numbers(100, shard=30).map(fatal("k47"), workers=2, mode="process")
    before = held()
    for samples in (dataset.run(), dataset.loader(10, workers=1)):
        with pytest.raises(SampleError, match=r"memory-1.*'k47'") as caught:
            list(samples)
        assert (caught.value.key, caught.value.shard) == ("k47", "memory-1")
        assert "SIGKILL" in str(caught.value)
        del caught
    assert held_again(before)


SHAPES: dict[str, Callable[[Callable[[Sample], Sample], dict[str, Any]], Dataset]] = {
    "straight": lambda work, own: numbers(100, shard=30).map(work, **own).map(jittered, random=True),
    "random behind it": lambda work, own: (
        numbers(100, shard=30).map(jittered, random=True).map(work, **own).map(jittered, random=True)
    ),
    "behind a mixture": lambda work, own: (
        mix(
            [numbers(100, shard=30), numbers(50).filter(lambda s: s["__key__"] not in ("k47",))],
            [1, 1],
            exhausted="drop",
        )
        .map(work, **own)
        .map(jittered, random=True)
    ),
    "behind a mixture of mixtures": lambda work, own: mix(
        [mix([numbers(100, shard=30)]).flat_map(lambda s: [s]), forward(30)], [1, 1], exhausted="drop"
    ).map(work, **own),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_sample_that_kills_its_worker_is_left_out_and_noted(shape: str) -> None:
    def raises(sample: Sample) -> Sample:
        if sample["__key__"] == "k47":
            raise ValueError("no")
        return {**sample, "n": sample["n"] + 1}

    plain = SHAPES[shape](raises, {})
    dataset = SHAPES[shape](fatal("k47"), {"workers": 1, "mode": "process"})
    for run, expected in (
        (dataset.run(on_error="skip"), plain.run(on_error="skip")),
        (dataset.loader(10, workers=1, on_error="skip"), plain.loader(10, workers=0, on_error="skip")),
    ):
        assert same(list(run), list(expected))
        (failure,) = run.ledger
        (twin,) = expected.ledger
        assert failure.key == "k47"
        assert (failure.shard, failure.offset, failure.at) == (twin.shard, twin.offset, twin.at)
        assert failure.error == "SampleError"
        assert "SIGKILL" in failure.message


def test_a_worker_that_dies_behind_a_batch_names_what_it_had() -> None:
    def die_of_one(batch: Sample) -> Sample:
        if "k20" in batch["__key__"]:
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    dataset = numbers(40).batch(4).map(die_of_one, workers=1, mode="process")
    with pytest.raises(SampleError, match="k20"):
        list(dataset.run())
    run = dataset.run(on_error="skip", error_budget=3)
    assert [key for batch in run for key in batch["__key__"]] == [f"k{n}" for n in range(40) if n // 4 != 5]
    assert len(run.ledger) == 1


# Sources and callables that fail


class Failing(MemorySource):
    """Breaks off in the middle of its third shard."""

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        for number, block in enumerate(super().open(shard, start)):
            if shard.url.endswith("-2") and number == 1:
                raise OSError("the disk is gone")
            yield block

    seekable = False


@pytest.mark.parametrize("options", [{}, {"workers": 2}, {"workers": 1, "mode": "process"}], ids=str)
def test_what_was_read_before_a_source_failed_is_delivered(options: dict[str, Any]) -> None:
    plan = numbers(100, shard=20, source=Failing).map(slow_double)
    got: list[str] = []
    before = held()
    with pytest.raises(OSError, match="the disk is gone"):
        got.extend(sample["__key__"] for sample in plan.run(**options))
    assert got == [f"k{number}" for number in range(47)]
    loader, batches = plan.lanes(1).loader(5, **{"workers": 0, **options}), []
    with pytest.raises(OSError, match="the disk is gone"):
        batches.extend(batch["__key__"] for batch in loader)
    assert [key for keys in batches for key in keys] == [f"k{number}" for number in range(45)]
    assert wait_until(lambda: held() == before)


@pytest.mark.parametrize("options", [{}, {"workers": 2}, {"workers": 1, "mode": "process"}], ids=str)
def test_an_error_comes_behind_the_samples_before_it(options: dict[str, Any]) -> None:
    def refuse(sample: Sample) -> Sample:
        if sample["n"] == 63:
            raise ValueError("63 is too many")
        return sample

    run, got = numbers(200, shard=20).map(refuse).run(**options), []
    with pytest.raises(ValueError, match="63 is too many") as caught:
        got.extend(sample["n"] for sample in run)
    assert got == list(range(60))  # the blocks before it
    assert any("at sample 'k63' of shard memory-3" in each for each in caught.value.__notes__)


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("make", [numbers, forward])
def test_an_error_comes_behind_the_batches_that_do_not_need_its_block(make: Any, workers: int) -> None:
    def refuse(sample: Sample) -> Sample:
        if sample["n"] == 1500:
            raise ValueError("1500 is too many")
        return sample

    expected, got = make(2000).loader(10, workers=0), []
    with pytest.raises(ValueError, match="1500 is too many"):
        got.extend(make(2000).map(refuse).loader(10, workers=workers))
    assert same(got, list(islice(expected, len(got))))
    assert 100 < len(got) <= 150


def test_an_error_behind_a_batch_comes_when_it_is_needed() -> None:
    def refuse(batch: Sample) -> Sample:
        if 900 in batch["n"].tolist():
            raise ValueError("900 is too many")
        return batch

    counts = []
    for workers in (0, 3):
        batches = []
        with pytest.raises(ValueError, match="900 is too many"):
            batches.extend(numbers(2000).batch(3).map(refuse).loader(4, workers=workers))
        counts.append(len(batches))
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 2}, {"workers": 1, "mode": "process"}], ids=str)
def test_errors_of_the_one_who_decides_about_errors_end_the_run(options: dict[str, Any]) -> None:
    def refuse(sample: Sample) -> Sample:
        raise KeyError(sample["n"])

    def decide(failure: Any) -> bool:
        raise RuntimeError(f"cannot decide about {failure.key}")

    before = held()
    dataset = numbers(30).map(refuse)
    for samples in (dataset.run(on_error=decide, **options), dataset.loader(4, on_error=decide, **options)):
        with pytest.raises(RuntimeError, match="cannot decide about k0"):
            list(samples)
    for samples in (dataset.run(on_error=bool_of(False), **options), dataset.loader(4, on_error=bool_of(0), **options)):
        with pytest.raises(KeyError, match="0"):
            list(samples)
    assert held_again(before)


def bool_of(value: Any) -> Callable[[Any], Any]:
    return lambda failure: value


# Several at once


def test_two_loaders_of_one_dataset_do_not_disturb_each_other() -> None:
    dataset = PLANS["flat_map"](COUNT, {"workers": 2})
    expected = list(dataset.loader(8, workers=0))
    one, other = iter(dataset.loader(8, workers=2)), iter(dataset.loader(8, workers=1, mode="process"))
    pairs = list(zip(one, other, strict=True))
    assert same([first for first, _ in pairs], expected)
    assert same([second for _, second in pairs], expected)


def test_two_runs_of_one_dataset_do_not_disturb_each_other() -> None:
    dataset = PLANS["nested mixture"](COUNT, {"workers": 2})
    pairs = list(zip(dataset.run(workers=2), dataset.run(), strict=True))
    assert all(same(one, other) for one, other in pairs)


def test_a_loader_can_be_iterated_in_a_thread() -> None:
    loader = PLANS["pack"](COUNT, {"workers": 2, "mode": "process"}).loader(4, workers=2)
    before, got = held(), []
    thread = threading.Thread(target=lambda: got.extend(loader))
    thread.start()
    thread.join(100)
    assert same(got, list(PLANS["pack"](COUNT, {}).loader(4, workers=0)))
    assert held_again(before)


def test_a_loader_that_is_pickled_in_the_middle_goes_on_from_there() -> None:
    loader = PLANS["mixture"](COUNT, {"workers": 2}).loader(8, workers=2)
    expected = list(PLANS["mixture"](COUNT, {}).loader(8, workers=0))
    batches = iter(loader)
    assert same([next(batches), next(batches)], expected[:2])
    copy = pickle.loads(pickle.dumps(loader))
    assert same(list(copy), expected[2:])
    assert same(list(batches), expected[2:])


def test_iterating_a_loader_anew_ends_the_iteration_before() -> None:
    before = held()
    loader = numbers(200).map(slow_double, workers=2).loader(8, workers=2)
    first = iter(loader)
    next(first)
    second = iter(loader)
    assert list(first) == []
    assert len(list(second)) == 25
    assert held_again(before)
