"""A loader's state: small, quick to go on from wherever it was, and refused where it does not belong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

import shoal
from shoal.abc import Block, Sample, Shard, Source
from shoal.errors import PlanError, StateError
from shoal.order import merge_digests
from shoal.pipeline import Dataset, Loader, mix
from shoal.pipeline._state import pack
from support.lane_models import numbered, rows_of, with_arrays
from support.lane_sources import ForwardSource, LengthSource, MemorySource, StreamSource

LIMIT = 2**16


class TokenSource(LengthSource):
    """Shards of samples with a few tokens each."""

    def _sample(self, shard: Shard, index: int) -> Sample:
        return {**super()._sample(shard, index), "tokens": np.arange(1 + (index * 31 + len(shard.url)) % 37)}


def some(sample: Sample) -> bool:
    return bool(crc32(sample["__key__"].encode()) & 1)  # of every lane about half


def others(sample: Sample) -> bool:
    return not some(sample)


def dataset(*lengths: int, kind: type[StreamSource] = MemorySource, first: int = 0, name: str = "memory") -> Dataset:
    return Dataset(kind([list(map(with_arrays, shard)) for shard in numbered(lengths, first)], name))


def classes(batches: Any) -> list[int]:
    return [row["cls"] for batch in batches for row in rows_of(batch)]


def state_after(loader: Loader, steps: int) -> dict[str, Any]:
    """Receive some batches, leave the rest, and keep the state as a file would."""
    assert len(list(islice(loader, steps))) == steps
    state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    loader.close()
    return state


# Size


def components(count: int) -> list[Dataset]:
    return [
        Dataset(TokenSource([1000] * (10_000 // count), f"part-{number}")).shuffle("shards", seed=number)
        for number in range(count)
    ]


LARGE: dict[str, Callable[[], Dataset]] = {
    "straight": lambda: components(1)[0],
    "filtered": lambda: components(1)[0].filter(some),
    "packed": lambda: components(1)[0].pack(128),
    "joined": lambda: components(1)[0].pack(128, method="concat"),
    "buckets": lambda: components(1)[0].bucket("tokens", [8, 16, 24], size=8),
    "mixture": lambda: mix(components(100), [1 + number % 7 for number in range(100)]),
    "packed mixture": lambda: mix(components(100), [1 + number % 7 for number in range(100)]).pack(128),
    "filtered mixture": lambda: mix([part.filter(some) for part in components(100)], exhausted="drop"),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_state_is_small_over_many_shards_and_components(name: str) -> None:
    loader = LARGE[name]().loader(512, workers=0, steps=10**6)
    assert len(json.dumps(state_after(loader, 12))) < LIMIT


@pytest.mark.parametrize("name", ["straight", "filtered", "joined", "buckets", "mixture"])
def test_a_state_of_many_lanes_is_small(name: str) -> None:
    loader = LARGE[name]().lanes(1024).loader(2048, workers=0, steps=10**6)
    assert len(json.dumps(state_after(loader, 3))) < LIMIT


def test_lanes_are_shared_out_over_the_states_of_ranks() -> None:
    plan = LARGE["packed"]().lanes(1024)
    for rank in (0, 15):
        loader = plan.loader(1024, rank=rank, world_size=16, workers=0, steps=10**6)
        assert len(json.dumps(state_after(loader, 10))) < LIMIT


# Going on


RESTORED: dict[str, Callable[[Dataset], Dataset]] = {
    "as it lies": lambda d: d,
    "windows": lambda d: d.shuffle("shards"),
    "filtered": lambda d: d.shuffle("shards", window=4).filter(some),
    "spread": lambda d: d.flat_map(lambda sample: [sample, sample]),
    "packed": lambda d: d.shuffle("shards").pack(64, bins=4),
    "mixture": lambda d: mix([d.filter(some), d.filter(others)], [3, 1]),
}


@pytest.mark.parametrize("name", RESTORED)
def test_going_on_reads_no_more_than_what_comes_next(name: str) -> None:
    """Nothing is replayed: what is read and asked for does not grow with the position.

    Lanes of a filtered stream drift apart a little, and bins hold samples of a while ago, so some windows are asked for
    that lie behind.
    """
    lengths, batch_size = [30] * 1000, 60
    make = RESTORED[name]
    loader = make(Dataset(TokenSource(lengths))).lanes(8).loader(batch_size, workers=0)
    states, last = {}, 0
    for last, _ in enumerate(loader, 1):
        states[last] = loader.state_dict() if last in (1, 100) else None
    for step in (1, 100, last):
        source = TokenSource(lengths)
        again = make(Dataset(source)).lanes(8).loader(batch_size, workers=0)
        again.load_state_dict(states[step] or loader.state_dict(step))
        next(iter(again), None)
        again.close()
        assert source.read < 400
        assert source.measured < 64


@pytest.mark.parametrize("step", [1, 40, 79])
def test_a_full_shuffle_asks_for_all_lengths_and_reads_what_comes_next(step: int) -> None:
    source = TokenSource([20] * 400)
    loader = Dataset(source).shuffle("full").loader(100, workers=0)
    state = state_after(loader, step)
    source.read = source.measured = 0
    loader.load_state_dict(state)
    next(iter(loader))
    assert source.measured == 400
    assert source.read <= 200


class CountingSource(Source):
    """Says what is asked of another source."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.asked: Counter[str] = Counter()

    def shards(self) -> Sequence[Shard]:
        return self._source.shards()  # type: ignore[no-any-return]

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        self.asked["open"] += 1
        return self._source.open(shard, start)  # type: ignore[no-any-return]

    def length(self, shard: Shard) -> int:
        self.asked["length"] += 1
        return self._source.length(shard)  # type: ignore[no-any-return]

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        self.asked["sample"] += len(indices)
        return self._source.take(shard, indices)  # type: ignore[no-any-return]

    def fingerprint(self, shard: Shard) -> str:
        return self._source.fingerprint(shard)  # type: ignore[no-any-return]


