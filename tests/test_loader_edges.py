"""What a loader does at the edges: errors, early ends, nothing at all, and far too much."""

from __future__ import annotations

import gc
import json
import pickle
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, islice, product
from typing import Any

import pytest

from shoal.abc import Block, Sample, Shard
from shoal.errors import PlanError, SampleError
from shoal.pipeline import Dataset, Loader, mix
from support.engine import begun_threads
from support.lane_models import numbered, rows_of, with_arrays
from support.lane_sources import ForwardSource, MemorySource, StreamSource
from support.rank_threads import rank_groups, run_ranks


def dataset(*lengths: int, kind: type[StreamSource] = MemorySource, first: int = 0, name: str = "memory") -> Dataset:
    return Dataset(kind([list(map(with_arrays, shard)) for shard in numbered(lengths, first)], name))


def classes(batches: Any) -> list[int]:
    return [row["cls"] for batch in batches for row in rows_of(batch)]


def sizes(batches: Any) -> list[int]:
    return [len(rows_of(batch)) for batch in batches]


# Errors


class Fault:
    """A function that fails at one sample, for as long as it is broken."""

    def __init__(self, bad: int) -> None:
        self.bad = bad
        self.is_broken = True

    def __call__(self, sample: Sample) -> Any:
        if self.is_broken and self.bad in (sample["cls"] if isinstance(sample["__key__"], list) else [sample["cls"]]):
            raise ZeroDivisionError("as asked for")
        return sample


FAULTY: dict[str, Callable[[Dataset, Any], Dataset]] = {
    "map": lambda d, fault: d.map(fault),
    "filter": lambda d, fault: d.filter(fault),
    "flat_map": lambda d, fault: d.flat_map(lambda sample: [fault(sample)]),
    "batches": lambda d, fault: d.batch(2).map(fault),
    "mixture": lambda d, fault: mix([d, dataset(600, first=1000)]).map(fault),
    "length": lambda d, fault: d.batch(tokens=9, length=lambda sample: len(fault(sample)["tokens"])),
}


def keep_each(loader: Loader, kept: list[Sample]) -> None:
    """Take note of batches as they come, as far as they come."""
    for batch in loader:
        kept.append(batch)


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("name", FAULTY)
def test_after_an_error_the_run_goes_on_from_what_was_received(name: str, workers: int) -> None:
    fault = Fault(333)
    plan = FAULTY[name](dataset(400, 200), fault).lanes(4)
    loader = plan.loader(8, workers=workers)
    got: list[Sample] = []
    with pytest.raises(ZeroDivisionError, match="as asked for"):
        keep_each(loader, got)
    state = json.loads(json.dumps(loader.state_dict()))
    assert state["step"] == len(got)
    fault.is_broken = False
    again = plan.loader(8, workers=workers)
    again.load_state_dict(state)
    rest = list(again)
    whole = list(plan.loader(8, workers=0))
    assert classes(got + rest) == classes(whole)
    assert 333 in classes(rest)


@pytest.mark.parametrize("workers", [0, 2])
def test_after_an_error_iterating_again_runs_the_next_epoch(workers: int) -> None:
    fault = Fault(30)
    loader = dataset(50).map(fault).loader(4, workers=workers)
    with pytest.raises(ZeroDivisionError):
        list(loader)
    assert loader.epoch == 1
    fault.is_broken = False
    assert classes(loader) == list(range(50))
    assert loader.epoch == 2


class Torn(StreamSource):
    """A shard that cannot be read beyond some place."""

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        for block in super().open(shard, start):
            if any(sample["cls"] == 700 for sample in block.samples):
                raise OSError("torn")
            yield block


@pytest.mark.parametrize("shuffled", [False, True])
def test_what_was_read_before_an_error_is_delivered_first_with_any_workers(shuffled: bool) -> None:
    def run(workers: int) -> list[int]:
        plan = dataset(*[100] * 10, kind=Torn).lanes(4)
        loader = (plan.shuffle("shards", seed=2) if shuffled else plan).loader(4, workers=workers)
        got: list[Sample] = []
        with pytest.raises(OSError, match="torn"):
            keep_each(loader, got)
        return classes(got)

    alone = run(0)
    assert run(1) == run(3) == alone
    if not shuffled:
        assert alone == list(range(700))


