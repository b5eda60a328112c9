"""Whatever the plan, the world and the stops: every rank gets what the order says, once, and goes on where it was."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import assume, given, note, reject, settings
from hypothesis import strategies as st

import shoal
from shoal.abc import Sample
from shoal.errors import PlanError
from shoal.order import Shuffle, Weights, merge_digests
from shoal.pipeline import Dataset
from support.lane_models import (
    Case,
    Mix,
    Origin,
    as_lying,
    begins_again,
    cases,
    children,
    dataset_of,
    is_straight,
    keep_most,
    noise,
    numbered,
    rows_of,
    rows_of_item,
    shuffled_origins,
    with_arrays,
    with_everything,
)
from support.lane_oracle import Drawn, Epoch, Grouped, Hopeless, Item, Kept, Model, Packed, Spread
from support.rank_threads import rank_groups, run_ranks

pytestmark = [
    pytest.mark.soak,
    pytest.mark.filterwarnings("ignore:.* cannot be entered in the middle"),
]


@pytest.fixture(scope="module", autouse=True)
def _groups() -> Iterator[None]:
    with rank_groups():
        yield


# A run in several legs, each in a world of its own


@dataclass(frozen=True)
class Leg:
    """A part of a run: from a state, or the beginning, to a stop or the end of the epoch."""

    world_size: int
    batch_size: int
    workers: int = 0
    stop: int | None = None
    back: int = 0
    """How many steps before the last one the state is asked for."""
    grouped: bool = True
    """Whether the ranks can talk to each other."""


@dataclass(frozen=True)
class Options:
    """What stays the same in all legs."""

    steps: int | None = None
    end: str = "pad"


@dataclass
class Place:
    """Where a run is, as the oracle counts."""

    epoch: int = 0
    slot: int = 0
    step: int = 0
    states: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Part:
    """What one rank had of a leg."""

    batches: list[Sample]
    finished: bool
    states: list[dict[str, Any]]
    """After each of the last steps, the last one first."""
    digest: str


def run_leg(dataset: Dataset, leg: Leg, options: Options, place: Place) -> list[Part]:
    def work(rank: int) -> Part:
        loader = dataset.loader(
            leg.batch_size, rank=rank, world_size=leg.world_size, workers=leg.workers, **vars(options)
        )
        loader.epoch = place.epoch
        if place.states:
            loader.load_state_dict(json.loads(json.dumps(place.states)))
            assert loader.epoch == place.epoch
        batches = list(islice(loader, leg.stop))
        finished = leg.stop is None or len(batches) < leg.stop
        last = place.step + len(batches)
        steps = [None] if finished else [last - back for back in range(min(leg.back, len(batches)) + 1)]
        states = [loader.state_dict(step) for step in steps]
        assert states[0] == loader.state_dict()
        digest = loader.order_digest()
        loader.close()
        return Part(batches, finished, states, digest)

    return run_ranks(leg.world_size, work) if leg.grouped else [work(rank) for rank in range(leg.world_size)]


def batches_from(
    epoch: Epoch, place: Place, leg: Leg, options: Options, *, counted: bool
) -> Iterator[tuple[int, list[Item | None]]]:
    """List what comes after a place: the first slot of each batch, and what is in its slots."""
    slot, step, size = place.slot, place.step, leg.batch_size
    blind = leg.world_size > 1 and not leg.grouped and not counted
    while options.steps is None or step < options.steps:
        items = [epoch.at(at) for at in range(slot, slot + size)]
        if not blind and not any(items) and epoch.is_over(slot + size):
            return
        if not blind and options.end == "drop" and not all(items):
            return
        if blind or any(items):
            yield slot, items
            step += 1
        slot += size


def check_leg(case: Case, leg: Leg, options: Options, place: Place, dataset: Dataset) -> Place:
    """Run a leg, compare it with the oracle, and say where it led."""
    epoch = Epoch(case.model, case.lanes, place.epoch, wrap=case.wrap)
    counted = is_straight(case.model) and not case.wrap
    coming: list[tuple[int, list[Item | None]]] = []
    try:
        coming += islice(batches_from(epoch, place, leg, options, counted=counted), leg.stop)
        if not leg.grouped and not counted and epoch.is_over(0):
            reject()  # with nothing at all, there is nothing to pad with
    except Hopeless:
        reject()
    parts = run_leg(dataset, leg, options, place)
    finished = leg.stop is None or len(coming) < leg.stop
    for rank, part in enumerate(parts):
        assert part.finished == finished
        assert len(part.batches) == len(coming)
        for batch, (slot, items) in zip(part.batches, coming, strict=True):
            check_part(batch, slot, items, rank, leg.world_size, case.lanes)
    reached = [place.slot, *(slot + leg.batch_size for slot, _ in coming)]
    assert merge_digests(int(part.digest, 16) for part in parts) == f"{epoch.digest(reached[-1]):016x}"
    if finished:
        return Place(place.epoch + 1, states=[part.states[0] for part in parts])
    back = min(leg.back, len(coming))
    return Place(place.epoch, reached[-1 - back], place.step + len(coming) - back, [p.states[back] for p in parts])


def check_part(batch: Sample, slot: int, items: Sequence[Item | None], rank: int, world: int, lanes: int) -> None:
    """Compare a rank's part of a batch with what is in its slots."""
    owners = [at % lanes % world for at in range(slot, slot + len(items))]
    mine = [item for item, owner in zip(items, owners, strict=True) if owner == rank and item is not None]
    assert rows_of(batch) == [row for item in mine for row in rows_of_item(item.sample)]
    real, size = len(rows_of(batch)), len(batch["__key__"])
    if any(item is not None and isinstance(item.sample["__key__"], str) for item in items):
        assert size == max(map(owners.count, range(world)))
    assert ("__mask__" in batch) == (real < size)
    if real < size:
        assert batch["__mask__"].tolist() == [at < real for at in range(size)]


