"""Batches that feeders prepare are those of a loader that runs the plan itself: bytes, order, states, failures."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, reject
from hypothesis import strategies as st

import shoal
from shoal import feed, image
from shoal.abc import Sample
from shoal.errors import DecodeError, ErrorBudgetError, FeederLostError, FeedError, PlanError, StateError
from shoal.feed._assembly import Assembly
from shoal.feed._line import Line
from shoal.feed._pieces import SMALL
from shoal.feed._shared_memory import SharedSlabs
from shoal.feed._streams import SharedCourse
from shoal.pipeline import Dataset
from shoal.shards import ShardWriter, TarWriter
from support.engine import same
from support.feed import same_batches
from support.lane_models import Case, cases, dataset_of
from support.lane_oracle import Epoch, Hopeless

ROWS = 500


def numbers() -> Dataset:
    rng = np.random.default_rng(0)
    return shoal.from_arrays({"x": rng.normal(size=(ROWS, 30, 20)).astype("f4"), "y": np.arange(ROWS, dtype=np.int32)})


def noisy(sample: Sample, rng: np.random.Generator) -> Sample:
    number = int(sample["y"])
    return {
        "z": float(rng.normal()),
        "image": sample["x"] + np.float32(rng.normal()),
        "text": f"number {number}",
        "bytes": b"ab" * (number % 5),
        "list": [number, "a"],
        "dict": {"array": sample["x"][0]},
        "ragged": np.arange(number % 3),
    }


def children(sample: Sample) -> Iterator[Sample]:
    return ({"part": sample["x"][at], "n": at} for at in range(int(sample["y"]) % 3))


PLANS = {
    "as it lies": numbers(),
    "shuffled": numbers().shuffle("full", seed=3),
    "in windows": numbers().shuffle("shards", seed=3),
    "mapped": numbers().shuffle("full", seed=1).map(noisy, random=True),
    "filtered": numbers().shuffle("full", seed=3).filter(lambda sample: sample["y"] % 3 != 0),
    "spread": numbers().flat_map(children),
    "gathered": numbers().shuffle("full").batch(3),
    "mixed": shoal.mix([numbers(), numbers().shuffle("full", seed=7)], [3, 1]).map(lambda sample: sample),
    "few": numbers().take(10),
}

#: Those whose steps follow from their lengths.
COUNTED = ("as it lies", "shuffled", "in windows", "mapped", "few")


@contextmanager
def feeding(dataset: Dataset, count: int = 2, **options: Any) -> Iterator[list[str]]:
    """Have feeders in this process."""
    with ExitStack() as stack:
        yield [stack.enter_context(feed.serve(dataset, **options)).url for _ in range(count)]


@pytest.mark.parametrize("shared", [True, False], ids=["in shared memory", "over the network"])
@pytest.mark.parametrize("name", PLANS)
def test_batches_order_and_states_are_those_of_a_local_loader(name: str, shared: bool) -> None:
    dataset = PLANS[name]
    with feeding(dataset) as urls:
        for rank, world in ((0, 1), (0, 2), (1, 2)):
            limit = {} if world == 1 or name in COUNTED else {"steps": 5}
            options = {"rank": rank, "world_size": world, **limit}
            local = dataset.loader(32, **options)
            fed = feed.connect(urls, 32, shared_memory=shared, timeout=60, **options)
            assert (fed.steps, fed.samples, fed.rank, fed.world_size) == (local.steps, local.samples, rank, world)
            for _ in range(2):
                assert same_batches(fed, local)
                assert fed.order_digest() == local.order_digest()
                assert fed.state_dict() == local.state_dict()
            fed.disconnect()


def keys(batch: Mapping[str, Any]) -> list[str]:
    """Give the keys of the rows that are no padding."""
    real = batch.get("__mask__", np.ones(len(batch["__key__"]), bool))
    return [key for key, is_real in zip(batch["__key__"], real, strict=True) if is_real]


def test_a_state_goes_from_one_kind_of_loader_to_the_other_and_to_another_world() -> None:
    dataset = PLANS["filtered"]
    every = list(map(keys, dataset.loader(16)))
    with feeding(dataset) as urls:
        fed = feed.connect(urls, 16)
        got = list(map(keys, islice(fed, 5)))
        local = dataset.loader(16)
        local.load_state_dict(json.loads(json.dumps(fed.state_dict())))
        got += map(keys, islice(local, 5))
        two = [feed.connect(urls, 16, rank=rank, world_size=2, steps=13) for rank in range(2)]
        for part in two:
            part.load_state_dict(local.state_dict())
        got += [[*one, *other] for one, other in zip(*(map(keys, part) for part in two), strict=True)]
        last = feed.connect(urls, 16)
        last.load_state_dict([part.state_dict(13) for part in two])
        got += map(keys, last)
    assert list(map(sorted, got)) == list(map(sorted, every))


def test_a_state_of_the_last_few_steps_is_known() -> None:
    with feeding(PLANS["mapped"]) as urls:
        fed, local = feed.connect(urls, 16), PLANS["mapped"].loader(16)
        for _ in zip(islice(fed, 9), islice(local, 9), strict=True):
            pass
        for step in range(4, 10):
            assert fed.state_dict(step) == local.state_dict(step)


def test_a_batch_of_any_step_can_be_made_again() -> None:
    with feeding(PLANS["mapped"]) as urls:
        fed = feed.connect(urls, 20)
        assert same(fed.batch_at(3, 7), PLANS["mapped"].batch_at(3, 7, 20))


@pytest.mark.parametrize("end", ["pad", "drop", "wrap"])
def test_ends_are_those_of_a_local_loader(end: str) -> None:
    options: dict[str, Any] = {"end": end, "steps": 60 if end == "wrap" else None}
    with feeding(PLANS["shuffled"]) as urls:
        assert same_batches(feed.connect(urls, 48, **options), PLANS["shuffled"].loader(48, **options))


def test_batches_are_for_the_user_to_keep_and_to_change() -> None:
    for shared in (True, False):
        with feeding(numbers(), count=1) as urls:
            kept = list(feed.connect(urls, 50, shared_memory=shared))
            expected = list(numbers().loader(50))
            for batch in kept:
                assert batch["x"].flags.writeable
                batch["x"] += 1
                assert batch["x"].ctypes.data % 64 == 0
        assert all((got["x"] == want["x"] + 1).all() for got, want in zip(kept, expected, strict=True))


def test_memory_may_come_back_when_all_is_over() -> None:
    slabs, kind = SharedSlabs(), np.dtype(np.uint8)
    room = slabs.empty((SMALL,), kind)
    found = slabs.lent(memoryview(room))
    assert found is not None
    del room
    slabs.empty((SMALL,), kind)  # it looks at what nobody here has any more
    slabs.close()
    slabs.back([found[0].name])


@pytest.mark.parametrize("kind", ["torch", "arrow", "pandas"])
def test_batches_come_in_the_formats_that_loaders_know(kind: str) -> None:
    dataset = numbers().take(40).select("y")
    with feeding(dataset) as urls:
        fed, local = feed.connect(urls, 16, to=kind), dataset.loader(16, to=kind)
        assert [repr(batch) for batch in fed] == [repr(batch) for batch in local]


def test_tensors_stay_tensors() -> None:
    dataset = numbers().map(
        lambda sample: {"t": torch.from_numpy(sample["x"] * 2), "r": torch.zeros(int(sample["y"]) % 3)}
    )
    with feeding(dataset) as urls:
        assert same_batches(feed.connect(urls, 32), dataset.loader(32))


def test_pictures_are_decoded_straight_into_the_batch(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with ShardWriter(str(tmp_path / "%d.tar"), maxcount=40) as writer:
        for number in range(100):
            writer.write({"__key__": f"{number:03}", "jpg": rng.integers(0, 255, (60, 80, 3), np.uint8), "cls": number})
    stages = image.random_resized_crop(32), image.flip(), image.normalize()
    dataset = shoal.read_tar(f"{tmp_path}/{{0..2}}.tar").shuffle("shards", seed=1).decode().apply(*stages)
    with feeding(dataset) as urls:
        for shared in (True, False):
            for some in (urls, urls[:1]):
                assert same_batches(feed.connect(some, 32, shared_memory=shared), dataset.loader(32)) == 4


def test_arrays_may_be_compressed() -> None:
    for compression in ("lz4", "zstd"):
        with feeding(numbers()) as urls:
            assert same_batches(feed.connect(urls, 64, compression=compression), numbers().loader(64))
            with pytest.raises(FeedError, match=r"compression='rar'; known are None, 'lz4', 'zstd'"):
                next(iter(feed.connect(urls, 64, compression="rar")))


# Failures


def fails(sample: Sample) -> Sample:
    if sample["y"] % 50 == 47:
        raise ValueError(f"{sample['y']} is not wanted")
    return sample


def test_samples_that_fail_are_skipped_and_written_into_the_ledger_of_the_trainer() -> None:
    dataset = numbers().shuffle("full").map(fails)
    local = dataset.loader(32, on_error="skip")
    with feeding(dataset) as urls:
        fed = feed.connect(urls, 32, on_error="skip")
        assert same_batches(fed, local)
    assert {failure.key for failure in fed.ledger} == {failure.key for failure in local.ledger}
    assert len(fed.ledger) == 10
    first = next(iter(fed.ledger))
    assert (first.error, first.stage) == ("ValueError", "map(fails)")
    assert fed.statistics().skipped == 10


def test_too_many_failures_end_the_run() -> None:
    with (
        feeding(numbers().map(fails)) as urls,
        pytest.raises(ErrorBudgetError, match="more than the error budget of 3"),
    ):
        list(feed.connect(urls, 32, on_error="skip", error_budget=3))


def test_an_error_of_the_plan_is_raised_at_its_batch_with_its_class_and_place() -> None:
    with feeding(numbers().map(fails)) as urls:
        fed = feed.connect(urls, 4)
        batches = iter(fed)
        assert next(batches)["y"].tolist() == [0, 1, 2, 3]
        with pytest.raises(ValueError, match="47 is not wanted") as caught:
            list(batches)
        notes = "\n".join(caught.value.__notes__)
        assert "in stage map(fails), at sample" in notes
        assert f"in the feeder at {urls[0]}" in notes or f"in the feeder at {urls[1]}" in notes


class Peculiar(Exception):
    """Something that a trainer does not know."""


def test_errors_of_ours_keep_their_attributes_and_unknown_ones_are_told_by_name(tmp_path: Path) -> None:
    with TarWriter(tmp_path / "a.tar") as writer:
        writer.write({"__key__": "cat", "jpg": b"no picture"})
    with feeding(shoal.read_tar(str(tmp_path / "a.tar")).decode(), 1) as urls:
        with pytest.raises(DecodeError) as caught:
            next(iter(feed.connect(urls, 1)))
        assert (caught.value.key, caught.value.field) == ("cat", "jpg")
        assert str(caught.value.shard).endswith("a.tar")

    def odd(sample: Sample) -> Sample:
        raise Peculiar("very")

    with feeding(numbers().map(odd), 1) as urls, pytest.raises(FeedError, match="Peculiar: very"):
        next(iter(feed.connect(urls, 1)))


def test_values_that_cannot_be_sent_are_named() -> None:
    with (
        feeding(numbers().map(lambda sample: {"o": object()}), 1) as urls,
        pytest.raises(FeedError, match=r"field 'o': a builtins\.object .*does not cross"),
    ):
        next(iter(feed.connect(urls, 1)))


# Who may come


def ask_at_the_door(line: Line, door: str) -> None:
    """Come in as a trainer of the same host does, and ask for a piece."""
    course = SharedCourse(line, door, {})
    try:
        course.next(Assembly(1, np.empty), np.arange(1))
    finally:
        course.cancel()


def test_a_wrong_token_is_refused() -> None:
    with feed.serve(numbers(), token="this is the right one") as feeder:
        with pytest.raises(FeedError, match=r"does not know this token; connect\(urls, token=\.\.\.\) takes"):
            feed.connect(feeder.url, 4, token="and this is another")
        with pytest.raises(FeedError, match="the token has 5 characters; it takes at least 16"):
            feed.serve(numbers(), token="short")
        door = feed.connect(feeder.url, 4, token="this is the right one")._crew.meet()["door"]
        line = Line(feeder.url, "and this is another", None)
        with pytest.raises(FeederLostError, match="has gone"):  # at once, or when it asks
            ask_at_the_door(line, door)


def test_feeders_of_another_plan_are_refused_with_what_differs() -> None:
    with feed.serve(numbers().shuffle("full", seed=1)) as one, feed.serve(numbers().shuffle("full", seed=2)) as other:
        with pytest.raises(FeedError, match=r"serves another plan: seed was 1 and is 2"):
            feed.connect([one.url, other.url], 4)
        with pytest.raises(FeedError, match=r"serves another plan: seed was 2 and is 1"):
            other.join([one.url])


def test_a_state_of_another_plan_is_refused() -> None:
    state = numbers().shuffle("full", seed=1).loader(8).state_dict()
    with feeding(numbers().shuffle("full", seed=2)) as urls:
        loader = feed.connect(urls, 8)
        with pytest.raises(StateError, match="the state is of another plan: seed was 1 and is 2"):
            loader.load_state_dict(state)


def test_a_ticket_of_another_version_or_without_sense_is_refused() -> None:
    with feed.serve(numbers()) as feeder:
        loader = feed.connect(feeder.url, 8)
        line = loader._crew.member(feeder.url).line
        with pytest.raises(FeedError, match="speaks version 7 of the feed, this feeder version 1; install the same"):
            line.open({"version": 7}).read_chunk()
        for words in ({}, {"version": 1}, {"version": 1, "part": [1, 2, 3], "position": 5}):
            with pytest.raises(Exception, match=r"refused|speaks version|makes no sense"):
                line.open(words).read_chunk()
        with pytest.raises(FeedError, match="does not know 'dance'"):
            line.ask("dance", 10)


def test_a_batch_size_may_be_the_feeders_and_workers_are() -> None:
    with feeding(numbers(), batch_size=100) as urls:
        assert len(next(iter(feed.connect(urls)))["y"]) == 100
        with pytest.raises(PlanError, match="workers= is for feeders"):
            feed.connect(urls, workers=2)
    with feeding(numbers()) as urls, pytest.raises(PlanError, match="the feeders name no batch_size"):
        feed.connect(urls)


@pytest.mark.parametrize("address", ["nowhere", "http://a:1", "a:b", "grpc://a", ""])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(FeedError, match="is no address of a feeder"):
        feed.connect(address, 4)


# Loaders


def test_a_loader_that_is_left_lets_go_of_the_feeders() -> None:
    with feed.serve(numbers().map(noisy, random=True)) as feeder:
        for shared in (True, False):
            loader = feed.connect(feeder.url, 8, shared_memory=shared)
            for _ in islice(loader, 3):
                pass
            loader.close()
            with feeder._lock:
                assert feeder._lock.wait_for(lambda: not feeder.load().courses, 30)


def test_a_loader_can_be_pickled() -> None:
    with feeding(PLANS["shuffled"]) as urls:
        fed = feed.connect(urls, 16)
        first = list(islice(fed, 3))
        again = pickle.loads(pickle.dumps(fed))
        rest = list(again)
        assert [b["y"].tolist() for b in [*first, *rest]] == [b["y"].tolist() for b in PLANS["shuffled"].loader(16)]


def test_torch_loaders_may_read_it_in_processes_that_are_no_forks() -> None:
    with feeding(PLANS["shuffled"]) as urls:
        fed = feed.connect(urls, 16)
        loader = torch.utils.data.DataLoader(
            fed.torch_dataset(), batch_size=None, num_workers=2, multiprocessing_context="forkserver"
        )
        got = [np.asarray(batch["y"]).tolist() for batch in loader]
    assert got == [batch["y"].tolist() for batch in PLANS["shuffled"].loader(16)]


def test_statistics_tell_of_the_stages_of_the_feeders() -> None:
    with feeding(numbers().map(noisy, random=True), workers=2) as urls:
        fed = feed.connect(urls, 16)
        assert len(list(fed)) == 32
        now = fed.statistics()
    assert now.samples == ROWS
    (stage,) = [stage for stage in now.stages if stage.name == "map(noisy)"]
    assert stage.mode == "feeder"
    assert stage.workers == 4
    assert ROWS / 2 < stage.samples <= ROWS
    assert json.loads(now.json())["stages"]


@pytest.mark.soak
@given(cases(), st.data())
@pytest.mark.filterwarnings("ignore:.* cannot be entered in the middle")
@pytest.mark.filterwarnings("ignore::shoal.errors.FeedWarning")
def test_whatever_the_plan_and_whoever_goes_the_batches_are_the_same(case: Case, data: st.DataObject) -> None:
    dataset = dataset_of(case.model).lanes(case.lanes)
    size = data.draw(st.integers(1, 40))
    options: dict[str, Any] = {"steps": 6 if case.endless else None, "end": "wrap" if case.wrap else "pad"}
    with ExitStack() as stack:
        feeders = [stack.enter_context(feed.serve(dataset, workers=data.draw(st.integers(0, 2)))) for _ in range(2)]
        try:
            oracle = Epoch(case.model, case.lanes, 0, wrap=case.wrap)
            for slot in range(8 * size):
                oracle.at(slot)
            expected = list(islice(dataset.loader(size, **options), 8))
        except (PlanError, Hopeless):
            reject()  # it cannot be run, or would look for ever for a sample that is not dropped
        fed = feed.connect([feeder.url for feeder in feeders], size, shared_memory=data.draw(st.booleans()), **options)
        going, left = data.draw(st.integers(0, 6)), data.draw(st.integers(0, len(expected)))
        got: Iterator[Mapping[str, Any]] = iter(fed)
        for number, batch in enumerate(expected[:left]):
            if number == going:
                feeders.pop().close()
            assert same(next(got), batch)
        again = dataset.loader(size, **options)
        again.load_state_dict(json.loads(json.dumps(fed.state_dict())))
        fed.disconnect()
    assert all(map(same, islice(again, len(expected) - left), expected[left:]))