def test_a_sample_that_is_too_long_to_pack_is_named() -> None:
    with pytest.raises(SampleError, match=r"'k2': the sample has length 4, more than the 3 of a sequence.*long="):
        list(dataset(10).lanes(1).pack(3).loader(1, workers=0))


@pytest.mark.parametrize(
    ("long", "tokens"), [("split", [0, 2, 4, 1, 3]), ("truncate", [0, 2, 3, 1, 3]), ("drop", [0, 2, 0, 1, 3])]
)
def test_samples_that_are_too_long_are_packed_as_asked(long: str, tokens: list[int]) -> None:
    packed = list(dataset(5).lanes(1).pack(3, long=long).loader(1, workers=0))
    parts = [part for batch in packed for part in batch["__parts__"][0]]
    found = Counter[str]()
    for key, start, stop in parts:
        found[key] += stop - start
    assert [found[f"k{number}"] for number in range(5)] == tokens


# Several iterations


def test_leaving_an_epoch_early_ends_it() -> None:
    loader = dataset(50).shuffle("full").loader(5, workers=2)
    for _ in loader:
        break
    state = loader.state_dict()
    assert (state["epoch"], state["step"]) == (0, 1)
    second = classes(loader)
    other = dataset(50).shuffle("full").loader(5, workers=0)
    other.epoch = 1
    assert second == classes(other)


def test_a_second_iterator_ends_the_first() -> None:
    loader = dataset(50).loader(5, workers=1)
    first = iter(loader)
    next(first)
    second = iter(loader)
    assert classes([next(second)]) == list(range(5))
    assert list(first) == []
    assert classes(second) == list(range(5, 50))
    assert loader.epoch == 2
    assert loader.state_dict()["epoch"] == 2


def test_two_loaders_of_one_plan_do_not_disturb_each_other() -> None:
    plan = dataset(40, 3, 40, kind=ForwardSource).lanes(4).filter(lambda sample: sample["cls"] % 3)
    alone = classes(plan.loader(4, workers=0))
    pairs = list(zip(plan.loader(4, workers=0), plan.loader(4, workers=2), strict=True))
    assert classes(one for one, _ in pairs) == classes(other for _, other in pairs) == alone


@pytest.mark.parametrize("filtered", [False, True])
def test_a_loader_that_is_dropped_lets_go_of_its_threads(filtered: bool) -> None:
    before = threading.enumerate()
    plan = dataset(5000).filter(bool) if filtered else dataset(5000)
    loader = plan.loader(8, workers=2)
    iterator = iter(loader)
    next(iterator)
    assert begun_threads(before)
    del loader, iterator
    gc.collect()
    assert begun_threads(before) == []
    loader = plan.loader(8, workers=2)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    loader.close()
    assert begun_threads(before) == []
    assert next(iterator, None) is None


def packed_up(sample: Sample) -> bool:
    return bool(sample["cls"] % 3)


def test_a_loader_can_be_sent_away_in_the_middle_of_an_epoch() -> None:
    plan = dataset(60).filter(packed_up).batch(3).lanes(4)
    loader = plan.loader(4, workers=0)
    iterator = iter(loader)
    list(islice(iterator, 2))
    sent = pickle.loads(pickle.dumps(loader))
    assert classes(sent) == classes(iterator)
    assert sent.state_dict() == loader.state_dict()


# Sizes


@pytest.mark.parametrize("lanes", [1, 3, 64])
def test_a_batch_may_be_larger_than_everything(lanes: int) -> None:
    plan = dataset(5, 2).lanes(lanes)
    for filtered in (plan, plan.filter(lambda sample: True)):
        (batch,) = filtered.loader(1000, workers=0)
        assert len(batch["__key__"]) == 1000
        assert classes([batch]) == list(range(7))
        assert list(filtered.loader(1000, workers=0, end="drop")) == []
        (batch,) = filtered.loader(1000, workers=0, end="wrap", steps=1)
        assert "__mask__" not in batch
        assert Counter(Counter(classes([batch])).values()) == {143: 6, 142: 1}