def write_tars(folder: Path, *lengths: int, suffix: str = ".tar") -> list[str]:
    urls = [str(folder / f"{number:03d}{suffix}") for number in range(len(lengths))]
    for url, shard in zip(urls, numbered(lengths), strict=True):
        with shoal.shards.TarWriter(url) as writer:
            for sample in shard:
                writer.write({"__key__": sample["__key__"], "cls": sample["cls"]})
    return urls


@pytest.mark.parametrize("shuffle", [None, "shards", "full"])
@pytest.mark.parametrize("filtered", [False, True])
def test_tars_are_entered_where_the_run_stopped(tmp_path: Path, shuffle: str | None, filtered: bool) -> None:
    from shoal.sources import TarSource

    urls = write_tars(tmp_path, *[40] * 30)

    def load(source: Source) -> Loader:
        plan = Dataset(source).decode()
        plan = plan if shuffle is None else plan.shuffle(shuffle, window=3)
        return (plan.filter(some) if filtered else plan).lanes(8).loader(16, workers=0)

    batches = list(load(TarSource(urls)))
    for step in (2, len(batches) // 2, len(batches) - 1):
        source = CountingSource(TarSource(urls))
        loader = load(source)
        loader.load_state_dict(state_after(load(TarSource(urls)), step))
        iterator = iter(loader)
        assert classes([next(iterator)]) == classes([batches[step]])
        assert source.asked["open"] == 0
        assert source.asked["sample"] <= 150
        assert source.asked["length"] <= (30 if shuffle == "full" else 12)
        assert classes(iterator) == classes(batches[step + 1 :])


@pytest.mark.parametrize("shuffle", [None, "shards"])
def test_a_source_that_is_read_forward_says_that_it_replays(tmp_path: Path, shuffle: str | None) -> None:
    urls = write_tars(tmp_path, 100, 100, suffix=".tar.gz")
    plan = shoal.read_tar(urls).decode()
    plan = (plan if shuffle is None else plan.shuffle(shuffle)).lanes(2)
    whole = classes(plan.loader(10, workers=0))
    loader = plan.loader(10, workers=0)
    loader.load_state_dict(state_after(plan.loader(10, workers=0), 3))
    with pytest.warns(UserWarning, match=r"\.tar\.gz cannot be entered in the middle.*read again from its beginning"):
        assert classes(loader) == whole[30:]
    assert sorted(whole) == list(range(200))


@pytest.mark.filterwarnings("ignore:.* cannot be entered in the middle")
def test_a_forward_source_that_was_not_drawn_from_since_goes_on_rightly() -> None:
    """Its place comes from the state, not from what was read since."""
    rare = dataset(10, 10, 10, kind=ForwardSource, first=10_000, name="rare")
    plan = mix([dataset(6000), rare], [199, 1]).lanes(2)
    whole = classes(plan.loader(40, workers=0))
    got: list[int] = []
    state = plan.loader(40, workers=0).state_dict()
    for _ in range(60):
        loader = plan.loader(40, workers=0)
        loader.load_state_dict(state)
        got += classes(islice(loader, 1))
        state = loader.state_dict()
        loader.close()
    assert got == whole[: len(got)]


# Which position


def test_the_state_of_an_earlier_step_can_be_asked_for() -> None:
    plan = dataset(50).lanes(4).filter(some)
    loader = plan.loader(2, workers=0)
    batches = list(loader)
    assert 10 < len(batches) < 15
    assert loader.state_dict()["epoch"] == 1
    for step in range(1, len(batches) + 1):
        again = plan.loader(2, workers=0)
        again.load_state_dict(loader.state_dict(step=step))
        assert classes(again) == classes(batches[step:])
    with pytest.raises(StateError, match=r"step 15 is not among the last that were received: \[0, 1, .*, 0\]"):
        loader.state_dict(step=15)


def test_only_the_last_steps_are_remembered() -> None:
    loader = dataset(50).loader(1, workers=0)
    iterator = iter(loader)
    list(islice(iterator, 40))
    assert loader.state_dict(step=25)["slot"] == 25
    with pytest.raises(StateError, match="step 24 is not among"):
        loader.state_dict(step=24)


def test_a_state_can_be_asked_for_before_anything_was_received() -> None:
    plan = dataset(9).lanes(2)
    loader = plan.loader(3, workers=0)
    assert loader.state_dict() == loader.state_dict(step=0)
    again = plan.loader(3, workers=0)
    again.load_state_dict(state_after(loader, 1))
    assert again.state_dict() == again.state_dict(step=1) == loader.state_dict()
    assert again.order_digest() == loader.order_digest()
    assert classes(again) == list(range(3, 9))


def test_a_finished_epoch_has_a_digest_and_is_followed_by_the_next() -> None:
    plan = dataset(30).shuffle("full").lanes(4)
    loader = plan.loader(4, workers=0)
    first = classes(loader)
    digest = loader.order_digest()
    assert int(digest, 16)
    parts = [plan.loader(4, rank=rank, world_size=2, workers=0) for rank in range(2)]
    for part in parts:
        list(part)
    assert merge_digests(int(part.order_digest(), 16) for part in parts) == digest
    again = plan.loader(4, workers=0)
    again.load_state_dict(loader.state_dict())
    assert again.epoch == 1
    second = classes(again)
    assert second == classes(loader)
    assert sorted(second) == sorted(first)
    assert second != first
    assert again.order_digest() == loader.order_digest() != digest


# Weights


def test_weights_may_be_changed_and_hold_from_there_on() -> None:
    def plan(*weights: Any) -> Dataset:
        return mix([dataset(3000), dataset(3000, first=10_000)], weights).lanes(4)

    state = state_after(plan(9, 1).loader(40, workers=0), 10)
    for _ in range(2):  # also where a state is taken before anything was drawn by the new weights
        loader = plan(1, 3).loader(40, workers=0)
        loader.load_state_dict(state)
        state = json.loads(json.dumps(loader.state_dict()))
    iterator = iter(loader)
    for _ in range(3):
        drawn = classes(next(iterator) for _ in range(10))
        assert abs(sum(number < 10_000 for number in drawn) - 100) <= 4
    again = plan(1, 3).loader(40, workers=0)
    again.load_state_dict(loader.state_dict())
    assert classes(islice(again, 20)) == classes(islice(iterator, 20))


def test_a_schedule_may_be_put_in_the_place_of_weights() -> None:
    parts = [dataset(3000), dataset(3000, first=10_000)]
    state = state_after(mix(parts, [1, 1]).lanes(4).loader(40, workers=0), 5)
    loader = mix(parts, [(0, [1, 1]), (400, [0, 1])]).lanes(4).loader(40, workers=0)
    loader.load_state_dict(state)
    drawn = classes(islice(loader, 20))
    assert abs(sum(number < 10_000 for number in drawn[:200]) - 100) <= 4
    assert all(number >= 10_000 for number in drawn[220:])


# Refusals


def plan_of(
    *,
    lengths: Sequence[int] = (20, 20),
    seed: int = 1,
    window: int = 4,
    chunk: int = 8,
    lanes: int = 4,
    mode: str = "shards",
    end: Callable[[Dataset], Dataset] = lambda d: d.filter(some).take(30),
    name: str = "memory",
) -> Dataset:
    return end(dataset(*lengths, name=name).shuffle(mode, seed=seed, window=window, chunk=chunk)).lanes(lanes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lengths": (20, 20, 20)}, "shards was 2 shards with digest .* and is 3 shards"),
        ({"name": "others"}, "shards was 2 shards with digest .* and is 2 shards"),
        ({"seed": 2}, "^the state is of another plan: seed was 1 and is 2$"),
        ({"lanes": 8}, "^the state is of another plan: lanes was 4 and is 8$"),
        ({"lanes": 2}, "^the state is of another plan: lanes was 4 and is 2$"),
        ({"window": 5}, "shuffle was shards, window 4, chunk 8 and is shards, window 5, chunk 8"),
        ({"chunk": 1}, "shuffle was shards, window 4, chunk 8 and is shards, window 4, chunk 1"),
        ({"mode": "full"}, "shuffle was shards, .* and is full"),
        ({"end": lambda d: d.take(30)}, r"stages was .*filter\(some\).* and is \[.take\(30\).\]"),
        ({"end": lambda d: d.filter(others).take(30)}, r"filter\(some\).* and is .*filter\(others\)"),
        ({"end": lambda d: d.filter(some).take(31)}, r"take\(30\).* and is .*take\(31\)"),
    ],
)
def test_a_state_of_another_plan_is_refused_with_what_differs(change: dict[str, Any], words: str) -> None:
    state = state_after(plan_of().loader(4, workers=0), 2)
    loader = plan_of(**change).loader(4, workers=0)
    with pytest.raises(StateError, match=words):
        loader.load_state_dict(state)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (lambda d: d.batch(tokens=9, length="tokens"), lambda d: d.batch(tokens=8, length="tokens"), "9.*8"),
        (lambda d: d.batch(tokens=9, length="tokens"), lambda d: d.batch(bytes=900), "tokens.*900"),
        (lambda d: d.batch(tokens=9, length="tokens"), lambda d: d.batch(tokens=9, length=measured), "'measured'"),
        (
            lambda d: d.batch(tokens=9, length="tokens"),
            lambda d: d.batch(tokens=9, length="tokens", pad={"tokens": 0}),
            r"and is .*\['tokens'\]",
        ),
        (
            lambda d: d.bucket("tokens", [2], size=2),
            lambda d: d.bucket("tokens", [2, 3], size=2),
            r"\(2,\).* and is .*\(2, 3\)",
        ),
        (lambda d: d.pack(8), lambda d: d.pack(8, bins=2), "16.* and is .*2"),
        (lambda d: d.pack(8), lambda d: d.pack(8, method="concat"), "first-fit.* and is .*concat"),
        (lambda d: mix([d, d], exhausted="drop"), lambda d: mix([d, d]), "exhausted was drop and is stop"),
        (
            lambda d: mix([d, d.shuffle("shards", seed=1)]),
            lambda d: mix([d, d.shuffle("shards", seed=2)]),
            "component 1 seed was 1 and is 2",
        ),
        (lambda d: mix([d, d]), lambda d: mix([d, d, d]), "components was"),
        (lambda d: mix([d, d]), lambda d: d, "components was"),
    ],
)
def test_a_state_of_other_stages_or_components_is_refused(
    before: Callable[[Dataset], Dataset], after: Callable[[Dataset], Dataset], words: str
) -> None:
    state = state_after(before(dataset(20, 20)).loader(4, workers=0), 2)
    with pytest.raises(StateError, match=words):
        after(dataset(20, 20)).loader(4, workers=0).load_state_dict(state)


