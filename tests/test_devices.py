"""Stages that compute on a device: what is moved when, who waits for what, and that nothing else changes."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shoal.abc import Device, Pool, Sample, Step
from shoal.engines.local import LocalEngine
from shoal.errors import MissingDeviceError, PlanError
from shoal.pipeline import Dataset, mix
from shoal.pipeline._torch import Device as TorchDevice
from shoal.pipeline._torch import _can_pin
from shoal.pipeline._torch_streams import Streams
from shoal.pipeline.statistics import StageStatistics, Statistics
from support.devices import Far, doubled, plain
from support.engine import Goods, by_value, held, held_again, numbers, same

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True, scope="module")
def _functions_of_tests_travel_by_value() -> Iterator[None]:
    with by_value(__name__, "support.devices", "support.engine", "support.lane_sources"):
        yield


def arrays(count: int, **options: Any) -> Dataset:
    return numbers(count, **options).map(with_array)


def with_array(sample: Sample) -> Sample:
    return {**sample, "x": np.full(3, sample["n"])}


#: What comes before a stage on a device: samples, samples of which some are gone, batches.
BEFORE = {
    "straight": lambda: arrays(90),
    "lanes": lambda: arrays(90).filter(lambda sample: sample["n"] % 3 != 0),
    "batches": lambda: arrays(90).batch(4),
    "batches of some": lambda: arrays(90).filter(lambda sample: sample["n"] % 3 != 0).batch(4),
}
POOLS = {"none": {}, "threads": {"workers": 2}, "processes": {"workers": 2, "mode": "process"}}


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("workers", [0, 2])
def test_samples_are_taken_there_and_back(before: str, pool: str, workers: int) -> None:
    device = Far()
    dataset = BEFORE[before]().map(doubled, device=device, **POOLS[pool]).map(plain)
    loader = dataset.loader(2, workers=workers)
    found = [row.tolist() for batch in loader for row in batch["x"]]
    expected = BEFORE[before]().map(lambda sample: {**sample, "x": 2 * sample["x"] + 1})
    assert found == [row.tolist() for batch in expected.loader(2) for row in batch["x"]]
    if pool != "processes":
        assert device.count("there") == device.count("back") > 0
    assert [sample["x"].tolist() for sample in dataset.run(workers=workers)] == [s["x"].tolist() for s in expected]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pools", [({}, {}), ({"workers": 1}, {"workers": 2}), ({}, {"workers": 1})])
def test_neighbours_leave_samples_where_they_are(pools: Any, workers: int) -> None:
    device = Far()
    first, second = pools
    dataset = arrays(40).map(doubled, device=device, **first).map(doubled, device=device, **second)
    found = list(dataset.filter(lambda sample: sample["n"] % 2 == 0, device=device).map(plain).run(workers=workers))
    assert [sample["x"][0] for sample in found] == [4 * n + 1 for n in range(0, 40, 2)]
    assert device.count("there") == 40
    assert device.count("back") == 20


def test_devices_of_one_name_are_the_same_and_others_are_not() -> None:
    here, twin, other = Far("far:0"), Far("far:0"), Far("far:1")
    dataset = arrays(20).map(doubled, device=here).map(doubled, device=twin).map(doubled, device=other)
    assert [sample["x"][0] for sample in dataset.run(workers=2)] == [8 * n for n in range(20)]
    assert (here.count("there"), twin.count("there"), other.count("there")) == (20, 0, 20)
    assert (here.count("back"), other.count("back")) == (20, 20)


def test_what_one_sample_becomes_may_be_many() -> None:
    def copies(sample: Sample) -> Iterator[Sample]:
        for number in range(sample["n"] % 3):
            yield {"x": sample["x"].times(number + 1)}

    device = Far()
    dataset = arrays(30).flat_map(copies, device=device).map(doubled, device=device)
    expected = [2 * n * (number + 1) for n in range(30) for number in range(n % 3)]
    assert [int(sample["x"][0]) for sample in dataset.run(workers=2)] == expected
    assert (device.count("there"), device.count("back")) == (30, len(expected))


def test_one_process_moves_once_for_all_its_stages() -> None:
    device = Far()
    dataset = arrays(60).map(doubled, device=device).map(doubled, device=device)
    found = [row[0] for batch in dataset.loader(8, workers=1, mode="process") for row in batch["x"].tolist()]
    assert found[:60] == [4 * n for n in range(60)]
    assert device.log == []


class Model:
    """Knows where and in which thread it was built."""

    built: list[tuple[bool, int]] = []

    def __init__(self, device: Any, factor: int = 2) -> None:
        self.factor = factor
        Model.built.append((device.is_building(), threading.get_ident()))

    def __call__(self, batch: Sample) -> Sample:
        return {**batch, "x": batch["x"].times(self.factor), "thread": threading.get_ident()}


@pytest.mark.parametrize("workers", [1, 3])
def test_a_class_is_built_there_once_by_each_worker(workers: int) -> None:
    Model.built.clear()
    device = Far()
    arguments = {"device": device, "factor": 5}
    dataset = arrays(300).batch(3).map(Model, arguments=arguments, device=device, workers=workers)
    found = list(dataset.run(workers=2))
    assert [batch["x"][0, 0] for batch in found] == [5 * n for n in range(0, 300, 3)]
    assert all(there for there, _ in Model.built)
    threads = [thread for _, thread in Model.built]
    assert len(threads) == len(set(threads)) <= workers
    assert {batch["thread"] for batch in found} <= set(threads) == set(device.builders)


class Scaled:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, batch: Sample) -> Sample:
        return {**batch, "x": batch["x"].times(self.factor)}


def test_a_class_is_built_there_in_processes_too() -> None:
    dataset = arrays(40).batch(4).map(Scaled, arguments={"factor": 3}, device=Far(), workers=2, mode="process")
    assert [batch["x"][0, 0] for batch in dataset] == [3 * n for n in range(0, 40, 4)]


@pytest.mark.parametrize("size", [None, 4])
def test_the_next_are_moved_while_some_are_computed(size: int | None) -> None:
    device, waited = Far(), [0]
    dataset = arrays(1200) if size is None else arrays(1200).batch(size).lanes(4)
    count = 1200 // (size or 1)

    def patient(sample: Sample) -> Sample:
        # One parcel goes ahead, to tell how large they are; behind the last there is none.
        if device.count("back") > 0 and device.count("ready") < count:
            assert device.await_until(lambda: device.count("there") > device.count("ready"))
            waited[0] += 1
        return doubled(sample)

    loader = dataset.map(patient, device=device, workers=1).loader(1, workers=1)
    assert sum(int(batch.get("__mask__", np.ones(1)).sum()) for batch in loader) == count
    assert waited[0] > 0


def test_no_more_is_moved_than_can_be_used_soon() -> None:
    begun, done, lock = [0], [0], threading.Condition()

    def first(goods: Goods) -> Goods:
        with lock:
            begun[0] += 1
            assert begun[0] - done[0] <= 3  # this one, one that waits, and one that is computed with
            lock.notify_all()
        return goods

    def second(goods: Goods) -> Goods:
        with lock:
            assert lock.wait_for(lambda: begun[0] >= min(done[0] + 3, 20), 60)
            done[0] += 1
        return goods

    steps = [Step("move", first, Pool(1), room=2), Step("compute", second, Pool(1))]
    stream = LocalEngine().stream(steps, memory=2**30, ahead=20)
    for number in range(20):
        stream.put(Goods(number))
    assert [stream.get().number for _ in range(20)] == list(range(20))
    stream.close()


@pytest.mark.parametrize("before", BEFORE)
def test_a_run_that_is_left_leaves_nobody_waiting(before: str) -> None:
    device, gate = Far(), threading.Event()
    baseline = held()

    def stuck(sample: Sample) -> Sample:
        assert gate.wait(60)
        return doubled(sample)

    loader = BEFORE[before]().map(stuck, device=device, workers=1).loader(1, workers=1)
    batches = iter(loader)
    thread = threading.Thread(target=lambda: next(batches, None))
    thread.start()
    assert device.await_until(lambda: device.count("ready") > 0)
    gate.set()
    thread.join()
    loader.close()
    assert held_again(baseline)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 2}, {"workers": 1, "mode": "process"}])
def test_a_resume_in_the_middle_is_exact(before: str, options: Any) -> None:
    def loader(**device: Any) -> Any:
        return BEFORE[before]().shuffle("full", seed=3).map(doubled, **device).loader(3, **options)

    device = {"device": Far()}
    whole = list(loader(**device))
    first = loader(**device)
    begun = list(islice(first, 4))
    state = json.loads(json.dumps(first.state_dict()))
    first.close()
    second = loader(**device)
    second.load_state_dict(state)
    assert same(begun + list(second), whole)


def test_states_do_not_know_of_devices() -> None:
    dataset = arrays(40).map(doubled_here)
    first = dataset.loader(4)
    begun = list(islice(first, 3))
    state = json.loads(json.dumps(first.state_dict()))
    first.close()
    for moved in (arrays(40).map(doubled_here, device="cpu"), dataset.on("cpu")):
        second = moved.loader(4)
        second.load_state_dict(state)
        found = [np.asarray(batch["n"]) for batch in [*begun, *second]]
        assert np.concatenate(found).tolist() == list(range(40))


def doubled_here(sample: Sample) -> Sample:
    return {**sample, "x": sample["x"] * 2}


@pytest.mark.parametrize("pool", POOLS)
def test_errors_name_sample_stage_and_shard(pool: str) -> None:
    def broken(sample: Sample) -> Sample:
        return {**sample, "x": sample["x"].times(1 // (sample["n"] - 70))}

    with pytest.raises(ZeroDivisionError) as caught:
        list(arrays(100).map(broken, device=Far(), **POOLS[pool]).run(workers=1))
    notes = "\n".join(caught.value.__notes__)
    assert "in stage map(test_errors_name_sample_stage_and_shard.<locals>.broken)" in notes
    assert "at sample 'k70' of shard memory-1" in notes


class Picky(Far):
    def there(self, sample: Sample) -> Sample:
        if sample["n"] == 33:
            raise MemoryError("there is no room left")
        return super().there(sample)


def test_errors_of_moving_name_the_device_and_the_sample() -> None:
    with pytest.raises(MemoryError) as caught:
        list(arrays(50).map(doubled, device=Picky()).run(workers=1))
    assert "in stage to far:0, at sample 'k33' of shard memory-0" in "\n".join(caught.value.__notes__)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("workers", [0, 2])
def test_samples_that_fail_are_skipped(pool: str, workers: int) -> None:
    def broken(sample: Sample) -> Sample:
        return {**sample, "x": sample["x"].times(1 if sample["n"] % 20 else sample["missing"])}

    loader = arrays(100).map(broken, device=Far(), **POOLS[pool]).map(plain).loader(
        4, on_error="skip", error_budget=10, workers=workers
    )  # fmt: skip
    kept = [n for batch in loader for n in batch["n"].tolist()]
    assert sorted(set(kept)) == [n for n in range(100) if n % 20]
    assert sorted(failure.key for failure in loader.ledger) == ["k0", "k20", "k40", "k60", "k80"]
    assert {failure.error for failure in loader.ledger} == {"KeyError"}


def test_batches_that_fail_are_skipped() -> None:
    def broken(batch: Sample) -> Sample:
        if 42 in batch["n"].at("far:0"):
            raise ValueError("it has a 42")
        return doubled(batch)

    run = arrays(80).batch(4).map(broken, device=Far()).run(workers=2, on_error="skip", error_budget=1)
    assert sum(len(batch["__key__"]) for batch in run) == 76
    (failure,) = run.ledger
    assert "it has a 42" in str(failure)


def test_a_sample_of_the_ledger_is_replayed_there() -> None:
    def broken(sample: Sample) -> Sample:
        return {**sample, "x": sample["x"].times(1 // (sample["n"] % 10 - 5))}

    dataset = arrays(20).map(broken, device=Far())
    run = dataset.run(on_error="skip", error_budget=2)
    assert len(list(run)) == 18
    with pytest.raises(ZeroDivisionError):
        dataset.replay(run.ledger.failures[0])


def test_statistics_tell_of_the_way() -> None:
    loader = arrays(64).map(doubled, device=Far("far:7"), workers=1).map(doubled, device=Far("far:7")).loader(4)
    assert sum(len(batch["n"]) for batch in loader) == 64
    stages = {stage.name: stage for stage in loader.statistics().stages}
    assert stages["to far:7"].samples == stages["from far:7"].samples == stages["map(doubled)"].samples == 64
    assert (stages["to far:7"].workers, stages["to far:7"].mode) == (1, "thread")
    assert not [name for name in stages if "arrive" in name or "leave" in name]


def test_nobody_is_advised_to_move_with_more_threads() -> None:
    busy = StageStatistics("to cuda:0", "thread", 1, 100, 50.0, 1.9, 0.95, 1.0)
    assert "batch them before" in Statistics(2.0, 100, 10**6, 0.9, 0, 1.0, (busy,)).advice


def test_mixtures_have_devices_too() -> None:
    device = Far()
    first = arrays(20).map(doubled, device=device)
    both = mix([first, arrays(20)], [1, 1]).map(plain).map(doubled, device=device)
    found = [row[0] for batch in both.loader(2, workers=2) for row in batch["x"].tolist()]
    assert sorted(found) == sorted([2 * (2 * n + 1) for n in range(20)] + [2 * (n + 1) for n in range(20)])


def test_nothing_is_looked_for_before_a_run_begins() -> None:
    dataset = arrays(10).map(doubled_here, device="cuda").batch(2).on("cuda:1")
    assert dataset.loader(1).steps is None
    assert "on(cuda:1)" in repr(dataset)


@pytest.mark.parametrize(
    ("before", "mode"), [*((before, "thread") for before in BEFORE), ("straight", "process"), ("batches", "process")]
)
def test_a_device_that_is_missing_is_told_when_the_run_begins(before: str, mode: str) -> None:
    dataset = BEFORE[before]().map(doubled_here, device="cuda", workers=1, mode=mode)
    sentence = r'map\(doubled_here\) asks for device="cuda", and torch [^ ]+ finds none.*: write device="cpu", or run'
    with pytest.raises(MissingDeviceError, match=sentence):
        next(iter(dataset.loader(2)))
    with pytest.raises(MissingDeviceError, match=sentence):
        list(dataset.run(on_error="skip"))  # no sample is to blame


def test_a_device_that_nobody_knows_is_told() -> None:
    with pytest.raises(MissingDeviceError, match=r'map\(doubled_here\) asks for device="elsewhere".*Expected one of'):
        list(arrays(2).map(doubled_here, device="elsewhere"))
    with pytest.raises(PlanError, match=r'device=\[3\]; it is a name like "cuda:1", a torch.device, or an object'):
        arrays(2).map(doubled_here, device=[3])
    with pytest.raises(PlanError, match="do not go together"):
        arrays(2).map(doubled_here, device="cpu", environment="mxnet")


# Staying there


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 2}, {"workers": 1, "mode": "process"}])
def test_samples_stay_where_the_plan_says(options: Any) -> None:
    device = Far()
    loader = arrays(12).lanes(1).batch(4).on(device).loader(1, **options)
    assert [batch["x"].at("far:0")[:, 0].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert (device.count("there"), device.count("stay"), device.count("back")) == (3, 3, 0)


def test_what_was_computed_there_stays_without_being_moved_again() -> None:
    device = Far()
    dataset = arrays(12).batch(4).map(doubled, device=device).on(device)
    found = [batch["x"].at("far:0")[:, 0].tolist() for batch in dataset.run(workers=2)]
    assert found == [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18, 20, 22]]
    assert (device.count("there"), device.count("stay"), device.count("back")) == (3, 3, 0)


def test_what_processes_computed_comes_back_and_is_moved_here() -> None:
    device = Far()
    dataset = arrays(12).batch(4).map(doubled, device=device, workers=1, mode="process").on(device)
    assert [batch["x"].at("far:0")[0, 0] for batch in dataset] == [0, 8, 16]
    assert (device.count("there"), device.count("stay")) == (3, 3)


def test_stages_that_ask_for_no_device_get_arrays_all_the_same() -> None:
    device = Far()
    dataset = arrays(12).on(device).map(plain)
    assert [sample["x"][0] for sample in dataset] == [n + 1 for n in range(12)]
    assert device.count("back") == 12


# Devices of torch's


class Network:
    """A model as people write them: its weights are where it was built."""

    def __init__(self, size: int = 3) -> None:
        import torch

        self.layer = torch.nn.Linear(size, 2, bias=False)
        self.moved: list[Any] = []
        with torch.no_grad():
            self.layer.weight.fill_(1.0)

    def to(self, device: Any) -> Network:
        self.moved.append(device)
        return self

    def __call__(self, batch: Sample) -> Sample:
        import torch

        assert self.moved == [torch.device("cpu")]
        assert isinstance(batch["x"], torch.Tensor)
        assert isinstance(batch["words"], list)
        made = self.layer(batch["x"].float())
        return {"y": made, "half": made.bfloat16(), "words": batch["words"], "n": batch["n"]}


@pytest.mark.parametrize("pool", POOLS)
def test_a_model_of_torch_gets_tensors_and_gives_arrays(pool: str) -> None:
    import torch

    dataset = arrays(30).map(lambda sample: {**sample, "words": "a"}).batch(4)
    found = list(dataset.map(Network, device=torch.device("cpu"), **POOLS[pool]).run(workers=1))
    assert np.concatenate([batch["y"] for batch in found]).tolist() == [[3.0 * n] * 2 for n in range(30)]
    assert {type(batch["y"]).__name__ for batch in found} == {"ndarray"}
    assert {type(batch["half"]).__name__ for batch in found} == {"Tensor"}  # numpy has no such type
    assert found[0]["words"] == ["a"] * 4


def test_a_loader_gives_tensors_that_stayed() -> None:
    import torch

    dataset = arrays(30).batch(5).map(lambda batch: {**batch, "x": batch["x"] * 2}, device="cpu").on("cpu").lanes(1)
    found = list(dataset.loader(2, to="torch"))
    assert [batch["x"].shape for batch in found] == [torch.Size([10, 3])] * 3
    assert torch.cat([batch["x"] for batch in found])[:, 0].tolist() == [2 * n for n in range(30)]


def test_samples_that_stayed_are_stacked_there() -> None:
    import torch

    batch = next(iter(arrays(30).on("cpu").loader(4)))
    assert isinstance(batch["x"], torch.Tensor)
    assert batch["x"].shape == (4, 3)


def test_a_filter_may_answer_with_a_tensor() -> None:
    class Even:
        device = "cpu"

        def __call__(self, sample: Sample) -> Any:
            return sample["x"][0] % 2 == 0

    asked = arrays(10).filter(lambda sample: sample["x"][0] % 2 == 0, device="cpu")
    for dataset in (asked, arrays(10).filter(Even)):
        assert [sample["n"] for sample in dataset] == [0, 2, 4, 6, 8]


def test_what_has_a_device_of_its_own_may_have_any() -> None:
    class Owner:
        def __init__(self) -> None:
            self.device = Far("far:3")

        def __call__(self, sample: Sample) -> Sample:
            assert sample["x"].at("far:3")[0] == sample["n"]
            return doubled(sample)

    assert [sample["x"][0] for sample in arrays(10).map(Owner).map(plain)] == [2 * n + 1 for n in range(10)]


def test_contracts_are_kept() -> None:
    assert isinstance(TorchDevice("cpu"), Device)
    assert isinstance(Far(), Device)


class Stream:
    """A queue of work on an accelerator, which has done nothing before it is told to."""

    def __init__(self, device: Any = None) -> None:
        self.work: list[Any] = []

    def record_event(self) -> Event:
        event = Event()
        self.work.append(("record", event))
        return event

    def wait_event(self, event: Event) -> None:
        self.work.append(("wait", event))


class Event:
    def __init__(self) -> None:
        self.done = self.awaited = False

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        self.done = self.awaited = True


class Library:
    """What torch has for a kind of accelerator, as far as copies need it."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.main = self.current = Stream()

    def Stream(self, device: Any) -> Stream:
        self.streams.append(Stream(device))
        return self.streams[-1]

    def current_stream(self, device: Any) -> Stream:
        return self.current

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        self.current = stream
        yield
        self.current = self.main


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def device(library: Library) -> TorchDevice:
    return TorchDevice("cpu", Streams(library, "an accelerator"))