@pytest.mark.parametrize(("lanes", "size"), [(64, 1), (64, 3), (5, 1), (1, 1), (1, 7), (7, 7), (4, 100)])
@pytest.mark.parametrize("keep", [True, False])
def test_as_many_ranks_as_lanes_or_samples_share_a_batch(lanes: int, size: int, keep: bool) -> None:
    plan = dataset(30, 0, 1).lanes(lanes)
    plan = plan if keep else plan.filter(lambda sample: sample["cls"] % 4)
    world = min(lanes, size)
    alone = [classes([batch]) for batch in plan.loader(size, workers=0)]
    with rank_groups():
        parts = run_ranks(
            world, lambda rank: list(plan.loader(size, rank=rank, world_size=world, workers=0))
        )  # fmt: skip
    together = [sorted(chain.from_iterable(classes([part]) for part in batch)) for batch in zip(*parts, strict=True)]
    assert together == [sorted(batch) for batch in alone]
    with pytest.raises(PlanError, match=f"world_size {world + 1} is more than"):
        plan.loader(size, rank=0, world_size=world + 1)


def test_one_sample_may_become_a_thousand() -> None:
    plan = dataset(9).flat_map(lambda sample: [{"cls": 1000 * sample["cls"] + at} for at in range(1000)]).lanes(2)
    loader = plan.loader(64, workers=2)
    got = classes(islice(loader, 50))
    again = plan.loader(64, workers=0)
    again.load_state_dict(loader.state_dict())
    assert sorted(got + classes(again)) == list(range(9000))


# Nothing