def measured(sample: Sample) -> int:
    return len(sample["tokens"])


def test_a_function_that_has_no_name_is_described_alike_each_time() -> None:
    def plan() -> Dataset:
        return dataset(20).map(partial(dict)).batch(tokens=9, length=partial(measured))

    whole = classes(plan().loader(2, workers=0))
    loader = plan().loader(2, workers=0)
    loader.load_state_dict(state_after(plan().loader(2, workers=0), 1))
    assert classes(loader) == whole[2:]


def test_wrapping_is_part_of_a_plan() -> None:
    state = state_after(dataset(20).loader(4, workers=0, end="wrap", steps=9), 2)
    with pytest.raises(StateError, match="wrap was true and is false"):
        dataset(20).loader(4, workers=0).load_state_dict(state)


class DatedSource(LengthSource):
    """Some of its shards were written later."""

    def __init__(self, lengths: Sequence[int], name: str, later: Sequence[str]) -> None:
        super().__init__(lengths, name)
        self._later = later

    def fingerprint(self, shard: Shard) -> str:
        return str(shard.url in self._later)


def dated(*later: str) -> Loader:
    few, many = DatedSource([3, 3, 3], "few", later), DatedSource([2] * 1000, "many", later)
    return mix([Dataset(few), Dataset(many)], weights=[1, 1]).lanes(4).loader(4, workers=0)