def test_computing_comes_after_the_copy_and_nobody_waits(library: Library, device: TorchDevice) -> None:
    copies, _ = library.streams
    moved = device.there({"__key__": "a", "x": np.arange(3)})
    ((_, copied),) = copies.work
    assert library.main.work == []
    sample = device.ready(moved)
    assert library.main.work == [("wait", copied)]
    assert not copied.awaited
    assert type(sample) is dict


def test_memory_is_kept_until_its_copy_is_made(library: Library, device: TorchDevice) -> None:
    array = np.arange(3)
    memory = weakref.ref(array)
    moved = device.there({"__key__": "a", "x": array})
    copied = moved.event  # type: ignore[attr-defined]
    del array, moved
    device.there({"__key__": "b", "x": np.arange(3)})
    assert memory() is not None
    copied.done = True
    device.there({"__key__": "c", "x": np.arange(3)})
    assert memory() is None


def test_copies_are_made_of_pinned_memory(
    library: Library, device: TorchDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    pinned: list[Any] = []

    def pin(tensor: Any) -> Any:
        assert library.current is library.main  # it takes the time of a thread, not of a stream
        pinned.append(tensor.clone())
        return pinned[-1]

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(device, "_pins", True)
    moved = device.there({"__key__": "a", "x": np.arange(3), "parts": [np.arange(2), "text"]})
    assert [tensor.tolist() for tensor in pinned] == [[0, 1, 2], [0, 1]]
    assert moved["x"] is pinned[0]
    assert moved["parts"][0] is pinned[1]


def test_memory_is_pinned_for_the_accelerator_that_torch_runs_on() -> None:
    def torch(kind: str | None) -> Any:
        has = SimpleNamespace(
            is_available=lambda: kind is not None, current_accelerator=lambda: SimpleNamespace(type=kind)
        )
        return SimpleNamespace(accelerator=has)

    cuda = SimpleNamespace(type="cuda")
    assert [_can_pin(torch(kind), cuda) for kind in ("cuda", "xpu", None)] == [True, False, False]
    assert _can_pin(SimpleNamespace(), cuda)  # type: ignore[arg-type]  # an older one, which pins for CUDA alone


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_torch_has_what_is_asked_of_it(kind: str) -> None:
    import torch

    library = getattr(torch, kind)
    assert all(hasattr(library, name) for name in ("Stream", "stream", "current_stream"))
    assert all(hasattr(library.Stream, name) for name in ("record_event", "wait_event"))
    assert all(hasattr(library.Event, name) for name in ("query", "synchronize"))
    assert hasattr(torch.Tensor, "record_stream")


def test_the_way_back_waits_for_its_sample_alone(library: Library, device: TorchDevice) -> None:
    _, returns = library.streams
    made = device.made(device.ready(device.there({"__key__": "a", "x": np.arange(3)})))
    computed = library.main.work[-1][1]
    library.main.record_event()  # somebody else's work goes on
    assert device.back(made)["x"].tolist() == [0, 1, 2]
    assert returns.work == [("wait", computed)]


def test_what_stays_is_done(library: Library, device: TorchDevice) -> None:
    moved = device.there({"__key__": "a", "x": np.arange(3)})
    assert type(device.stay(moved)) is dict
    assert moved.event.awaited  # type: ignore[attr-defined]


def test_memory_that_others_use_is_not_given_away(library: Library) -> None:
    class Tensor:
        device, used = "an accelerator", None

        def record_stream(self, stream: Stream) -> None:
            self.used = stream

    there, here = Tensor(), Tensor()
    here.device = "cpu"
    Streams(library, "an accelerator").arrive({"__key__": "a"}, [there, here])
    assert there.used is library.main
    assert here.used is None