EMPTY: dict[str, Callable[[], Dataset]] = {
    "no shards": dataset,
    "empty shards": lambda: dataset(0, 0, 0),
    "empty stream": lambda: dataset(0, 0, kind=StreamSource),
    "empty scan": lambda: dataset(0, 0, kind=StreamSource).shuffle("shards"),
    "empty shuffle": lambda: dataset(0).shuffle("full"),
    "all dropped": lambda: dataset(9, 9).filter(lambda sample: False),
    "nothing made": lambda: dataset(9, 9).flat_map(lambda sample: []),
    "none taken": lambda: dataset(9).take(0),
    "none taken of some": lambda: dataset(9).filter(bool).take(0),
    "empty mixture": lambda: mix([dataset(0), dataset(0, 0)], exhausted="drop"),
    "no full batch": lambda: dataset(3).lanes(4).batch(9, partial=False),
    "nothing packed": lambda: dataset(1).pack(4),
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("workers", [0, 2])
def test_of_nothing_there_are_no_batches(name: str, workers: int) -> None:
    plan = EMPTY[name]()
    assert list(plan) == [] or name in ("no full batch",)
    for options in ({}, {"end": "drop"}, {"steps": 3}):
        loader = plan.loader(2, workers=workers, **options)
        assert list(loader) == []
        assert loader.epoch == loader.state_dict()["epoch"] == 1
        again = plan.loader(2, workers=workers, **options)
        again.load_state_dict(loader.state_dict())
        assert list(again) == []
        with pytest.raises(PlanError, match="no step 0"):
            loader.batch_at(0, 0)
    with rank_groups():
        assert run_ranks(2, lambda rank: list(plan.loader(2, rank=rank, world_size=2, workers=workers))) == [[], []]


@pytest.mark.parametrize(
    "name", ["no shards", "empty shards", "empty stream", "empty scan", "all dropped", "none taken"]
)
def test_of_nothing_there_is_no_more_by_beginning_again(name: str) -> None:
    assert list(EMPTY[name]().lanes(3).loader(2, workers=0, end="wrap", steps=3)) == []
    assert list(mix([EMPTY[name]()], exhausted="wrap").lanes(3).loader(2, workers=0, steps=3)) == []


def test_padding_needs_a_sample() -> None:
    plan = dataset(9).filter(lambda sample: False)
    with pytest.raises(PlanError, match="there is no sample at all"):
        list(plan.loader(2, rank=0, world_size=2, steps=3, workers=0))


def test_a_rank_without_samples_pads_with_those_of_others() -> None:
    """Also where the first lanes have none, and where the plan never ends by itself."""
    rare = dataset(8).lanes(4).filter(lambda sample: sample["cls"] % 4 == 3)
    got = [list(rare.loader(2, rank=rank, world_size=2, steps=4, workers=0)) for rank in range(2)]
    assert [classes(batches) for batches in got] == [[], [3, 7]]
    assert all(batch["cls"].tolist() == [3] for batch in got[0])
    endless = mix([dataset(4).filter(lambda sample: sample["cls"] == 1)], exhausted="wrap").lanes(4)
    got = [list(endless.loader(4, rank=rank, world_size=2, steps=3, workers=0)) for rank in range(2)]
    assert [classes(batches) for batches in got] == [[], [1, 1, 1]]


# Steps and ends


@pytest.mark.parametrize("steps", [0, 1, 3, 4, 5, 9])
@pytest.mark.parametrize("filtered", [False, True])
def test_steps_may_be_fewer_or_more_than_there_are(steps: int, filtered: bool) -> None:
    plan = dataset(14).lanes(4)
    plan = plan.filter(lambda sample: True) if filtered else plan
    assert sizes(plan.loader(4, steps=steps, workers=0)) == [4, 4, 4, 2][:steps]
    assert sizes(plan.loader(4, steps=steps, workers=0, end="drop")) == [4, 4, 4][:steps]
    assert sizes(plan.loader(4, steps=steps, workers=0, end="wrap")) == [4] * steps
    for end, world in product(["pad", "drop", "wrap"], [2, 4]):
        ranks = [
            list(plan.loader(4, steps=steps, workers=0, end=end, rank=rank, world_size=world)) for rank in range(world)
        ]
        assert len(set(map(len, ranks))) == 1
        # Without a way to talk, ranks that cannot count the samples take as many steps as they were told.
        real = [4] * 9 if end == "wrap" else [4, 4, 4, 2, *[0] * 5] if end == "pad" or filtered else [4, 4, 4]
        real = real[:4] if end == "pad" and not filtered else real
        assert [sum(map(len, map(rows_of, parts))) for parts in zip(*ranks, strict=True)] == real[:steps]


def test_each_epoch_has_as_many_steps() -> None:
    loader = dataset(14).shuffle("full").lanes(4).loader(4, steps=2, workers=0)
    assert [sizes(loader) for _ in range(3)] == [[4, 4]] * 3
    assert loader.state_dict()["epoch"] == 3


def test_what_begins_again_goes_through_all_once_a_pass() -> None:
    plan = dataset(5, 0, 6).shuffle("shards", window=2).lanes(4)
    got = classes(plan.loader(11, steps=6, end="wrap", workers=0))
    passes = [got[at : at + 11] for at in range(0, 66, 11)]
    assert all(sorted(each) == list(range(11)) for each in passes)
    assert len(set(map(tuple, passes))) > 1


# Mixtures


@pytest.mark.parametrize("lanes", [1, 4, 64])
@pytest.mark.parametrize("kind", [MemorySource, ForwardSource])
@pytest.mark.parametrize("shuffled", [False, True])
def test_tiny_components_begin_again_in_every_lane(lanes: int, kind: type[StreamSource], shuffled: bool) -> None:
    one, three = dataset(1, kind=kind), dataset(2, 0, 1, kind=kind, first=100)
    if shuffled:
        one, three = one.shuffle("shards"), three.shuffle("shards", seed=1)
    loader = mix([one, three], [1, 3], exhausted="wrap").lanes(lanes).loader(64, steps=10, workers=0)
    got = Counter(classes(loader))
    assert set(got) == {0, 100, 101, 102}
    assert abs(got[0] - 160) <= lanes


@pytest.mark.parametrize("mode", ["shards", "full"])
def test_a_filter_over_what_begins_again_may_keep_little(mode: str) -> None:
    """A lane sees few samples of a pass; that none of them is kept is no reason to end."""
    plan = dataset(100).shuffle(mode).filter(lambda sample: sample["cls"] % 10 == 0)
    batches = list(plan.loader(64, steps=12, end="wrap", workers=0))
    assert sizes(batches) == [64] * 12
    assert set(classes(batches)) == set(range(0, 100, 10))


def test_components_of_no_weight_are_never_drawn() -> None:
    a, b, c = dataset(10), dataset(5, first=100), dataset(0)
    for exhausted in ("stop", "drop"):
        assert classes(mix([b, a, c], [0, 2, 0], exhausted=exhausted).lanes(3).loader(4, workers=0)) == list(range(10))
    assert sizes(mix([a, b, c], [0, 2, 0], exhausted="wrap").lanes(3).loader(4, workers=0, steps=4)) == [4] * 4


def test_an_empty_component_stops_a_mixture_or_is_left_out() -> None:
    parts = [dataset(6), dataset(0)]
    assert classes(mix(parts).lanes(1).loader(4, workers=0)) == [0]
    assert classes(mix(parts, exhausted="drop").lanes(1).loader(4, workers=0)) == list(range(6))
    wrapped = mix(parts, exhausted="wrap").lanes(1)
    assert classes(wrapped.loader(4, workers=0, steps=3)) == [*range(6), *range(6)]
    assert [sample["cls"] for sample in islice(wrapped, 12)] == [*range(6), *range(6)]


def test_a_mixture_that_begins_again_may_be_ended_by_another() -> None:
    again = mix([dataset(2), dataset(2, first=10)], exhausted="wrap")
    assert classes(mix([again, dataset(4, first=100)]).lanes(1).loader(4, workers=0)) == [
        0, 100, 10, 101, 1, 102, 11, 103, 0
    ]  # fmt: skip
    for endless in (mix([again, again]), mix([again, dataset(4)], exhausted="drop"), mix([again, dataset(4)], [1, 0])):
        with pytest.raises(PlanError, match="never ends by itself"):
            endless.loader(4)


def test_what_begins_again_cannot_end_after_some_of_a_filtered_stream() -> None:
    for plan in (dataset(9).filter(bool).take(3), dataset(9).take(3).filter(bool), dataset(9).batch(2).take(3)):
        with pytest.raises(PlanError, match=r"begin again \(wrap\) cannot end after take"):
            list(plan.loader(2, end="wrap", steps=3))
    assert classes(dataset(9).take(3).lanes(2).loader(4, end="wrap", steps=2, workers=0)) == [0, 1, 2, 0, 1, 2, 0, 1]


def test_random_stages_follow_the_sample_wherever_it_is_drawn() -> None:
    """By iterating or loading, ahead of a lane or in it: the same sample, stage, seed and epoch draw the same."""

    def drawn(sample: Sample, rng: Any) -> Sample:
        return {**sample, "cls": int(rng.integers(2**60))}

    def by_key(samples: Any) -> dict[str, int]:
        return {sample["__key__"]: sample["cls"] for sample in samples}

    parts = [dataset(20).shuffle("full", seed=5), dataset(20, first=100, kind=ForwardSource).shuffle("shards", seed=6)]
    plan = mix([part.map(drawn, random=True) for part in parts], exhausted="drop").map(drawn, random=True)
    stored = by_key(plan)
    assert by_key(chain.from_iterable(map(rows_of, plan.loader(8, workers=0)))) == stored
    held = mix([part.map(drawn, random=True).take(10**6) for part in parts], exhausted="drop").map(drawn, random=True)
    assert by_key(chain.from_iterable(map(rows_of, held.loader(8, workers=0)))) == stored
    reseeded = mix([part.shuffle("full", seed=7) for part in parts[:1]]).map(drawn, random=True)
    assert by_key(reseeded).items().isdisjoint(by_key(mix(parts[:1]).map(drawn, random=True)).items())


def test_batches_can_be_taken_apart_again() -> None:
    def parted(batch: Sample) -> list[Sample]:
        return [
            {"__key__": key, "cls": int(number)} for key, number in zip(batch["__key__"], batch["cls"], strict=True)
        ]

    plan = dataset(10).lanes(2).batch(3).flat_map(parted)
    batches = list(plan.loader(4, workers=0))
    assert all(isinstance(key, str) and key.startswith("k") for batch in batches for key in batch["__key__"])
    assert sorted(classes(batches)) == list(range(10))


def test_a_loader_says_how_many_steps_there_are() -> None:
    plan = dataset(14).lanes(4)
    known: list[tuple[Loader, int | None]] = [
        (plan.loader(4), 4),
        (plan.loader(4, end="drop"), 3),
        (plan.loader(4, steps=2), 2),
        (plan.loader(4, steps=9), 4),
        (plan.take(5).loader(4), 2),
        (plan.loader(4, end="wrap", steps=9), 9),
        (plan.filter(bool).loader(4), None),
        (plan.filter(bool).loader(4, steps=3), 3),
    ]
    for loader, steps in known:
        assert loader.steps == steps