@pytest.mark.parametrize(
    ("later", "named"),
    [
        (["few-2"], "few-2$"),
        (["many-1"], "one of many-1 to many-2$"),
        (["many-0", "few-0"], "few-0; not what it was: many-0$"),
        ([f"many-{number}" for number in range(1000)], r"many-0, one of many-1 to many-2, .* and \d+ more$"),
    ],
)
def test_shards_that_have_changed_are_named_or_their_neighbours_are(later: list[str], named: str) -> None:
    state = state_after(dated(), 2)
    with pytest.raises(StateError, match=f"; not what it was: {named}"):
        dated(*later).load_state_dict(state)


def test_shards_that_were_written_anew_are_noticed(tmp_path: Path) -> None:
    urls = write_tars(tmp_path, 30, 30)
    state = state_after(shoal.read_tar(urls).decode().lanes(4).loader(4, workers=0), 2)
    write_tars(tmp_path, 30, 200)
    words = rf"shards was 2 shards with digest .* and is 2 shards with digest .*; not what it was: {urls[1]}$"
    with pytest.raises(StateError, match=words):
        shoal.read_tar(urls).decode().lanes(4).loader(4, workers=0).load_state_dict(state)
    moved = tmp_path / "moved"
    moved.mkdir()
    again = write_tars(moved, 30, 30)
    loader = shoal.read_tar(again).decode().lanes(4).loader(4, workers=0)
    loader.load_state_dict(state)
    assert classes(loader) == list(range(8, 60))