@st.composite
def legs(draw: st.DrawFn, case: Case, options: Options) -> Leg:
    world = draw(st.integers(1, min(8, case.lanes)))
    alone = options.steps is not None or (is_straight(case.model) and not case.wrap)
    stop = draw(st.sampled_from([2, 1, 3, 4, 5, 6, 7, 0, None]))
    return Leg(
        world,
        draw(st.sampled_from([*range(world, 13), 24, 64, 150])),
        workers=draw(st.sampled_from([0, 0, 1, 3])),
        stop=stop,
        back=draw(st.integers(0, min(2, stop or 0))),
        grouped=draw(st.booleans()) or not alone,
    )


@st.composite
def options_for(draw: st.DrawFn, case: Case) -> Options:
    some = st.sampled_from([20, 15, 10, 5, 2, 0])
    steps = draw(some if case.endless else st.one_of(st.none(), st.none(), some))
    return Options(steps, "wrap" if case.wrap else draw(st.sampled_from(["pad", "pad", "pad", "drop"])))


def check_run(data: st.DataObject, case: Case) -> None:
    options = data.draw(options_for(case))
    dataset = dataset_of(case.model).lanes(case.lanes)
    place = Place(epoch=data.draw(st.sampled_from([0, 0, 5])))
    for _ in range(data.draw(st.integers(2, 4))):
        leg = data.draw(legs(case, options))
        note(f"epoch {place.epoch}, slot {place.slot}, step {place.step}: {leg}")
        place = check_leg(case, leg, options, place, dataset)


@given(data=st.data())
def test_any_plan_in_any_world_with_any_stops(data: st.DataObject) -> None:
    check_run(data, data.draw(cases()))


# Files


def write_tars(folder: Path, suffix: str, shards: Sequence[Sequence[Sample]]) -> Callable[[], Dataset]:
    urls = [str(folder / f"{number}{suffix}") for number in range(len(shards))]
    for url, shard in zip(urls, shards, strict=True):
        with shoal.shards.TarWriter(url) as writer:
            for sample in map(with_arrays, shard):
                writer.write({"__key__": sample["__key__"], "cls": sample["cls"], "npy": sample["tokens"]})
    return lambda: shoal.read_tar(urls).decode().map(with_tokens)


def with_tokens(sample: Sample) -> Sample:
    return {"cls": sample["cls"], "tokens": sample["npy"]}


def write_parquet(path: Path, shards: Sequence[Sequence[Sample]]) -> Callable[[], Dataset]:
    """Write a file of which each row group is a shard."""
    schema = pyarrow.schema(
        {"__key__": pyarrow.string(), "cls": pyarrow.int64(), "tokens": pyarrow.list_(pyarrow.int64())}
    )
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for shard in shards:
            writer.write_table(pyarrow.Table.from_pylist(list(shard), schema))
    return lambda: shoal.read_parquet(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Origin]:
    """Write one source of each kind."""
    folder = tmp_path_factory.mktemp("files")
    tars, zipped, tables = numbered([7, 0, 12, 1, 30]), numbered([5, 19, 0, 1], 1000), numbered([6, 1, 13], 2000)
    origins = [
        Origin(tars, stages_before=2, make=write_tars(folder, ".tar", tars)),
        Origin(zipped, "forward", stages_before=2, kind="forward", make=write_tars(folder, ".tar.gz", zipped)),
        Origin(tables, make=write_parquet(folder / "table.parquet", tables)),
    ]
    for origin in origins:
        assert dataset_of(Model(origin)).count() == sum(map(len, origin.shards))  # from here on, tars have an index
    return origins


@given(data=st.data())
def test_files_in_any_world_with_any_stops(files: list[Origin], data: st.DataObject) -> None:
    check_run(data, data.draw(cases(shuffled_origins(files))))


# What makes no difference


def is_same(one: Any, other: Any) -> bool:
    """Compare to the last byte."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


@settings(max_examples=settings.default.max_examples // 2)
@given(data=st.data())
def test_workers_make_no_difference_to_any_byte(data: st.DataObject) -> None:
    case = data.draw(cases())
    options = data.draw(options_for(case))
    leg = data.draw(legs(case, options))
    dataset = dataset_of(case.model).lanes(case.lanes)
    place = check_leg(case, replace(leg, workers=0), options, Place(), dataset)
    runs = [run_leg(dataset, replace(leg, workers=workers), options, Place()) for workers in (0, 1, 3)]
    for parts in zip(*runs, strict=True):
        assert all(is_same(part.batches, parts[0].batches) for part in parts)
    after = [run_leg(dataset, replace(leg, workers=workers), options, place) for workers in (0, 3)]
    for parts in zip(*after, strict=True):
        assert is_same(parts[0].batches, parts[1].batches)


@given(data=st.data())
def test_any_batch_can_be_made_again(data: st.DataObject) -> None:
    case = data.draw(cases())
    options = data.draw(options_for(case))
    leg, epoch = Leg(1, data.draw(st.integers(1, 40))), data.draw(st.sampled_from([0, 3]))
    oracle = Epoch(case.model, case.lanes, epoch, wrap=case.wrap)
    coming: list[tuple[int, list[Item | None]]] = []
    try:
        coming += batches_from(oracle, Place(epoch), leg, options, counted=True)
    except Hopeless:
        reject()
    dataset = dataset_of(case.model).lanes(case.lanes)
    loader = dataset.loader(leg.batch_size, workers=0, **vars(options))
    for step in data.draw(st.lists(st.integers(0, max(len(coming) - 1, 0)), max_size=3)):
        if coming:
            check_part(loader.batch_at(epoch, step), *coming[step], 0, 1, case.lanes)
            again = dataset.batch_at(epoch, step, leg.batch_size, **vars(options))
            assert is_same(again, loader.batch_at(epoch, step))
    if options.steps is None:
        with pytest.raises(PlanError, match=f"no step {len(coming)}"):
            loader.batch_at(epoch, len(coming))


# Storage order


def rows(batches: Iterator[Sample] | Sequence[Sample]) -> list[Sample]:
    return [row for batch in batches for row in rows_of(batch)]


def stored_rows(dataset: Dataset, workers: int) -> list[Sample]:
    """Iterate a dataset; what comes out may be samples or batches."""
    return [row for sample in dataset.run(workers=workers) for row in rows_of_item(sample)]


@given(data=st.data(), workers=st.sampled_from([0, 2]))
def test_one_lane_that_is_not_shuffled_is_storage_order(data: st.DataObject, workers: int) -> None:
    model = as_lying(data.draw(cases()).model)
    assume(not begins_again(model))
    dataset = dataset_of(model).lanes(1)
    loader = dataset.loader(data.draw(st.integers(1, 9)), workers=workers)
    assert rows(loader) == stored_rows(dataset, workers)


@given(data=st.data(), workers=st.sampled_from([0, 2]))
def test_lanes_and_shuffles_lose_nothing_that_iterating_gives(data: st.DataObject, workers: int) -> None:
    case = data.draw(cases(paths=[("sample",)]))
    dataset = dataset_of(with_everything(case.model)).lanes(case.lanes)
    got, stored = rows(dataset.loader(7, workers=workers)), stored_rows(dataset, workers)
    assert Counter(map(repr, got)) == Counter(map(repr, stored))


# More samples than are ever looked ahead, read or sent at once

LARGE: dict[str, Model] = {
    "straight": Model(Origin(numbered([700, 0, 1, 2300, 999]), shuffle=Shuffle("shards", 3, window=2))),
    "full": Model(Origin(numbered([700, 0, 1, 2300, 999]), shuffle=Shuffle("full", 3)), (Kept(keep_most),)),
    "forward": Model(Origin(numbered([2000, 1500]), "forward", kind="stream"), (Drawn(noise), Spread(children))),
    "shards": Model(
        Origin(numbered([50, 120] * 12), "shards", Shuffle("shards", 1), kind="forward"), (Packed(11, bins=4),)
    ),
    "mixture": Model(
        Mix(
            (
                Model(Origin(numbered([1000, 800]), shuffle=Shuffle("full", 1)), (Kept(keep_most),)),
                Model(Origin(numbered([700], 10_000), "forward", kind="forward"), (Spread(children),)),
            ),
            Weights.of([3, 1]),
            "drop",
            written=[3, 1],
        ),
        (Drawn(noise), Grouped("tokens", 12)),
    ),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("lanes", [2, 64])
def test_large_datasets_go_on_as_well(name: str, lanes: int) -> None:
    case, options, place = Case(LARGE[name], lanes), Options(), Place()
    dataset = dataset_of(case.model).lanes(lanes)
    for leg in (Leg(1, 32, workers=3, stop=7), Leg(2, 48, stop=9), Leg(1, 32, workers=1, stop=1), Leg(2, 300)):
        place = check_leg(case, leg, options, place, dataset)
    assert place.epoch