@pytest.mark.parametrize("filtered", [False, True])
def test_other_lengths_under_the_same_names_are_noticed(filtered: bool) -> None:
    def load(*lengths: int) -> Loader:
        plan = dataset(*lengths).shuffle("shards").lanes(4)
        return (plan.filter(some) if filtered else plan).loader(4, workers=0)

    loader = load(25, 25)
    loader.load_state_dict(state_after(load(20, 20), 3))
    with pytest.raises(StateError, match=r"lane . delivered last is not where it was: the shards have other lengths"):
        list(loader)


def rank_states(plan: Dataset, world_size: int, step: int) -> list[dict[str, Any]]:
    loaders = [plan.loader(8, rank=rank, world_size=world_size, workers=0, steps=9) for rank in range(world_size)]
    return [state_after(loader, step) for loader in loaders]


def test_all_lanes_are_needed() -> None:
    plan = plan_of()
    states = rank_states(plan, 3, 2)
    with pytest.raises(StateError, match=r"rank 1 of 3 does not know 3 of the lanes .*\(lane 0, .*all ranks' states"):
        plan.loader(8, workers=0).load_state_dict(states[1])
    with pytest.raises(StateError, match=r"ranks \[0, 2\] of 3 does not know 1 of the lanes .*\(lane 1, "):
        plan.loader(8, workers=0).load_state_dict(states[::2])
    own = plan.loader(8, rank=1, world_size=3, workers=0, steps=9)
    own.load_state_dict(states[1])
    whole = plan.loader(8, workers=0)
    whole.load_state_dict(states)
    assert set(classes(own)) < set(classes(whole))


def test_states_are_of_one_moment_of_one_run() -> None:
    plan = plan_of()
    early, late = rank_states(plan, 2, 1), rank_states(plan, 2, 2)
    loader = plan.loader(8, workers=0)
    with pytest.raises(StateError, match="not of one moment of one run, they differ in slot: 8, 16"):
        loader.load_state_dict([early[0], late[1]])
    with pytest.raises(StateError, match="they differ in epoch: 0, 1"):
        loader.load_state_dict([early[0], {**early[1], "epoch": 1}])
    with pytest.raises(StateError, match="they differ in plan"):
        loader.load_state_dict([early[0], rank_states(plan_of(seed=2), 2, 1)[1]])
    with pytest.raises(StateError, match="they differ in world_size: 2, 3"):
        loader.load_state_dict([early[0], rank_states(plan, 3, 1)[1]])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda state: {**state, "position": state["position"][:-9]}, "damaged"),
        (lambda state: {**state, "position": state["position"][:20] + "0" + state["position"][21:]}, "damaged"),
        (lambda state: {**state, "plan": ""}, "damaged"),
        (lambda state: {**state, "position": None}, "damaged"),
        (lambda state: {**state, "position": pack({"a": 1})}, "damaged: its position is not what"),
        (lambda state: {**state, "position": pack([None])}, "damaged: its position is not what"),
        (lambda state: {**state, "epoch": "x"}, "damaged: its epoch is 'x'"),
        (lambda state: {name: value for name, value in state.items() if name != "slot"}, "damaged: its slot is None"),
        (lambda state: {**state, "shoal": 2}, "the state is of version 2, this program reads version 1"),
        (lambda state: {**state, "shoal": None}, "version None"),
        (lambda state: {}, "this is not the state of a loader"),
        (lambda state: [state, None], "this is not the state of a loader"),
        (lambda state: None, "this is not the state of a loader"),
        (lambda state: "text", "this is not the state of a loader"),
        (lambda state: [], "there is no state to load"),
    ],
)
def test_what_is_no_state_is_refused(damage: Callable[[dict[str, Any]], Any], words: str) -> None:
    plan = plan_of()
    state = state_after(plan.loader(4, workers=0), 2)
    with pytest.raises(StateError, match=words):
        plan.loader(4, workers=0).load_state_dict(damage(state))


def test_a_refused_state_changes_nothing() -> None:
    plan = plan_of()
    whole = classes(plan.loader(4, workers=0))
    loader = plan.loader(4, workers=0)
    iterator = iter(loader)
    got = classes(islice(iterator, 2))
    before = loader.state_dict()
    with pytest.raises(StateError):
        loader.load_state_dict(state_after(plan_of(seed=3).loader(4, workers=0), 1))
    with pytest.raises(StateError):
        loader.load_state_dict({**before, "plan": "?"})
    assert loader.state_dict() == before
    assert got + classes(iterator) == whole


# Ways of reading


class Changing(ForwardSource):
    """A source beside which an index appears."""

    has_index = False

    @property
    def seekable(self) -> bool:  # type: ignore[override]
        return self.has_index


@pytest.mark.filterwarnings("ignore:.* cannot be entered in the middle")
@pytest.mark.parametrize("shuffle", [None, "shards"])
@pytest.mark.parametrize("appears", [True, False])
def test_an_index_that_appears_or_goes_away_changes_no_order(shuffle: str | None, appears: bool) -> None:
    def plan(has_index: bool) -> Dataset:
        made = dataset(20, 20, kind=Changing)
        made._plan.source.has_index = has_index  # type: ignore[union-attr]
        return (made if shuffle is None else made.shuffle(shuffle, window=2)).lanes(4)

    whole = classes(plan(not appears).loader(4, workers=0))
    loader = plan(appears).loader(4, workers=0)
    loader.load_state_dict(state_after(plan(not appears).loader(4, workers=0), 3))
    assert classes(loader) == whole[12:]


def test_a_stream_whose_lengths_nobody_knows_cannot_be_picked_from() -> None:
    with pytest.raises(PlanError, match="cannot tell the lengths"):
        list(dataset(5, kind=StreamSource).shuffle("full").loader(2))
