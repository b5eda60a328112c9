"""Which sample comes when is a pure function: permutations, elements, whole shards, lanes, mixtures, digests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import PlanError
from shoal.order import (
    Anchor,
    ElementOrder,
    Ids,
    Located,
    Mixing,
    Part,
    Shuffle,
    StreamOrder,
    Walk,
    Weights,
    add_one_to_digest,
    add_to_digests,
    combine,
    combine_one,
    derive,
    lane_share,
    merge_digests,
    own_lanes,
    permutation,
    permute,
    permute_in_chunks,
    rank_part,
    sample_id,
    sample_ids,
    scramble,
    slot_owner,
)

KEYS = st.integers(0, 2**64 - 1)
#: How many standard deviations a statistic of fixed keys may lie from what chance gives.
FAR = 5.0


def surprise(counts: Any, expected: Any) -> float:
    """Say by how many standard deviations chi-square lies above what chance gives."""
    counts, expected = np.asarray(counts, float).ravel(), np.asarray(expected, float).ravel()
    freedom = len(counts) - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom))


# Keys


@given(parts=st.lists(st.one_of(st.integers(), st.text()), min_size=1, max_size=4), other=st.integers())
def test_a_key_follows_from_its_parts(parts: list[int | str], other: int) -> None:
    assert derive(*parts) == derive(*parts)
    assert 0 <= derive(*parts) < 2**64
    assert derive(*parts) != derive(*parts, other)
    assert derive(*parts[:-1], str(parts[-1])) == derive(*parts) or not isinstance(parts[-1], str)


def test_keys_tell_numbers_from_texts_and_places() -> None:
    keys = [derive("a", 1), derive("a", "1"), derive("a1"), derive(1, "a"), derive("a", 1, 0), derive("a", -1)]
    assert len(set(keys)) == len(keys)


@given(value=KEYS, numbers=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5))
def test_hashes_are_the_same_one_by_one_and_in_arrays(value: int, numbers: list[int]) -> None:
    hashes, alone = np.full(1, value, np.uint64), value
    for number in numbers:
        hashes, alone = combine(hashes, np.array([number])), combine_one(alone, number)
    assert int(hashes[0]) == alone


def test_one_bit_of_a_counter_or_key_changes_half_of_the_hash() -> None:
    counters = np.arange(4096)
    for bit in (0, 1, 7, 31, 62):
        flipped = scramble(counters ^ (1 << bit), 7) ^ scramble(counters, 7)
        rekeyed = scramble(counters, 7 ^ (1 << bit)) ^ scramble(counters, 7)
        for changed in (flipped, rekeyed):
            bits = np.unpackbits(changed.view(np.uint8).reshape(-1, 8), axis=1)
            assert abs(bits.mean() - 0.5) < 0.01
            assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.05


# Permutations


def near(*centres: int) -> set[int]:
    return {centre + step for centre in centres for step in (-2, -1, 0, 1, 2) if centre + step > 0}


SIZES = sorted(
    {*range(1, 200), *range(4090, 4110)}
    | near(*(side * side for side in range(2, 71)), *(side * (side + 1) for side in range(2, 71)))
    | near(*(2**power for power in range(1, 15)), *(3**power for power in range(1, 9)))
)


def test_every_size_is_permuted_without_gap_or_overlap() -> None:
    for size in SIZES:
        for key in (0, derive("test", size)):
            order = permute(np.arange(size), size, key)
            assert order.dtype == np.int64
            assert np.array_equal(np.sort(order), np.arange(size))


@pytest.mark.parametrize("size", [2**20, 2**20 + 1, 1_234_567, 1000 * 1001])
def test_a_large_permutation_hits_everything_once(size: int) -> None:
    counts = np.bincount(permute(np.arange(size), size, 11), minlength=size)
    assert len(counts) == size
    assert (counts == 1).all()


@pytest.mark.parametrize("size", [10**8 + 7, 10**10, 2**40 + 1, 2**53 + 3, 2**62])
def test_no_two_places_of_a_huge_permutation_hold_the_same(size: int) -> None:
    """A function that is no bijection would hit about 200 places of 10**8 twice."""
    spread = (scramble(np.arange(100_000), 1) % np.uint64(size)).astype(np.int64)
    places = np.unique(np.concatenate([np.arange(100_000), size - 1 - np.arange(1000), spread]))
    found = permute(places, size, 5)
    assert found.min() >= 0
    assert found.max() < size
    assert len(np.unique(found)) == len(places)
    assert surprise(np.bincount(found // (size // 64 + 1), minlength=64), len(places) / 64) < FAR


@settings(max_examples=60)
@given(size=st.sampled_from([1, 2, 17, 4096, 4097, 4160, 70_001]), key=KEYS, data=st.data())
def test_any_places_of_a_permutation_can_be_had_alone(size: int, key: int, data: st.DataObject) -> None:
    places = np.array(data.draw(st.lists(st.integers(0, size - 1), max_size=20)), np.int64)
    whole = permute(np.arange(size), size, key)
    assert permute(places, size, key).tolist() == whole[places].tolist()
    if size <= 4096:
        assert whole.tolist() == permutation(size, key).tolist()


def test_all_permutations_of_a_few_are_as_likely() -> None:
    for size, keys in ((2, 4000), (3, 6000), (4, 12_000), (5, 24_000)):
        found = Counter(tuple(permutation(size, key).tolist()) for key in range(keys))
        every = list(permutations(range(size)))
        assert surprise([found[order] for order in every], np.full(len(every), keys / len(every))) < FAR


@pytest.mark.parametrize("size", [16, 100, 4096, 4097, 4100, 4160, 4161, 5000])
def test_permutations_of_neighbouring_keys_look_random(size: int) -> None:
    """Where values go, how neighbours differ, what stays in its place, what two keys have in common."""
    keys, parts = (200, 16) if size > 16 else (4000, 16)
    places = np.arange(size)
    orders = np.array([permute(places, size, key) for key in range(keys)])
    table = np.zeros((parts, parts))
    np.add.at(table, (np.tile(places * parts // size, keys), (orders * parts // size).ravel()), 1)
    margin = np.bincount(places * parts // size)
    assert surprise(table, np.outer(margin, margin) / size * keys) < FAR

    steps = np.diff(orders, axis=1) % size  # 1 to size - 1, all as likely
    counts = np.bincount(((steps - 1) * 15 // (size - 1)).ravel(), minlength=15)
    likely = np.bincount((np.arange(size - 1)) * 15 // (size - 1), minlength=15) / (size - 1) * steps.size
    assert surprise(counts, likely) < FAR
    rising = (np.diff(orders, axis=1) > 0).sum() - keys * (size - 1) / 2
    assert abs(rising) < FAR * np.sqrt(keys * size / 12)

    stays, common = (orders == places).sum(), (orders[1:] == orders[:-1]).sum()
    assert abs(stays - keys) < FAR * np.sqrt(keys)
    assert abs(common - (keys - 1)) < FAR * np.sqrt(keys)

    middle = orders - (size - 1) / 2
    scale = np.sqrt(size) / (middle**2).mean()
    neighbours = (middle[:, 1:] * middle[:, :-1]).mean(axis=1) * scale
    between = (middle[1:] * middle[:-1]).mean(axis=1) * scale
    for correlation in (neighbours, between):
        assert np.abs(correlation).max() < FAR
        assert np.sqrt((correlation**2).mean()) < 1.3


@pytest.mark.parametrize("size", [4097, 4160, 10**6, 10**10])
def test_single_places_of_a_network_are_uniform_over_keys(size: int) -> None:
    keys = 3000
    places = np.array([0, 1, size // 2, size - 1])
    found = np.array([permute(places, size, key) for key in range(keys)])
    for column in found.T:
        assert surprise(np.bincount(column * 60 // size, minlength=60), np.full(60, keys / 60)) < FAR
    pairs = (found[:, 0] * 8 // size) * 8 + found[:, 1] * 8 // size
    assert surprise(np.bincount(pairs, minlength=64), np.full(64, keys / 64)) < FAR
    steps = (found[:, 1] - found[:, 0]) % size
    assert surprise(np.bincount(steps * 60 // size, minlength=60), np.full(60, keys / 60)) < FAR


# Chunks


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5), chunk=st.integers(1, 64), key=KEYS)
def test_chunks_are_permuted_inside_and_stay_where_they_are(lengths: list[int], chunk: int, key: int) -> None:
    sequences = np.repeat(np.arange(len(lengths)), lengths)
    places = np.concatenate([np.arange(length) for length in lengths])
    keys = scramble(sequences, key)
    found = permute_in_chunks(places, np.array(lengths)[sequences], chunk, keys)
    assert (found // chunk == places // chunk).all()
    for number, length in enumerate(lengths):
        mine = sequences == number
        assert np.sort(found[mine]).tolist() == list(range(length))
        alone = permute_in_chunks(places[mine][::-1], np.full(length, length), chunk, keys[mine])
        assert alone[::-1].tolist() == found[mine].tolist()


@pytest.mark.parametrize(("chunk", "length"), [(3, 3), (8, 3), (4, 4)])
def test_all_orders_of_a_chunk_are_as_likely_also_of_a_short_one(chunk: int, length: int) -> None:
    sequences = 6000
    keys = np.repeat(scramble(np.arange(sequences), 3), length)
    places, lengths = np.tile(np.arange(length), sequences), np.full(sequences * length, length)
    orders = permute_in_chunks(places, lengths, chunk, keys).reshape(-1, length)
    found = Counter(map(tuple, orders.tolist()))
    every = list(permutations(range(length)))
    assert surprise([found[order] for order in every], np.full(len(every), sequences / len(every))) < FAR


def test_chunks_of_one_sequence_differ_from_one_another() -> None:
    length, chunk = 8000, 8
    found = permute_in_chunks(np.arange(length), np.full(length, length), chunk, np.full(length, 9, np.uint64)) % chunk
    table = np.zeros((chunk, chunk))
    np.add.at(table, (np.arange(length) % chunk, found), 1)
    assert surprise(table, np.full(chunk * chunk, length / chunk**2)) < FAR
    same = (found.reshape(-1, chunk)[1:] == found.reshape(-1, chunk)[:-1]).sum(axis=1)
    assert abs(same.mean() - 1) < 0.2


# Elements


class Lengths:
    """Lengths of shards, and which of them were asked for."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = np.array(lengths, np.int64)
        self.asked: list[int] = []

    def __call__(self, shards: Ids) -> Ids:
        self.asked += shards.tolist()
        return self._lengths[shards]


def pairs(located: Located) -> list[tuple[int, int]]:
    return list(zip(located.shards.tolist(), located.offsets.tolist(), strict=True))


def everything(lengths: Sequence[int]) -> list[tuple[int, int]]:
    return [(shard, offset) for shard, length in enumerate(lengths) for offset in range(length)]


LENGTHS = st.lists(st.one_of(st.just(0), st.integers(0, 30)), max_size=8)
SHUFFLES = st.one_of(
    st.none(),
    st.builds(Shuffle, st.just("full"), st.integers()),
    st.builds(Shuffle, st.just("shards"), st.integers(), st.integers(1, 9), st.integers(1, 12)),
)


@st.composite
def walks(draw: st.DrawFn, *, wraps: bool | None = None) -> tuple[Walk, list[int]]:
    lengths = draw(LENGTHS)
    wrap = draw(st.booleans()) if wraps is None else wraps
    limit = draw(st.one_of(st.none(), st.integers(0, 80)))
    lanes = draw(st.sampled_from([1, 2, 3, 7, 8, 64]))
    return Walk(draw(SHUFFLES), draw(st.integers(0, 10**6)), len(lengths), lanes, wrap, limit), lengths


@settings(max_examples=300)
@given(made=walks(wraps=False))
def test_an_epoch_holds_every_sample_once(made: tuple[Walk, list[int]]) -> None:
    walk, lengths = made
    total = sum(lengths)
    found = ElementOrder(walk, Lengths(lengths)).locate(np.arange(total + 9))
    there = found.shards >= 0
    count = total if walk.limit is None else min(total, walk.limit)
    assert there.tolist() == [place < count for place in range(total + 9)]
    samples = pairs(Located(*(column[there] for column in found)))
    assert len(set(samples)) == count
    assert set(samples) <= set(everything(lengths))
    assert not found.passes.any()
    if walk.shuffle is None:
        assert samples == everything(lengths)[:count]


@settings(max_examples=200)
@given(made=walks(wraps=True))
def test_passes_follow_one_another_each_with_every_sample(made: tuple[Walk, list[int]]) -> None:
    walk, lengths = made
    size = sum(lengths) if walk.limit is None else min(sum(lengths), walk.limit)
    found = ElementOrder(walk, Lengths(lengths)).locate(np.arange(4 * size + 3))
    if not size:
        assert (found.shards == -1).all()
        return
    for number in range(4):
        one = slice(number * size, (number + 1) * size)
        samples = pairs(Located(*(column[one] for column in found)))
        assert len(set(samples)) == size
        assert set(samples) <= set(everything(lengths))
        assert (found.passes[one] == number).all()
    alone = ElementOrder(Walk(walk.shuffle, walk.epoch, walk.shards, walk.lanes, False, walk.limit), Lengths(lengths))
    assert pairs(alone.locate(np.arange(size))) == pairs(found)[:size]


@settings(max_examples=200)
@given(made=walks(), data=st.data())
def test_an_order_can_be_asked_in_any_way_and_taken_up_anywhere(
    made: tuple[Walk, list[int]], data: st.DataObject
) -> None:
    walk, lengths = made
    places = np.arange(2 * sum(lengths) + 5)
    whole = ElementOrder(walk, Lengths(lengths)).locate(places)
    order = ElementOrder(walk, Lengths(lengths))
    for _ in range(3):
        some = np.array(data.draw(st.lists(st.sampled_from(places.tolist()), max_size=9)), np.int64)
        assert pairs(order.locate(some)) == [pairs(whole)[place] for place in some.tolist()]
    element = data.draw(st.sampled_from(places.tolist()))
    kept = Anchor(*json.loads(json.dumps(order.anchor(element))))
    later = ElementOrder(walk, Lengths(lengths), kept)
    found = later.locate(places[element:])
    for before, after in zip(whole, found, strict=True):
        assert before[element:].tolist() == after.tolist()
    # An anchor of an order that was itself taken up is as good.
    further = data.draw(st.sampled_from(places[element:].tolist()))
    again = ElementOrder(walk, Lengths(lengths), later.anchor(further)).locate(places[further:])
    assert pairs(again) == pairs(whole)[further:]


@settings(max_examples=200)
@given(made=walks(), data=st.data())
def test_up_to_the_horizon_no_further_lengths_are_asked_for(made: tuple[Walk, list[int]], data: st.DataObject) -> None:
    walk, lengths = made
    counts = Lengths(lengths)
    order = ElementOrder(walk, counts)
    element = data.draw(st.integers(0, 2 * sum(lengths) + 3))
    is_there = order.locate(np.array([element])).shards[0] >= 0
    horizon = order.horizon(element)
    assert (horizon > element) == is_there
    if is_there:
        known = set(counts.asked)
        assert (order.locate(np.arange(element, horizon)).shards >= 0).all()
        assert set(counts.asked) <= known


@settings(max_examples=100)
@given(made=walks(), data=st.data())
def test_spans_are_the_windows_of_elements(made: tuple[Walk, list[int]], data: st.DataObject) -> None:
    walk, lengths = made
    places = np.arange(2 * sum(lengths) + 3)
    order = ElementOrder(walk, Lengths(lengths))
    begins, ends = order.spans(places)
    there = order.locate(places).shards >= 0
    assert ((begins <= places) & (places < ends)).tolist() == there.tolist()
    for place in np.flatnonzero(there).tolist():
        assert order.horizon(place) >= ends[place]
        assert order.anchor(place) == order.anchor(int(begins[place]))
        if begins[place]:
            before = order.anchor(int(begins[place]) - 1)
            assert before[:2] != order.anchor(place)[:2]
    some = np.array(data.draw(st.lists(st.sampled_from(places.tolist()), min_size=1, max_size=5)))
    assert order.spans(some)[0].tolist() == begins[some].tolist()
    assert order.spans(some)[1].tolist() == ends[some].tolist()


@pytest.mark.parametrize("shuffle", [None, Shuffle("shards", seed=2, window=4)])
def test_only_the_lengths_of_the_windows_that_are_needed_are_asked_for(shuffle: Shuffle | None) -> None:
    width = 1 if shuffle is None else 4
    walk = Walk(shuffle, epoch=3, shards=100, lanes=8)
    shards = np.arange(100) if shuffle is None else permutation(100, derive("shards", 2, 3, 0))
    counts = Lengths([10] * 100)
    order = ElementOrder(walk, counts)
    order.locate(np.array([0, 5]))
    assert set(counts.asked) == set(shards[:width].tolist())
    element = 505
    window = element // (10 * width)
    order.locate(np.array([element]))
    assert set(counts.asked) == set(shards[: (window + 1) * width].tolist())
    assert len(counts.asked) == len(set(counts.asked))
    anchor = order.anchor(element)
    assert anchor == Anchor(0, window, window * width * 10, -1)
    fresh = Lengths([10] * 100)
    later = ElementOrder(walk, fresh, anchor)
    assert fresh.asked == []
    later.locate(np.array([element]))
    assert fresh.asked == shards[window * width : (window + 1) * width].tolist()
    for asks in (later.locate, lambda elements: later.anchor(int(elements[0]))):
        with pytest.raises(ValueError, match="taken up behind the place"):
            asks(np.array([anchor.start - 1]))


def test_a_full_shuffle_asks_for_each_length_once_and_passes_are_counted_once() -> None:
    counts = Lengths([3, 0, 4] * 10)
    order = ElementOrder(Walk(Shuffle("full"), 0, 30, lanes=8), counts)
    order.locate(np.arange(40))
    order.locate(np.arange(40, 70))
    assert counts.asked == list(range(30))
    counts = Lengths([3, 0, 4] * 10)
    order = ElementOrder(Walk(Shuffle("shards", window=5), 0, 30, lanes=8, wrap=True), counts)
    anchor = order.anchor(70 * 5 + 3)
    assert anchor[0] == 5
    assert anchor.size == 70
    fresh = Lengths([3, 0, 4] * 10)
    ElementOrder(Walk(Shuffle("shards", window=5), 0, 30, lanes=8, wrap=True), fresh, anchor).locate(np.array([353]))
    assert len(fresh.asked) == 5


@pytest.mark.parametrize("wrap", [False, True])
def test_no_lengths_behind_a_limit_are_asked_for(wrap: bool) -> None:
    counts = Lengths([10] * 100)
    order = ElementOrder(Walk(None, 0, 100, lanes=8, wrap=wrap, limit=25), counts)
    assert (order.locate(np.arange(500)).shards >= 0).sum() == (500 if wrap else 25)
    assert order.horizon(24) == 25
    assert order.horizon(400) == (410 if wrap else 25)
    order.anchor(499)
    assert set(counts.asked) == {0, 1, 2}


@settings(max_examples=100)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=9),
    window=st.integers(1, 4),
    chunk=st.integers(1, 10),
    lanes=st.sampled_from([1, 2, 5, 8]),
    epoch=st.integers(0, 99),
)
def test_a_lane_reads_one_run_of_each_window_forward_in_chunks(
    lengths: list[int], window: int, chunk: int, lanes: int, epoch: int
) -> None:
    walk = Walk(Shuffle("shards", 1, window, chunk), epoch, len(lengths), lanes)
    found = ElementOrder(walk, Lengths(lengths)).locate(np.arange(sum(lengths)))
    order = permutation(len(lengths), derive("shards", 1, epoch, 0))
    start = 0
    for low in range(0, len(lengths), window):
        members = order[low : low + window].tolist()
        size = sum(lengths[shard] for shard in members)
        inside = {place: at for at, place in enumerate((s, o) for s in members for o in range(lengths[s]))}
        elements = np.arange(start, start + size)
        shares = []
        for lane in range(lanes):
            mine = elements[elements % lanes == lane]
            run = [inside[found.shards[e], found.offsets[e]] for e in mine.tolist()]
            shares.append(len(run))
            if run:
                assert sorted(run) == list(range(min(run), min(run) + len(run)))
                numbers = [(place - min(run)) // chunk for place in run]
                assert numbers == sorted(numbers)
        assert max(shares) - min(shares) <= 1
        assert sum(shares) == size
        start += size


def test_the_runs_of_a_window_are_dealt_to_lanes_at_random() -> None:
    lanes, epochs = 8, 2000
    dealt = np.zeros((lanes, lanes))
    for epoch in range(epochs):
        order = ElementOrder(Walk(Shuffle("shards", 5, 1, 1), epoch, 1, lanes), Lengths([lanes * 3]))
        dealt[np.arange(lanes), order.locate(np.arange(lanes)).offsets // 3] += 1
    assert surprise(dealt, np.full(lanes * lanes, epochs / lanes)) < FAR


@pytest.mark.parametrize("mode", ["shards", "full"])
def test_epochs_seeds_and_passes_have_nothing_in_common(mode: str) -> None:
    lengths, size = [50] * 100, 5000
    storage = np.concatenate([[0], np.cumsum(lengths)])

    def positions(seed: int, epoch: int) -> Any:
        walk = Walk(Shuffle(mode, seed), epoch, 100, lanes=64, wrap=True)
        found = ElementOrder(walk, Lengths(lengths)).locate(np.arange(2 * size))
        both = storage[found.shards] + found.offsets
        return both[:size], both[size:]

    orders = [order for seed in range(4) for epoch in range(4) for order in positions(seed, epoch)]
    assert all(np.array_equal(np.sort(order), np.arange(size)) for order in orders)
    found = np.corrcoef(np.array(orders))[np.triu_indices(len(orders), 1)]
    # Shards travel as a whole in "shards", so there are but 100 things to compare.
    assert np.abs(found).max() < FAR / np.sqrt(100 if mode == "shards" else size)
    assert abs(found.mean()) < 0.02
    common = np.mean([(a == b).sum() for a, b in pairwise(orders)])
    assert common < 5


def test_lanes_of_one_window_read_from_different_shards() -> None:
    order = ElementOrder(Walk(Shuffle("shards"), 0, 16, lanes=64), Lengths([500] * 16))
    batches = order.locate(np.arange(8000)).shards.reshape(-1, 64)
    assert min(len(set(batch)) for batch in batches[:125].tolist()) == 16


# Ids


def test_every_sample_of_every_pass_has_an_id_of_its_own() -> None:
    shards, offsets, passes = (axis.ravel() for axis in np.meshgrid(np.arange(30), np.arange(50), np.arange(4)))
    found = Located(shards, offsets, passes)
    ids = np.concatenate([sample_ids(found, component) for component in range(3)])
    assert len(np.unique(ids)) == 3 * 30 * 50 * 4
    for at in (0, 17, 5999):
        place = int(shards[at]), int(offsets[at]), int(passes[at])
        assert sample_id(*place, component=2) == int(sample_ids(found, 2)[at])


# Whole shards


def streamed(order: StreamOrder, lane: int, lengths: Sequence[int], windows: int) -> Iterator[tuple[int, int, int]]:
    for window in range(windows):
        turn = order.turn(lane, window)
        if turn is None:
            return
        for offset in range(turn.first, lengths[turn.shard], turn.step):
            yield turn.number, turn.shard, offset


@settings(max_examples=200)
@given(
    lengths=LENGTHS,
    lanes=st.sampled_from([1, 2, 3, 5, 8, 64]),
    shuffled=st.booleans(),
    epoch=st.integers(0, 99),
    wrap=st.booleans(),
)
def test_lanes_share_whole_shards_without_gap_or_overlap(
    lengths: list[int], lanes: int, shuffled: bool, epoch: int, wrap: bool
) -> None:
    order = StreamOrder(Walk(Shuffle(seed=epoch) if shuffled else None, epoch, len(lengths), lanes, wrap))
    windows = -(-len(lengths) // lanes)
    passes = 3 if wrap else 1
    found = [place for lane in range(lanes) for place in streamed(order, lane, lengths, passes * windows)]
    assert len(set(found)) == len(found)
    assert sorted(found) == [(number, *place) for number in range(passes) for place in everything(lengths)]
    for lane in range(lanes):
        turns = [order.turn(lane, window) for window in range(passes * windows)]
        assert None not in turns
        assert order.turn(lane, passes * windows) is None or wrap
        assert [turn.number for turn in turns if turn] == [window // windows for window in range(passes * windows)]


def test_whole_shards_are_shared_evenly_and_otherwise_in_each_window_and_epoch() -> None:
    def deals(seed: int, epoch: int) -> list[tuple[int, ...]]:
        order = StreamOrder(Walk(Shuffle(seed=seed), epoch, 20, lanes=8))
        turns = [[order.turn(lane, window) for lane in range(8)] for window in range(3)]
        assert order.turn(0, 3) is None
        assert sorted(turn.shard for turns_of in turns for turn in set(turns_of) if turn and not turn.first) == list(
            range(20)
        )
        for shards, sharers in ((turns[0], [1] * 8), (turns[2], [2] * 4)):
            assert sorted(Counter(turn.shard for turn in shards if turn).values()) == sharers
        return [tuple(turn.shard for turn in turns_of if turn) for turns_of in turns]

    seen = [deal for seed in range(3) for epoch in range(3) for deal in deals(seed, epoch)]
    assert len(set(seen)) == len(seen)


# Lanes


@settings(max_examples=300)
@given(
    batch_size=st.integers(1, 200),
    world=st.integers(1, 64),
    lanes=st.integers(1, 100),
    first=st.one_of(st.integers(0, 500), st.integers(0, 2**61)),
)
def test_ranks_share_a_batch_without_gap_or_overlap(batch_size: int, world: int, lanes: int, first: int) -> None:
    world = min(world, batch_size, lanes)
    every = [Part(batch_size, rank, world, lanes) for rank in range(world)]
    parts = [rank_part(first, part) for part in every]
    assert sorted(slot for mine, _ in parts for slot in mine.tolist()) == list(range(first, first + batch_size))
    assert {size for _, size in parts} == {max(len(mine) for mine, _ in parts)}
    for part, (mine, _) in zip(every, parts, strict=True):
        assert mine.tolist() == sorted(mine.tolist())
        assert {slot % lanes for slot in mine.tolist()} <= set(own_lanes(part))
        assert (slot_owner(mine, part) == part.rank).all()
    assert sorted(lane for part in every for lane in own_lanes(part)) == list(range(lanes))
    if lanes % world == 0 and batch_size % world == 0:
        assert {len(mine) for mine, _ in parts} == {batch_size // world}


def test_a_slot_never_changes_its_lane_with_the_world() -> None:
    for world in range(1, 17):
        for rank in range(world):
            part = Part(16, rank, world, lanes=16)
            for step in range(4):
                mine, _ = rank_part(step * 16, part)
                assert set((mine % 16).tolist()) == set(own_lanes(part))


@given(count=st.integers(0, 10**6), lanes=st.integers(1, 100))
def test_the_first_samples_are_shared_by_the_lanes(count: int, lanes: int) -> None:
    shares = [lane_share(count, lane, lanes) for lane in range(lanes)]
    assert sum(shares) == count
    assert shares == sorted(shares, reverse=True)
    assert shares[0] - shares[-1] <= 1
    if count <= 1000:
        assert shares == np.bincount(np.arange(count) % lanes, minlength=lanes).tolist()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 4, "lanes": 0}, "at least 1 lane"),
        ({"batch_size": 4, "rank": 2, "world_size": 2}, "rank 2 is not one of the 2 ranks 0 to 1"),
        ({"batch_size": 4, "rank": -1}, "rank -1"),
        ({"batch_size": 4, "world_size": 5}, r"world_size 5 is more than min\(lanes=64, batch_size=4\)"),
        ({"batch_size": 99, "world_size": 65}, r"Dataset.lanes\(n\) sets more lanes"),
    ],
)
def test_parts_that_cannot_be_are_refused(options: dict[str, int], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Part(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "buffer"}, "no shuffle 'buffer'; known are 'shards' and 'full'"),
        ({"window": 0}, "at least 1 shard"),
        ({"chunk": 0}, "1 to 64 samples"),
        ({"chunk": 65}, "1 to 64 samples"),
        ({"cut": "rows"}, "'auto', 'samples', 'shards'"),
        ({"mode": "full", "cut": "shards"}, "cannot cut at whole shards"),
    ],
)
def test_shuffles_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Shuffle(**options)


# Mixtures


WEIGHTS = st.lists(st.one_of(st.just(0.0), st.integers(1, 9), st.floats(0.001, 1000)), min_size=1, max_size=9).filter(
    any
)


def shares_kept(counts: Any, targets: Any) -> bool:
    """Whether draws are as near to their targets as drawing the one furthest behind always keeps them."""
    n = np.count_nonzero(targets)
    behind = sum(1 / k for k in range(2, n + 1))
    return bool(((counts - targets) <= 1 - 1 / n + 1e-9).all() and ((targets - counts) <= behind + 1e-9).all())


@settings(max_examples=100)
@given(weights=WEIGHTS, lanes=st.sampled_from([1, 3, 64]))
def test_shares_are_kept_at_every_prefix(weights: list[float], lanes: int) -> None:
    lane = Mixing(Weights.of(weights), lanes)
    shares = np.array(weights) / sum(weights)
    counts = np.zeros(len(weights))
    for drawn in range(1, 200):
        counts[lane.draw()] += 1
        assert shares_kept(counts, shares * drawn)
        # With two or three components that is less than one sample, either way.
        assert np.count_nonzero(shares) > 3 or np.abs(counts - shares * drawn).max() < 1
    assert (counts[shares == 0] == 0).all()


def test_a_hundred_components_keep_their_shares() -> None:
    for weights in (np.ones(100), 1 / np.arange(1, 101), np.linspace(0, 5, 100), 0.5 ** np.arange(100) + 1e-6):
        lane = Mixing(Weights.of(weights.tolist()), lanes=64)
        shares, counts = weights / weights.sum(), np.zeros(100)
        for drawn in range(1, 3000):
            counts[lane.draw()] += 1
            assert np.abs(counts - shares * drawn).max() < 1.5


def test_weights_are_read_as_users_write_them() -> None:
    assert Weights.of([2]).points == ((0, (1.0,)),)
    assert Weights.of(np.array([3, 1])).points == Weights.of([3, 1]).points == Weights.of((0.75, 0.25)).points
    assert Weights.of(np.array([3, 1], np.float32)).points == Weights.of([3, 1]).points
    schedule = Weights.of([(0, [1, 1]), (10, [3, 1])])
    assert len(schedule) == 2
    assert schedule.points[1] == (10, (0.75, 0.25))


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([], "one of them is above 0"),
        ([0, 0], "one of them is above 0"),
        ([1, -1, 5], "not negative"),
        ([float("nan"), 1], "not negative"),
        ([float("inf"), 1], "not negative"),
        ([(0, [])], "one of them is above 0"),
        ([(5, [1, 1])], "begins with sample 0"),
        ([(0, [1, 1]), (10, [1, 2]), (10, [1, 3])], "samples increase"),
        ([(0, [1, 1]), (10, [1])], "different numbers of weights"),
        (["a", "b"], "cannot be read"),
        ([1, (0, [1])], "cannot be read"),
        ([(0, 1)], "cannot be read"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Weights.of(weights)


SCHEDULES = st.lists(st.integers(1, 60), max_size=4).flatmap(
    lambda steps: st.lists(
        st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any),
        min_size=len(steps) + 1,
        max_size=len(steps) + 1,
    ).map(lambda rows: list(zip(np.cumsum([0, *steps]).tolist(), rows, strict=True)))
)


def integral(weights: Weights, samples: float) -> Any:
    """Sum up shares over samples, one by one, by the middle of each."""
    at = np.arange(0, samples, 0.25) + 0.125
    points = np.array([point for point, _ in weights.points])
    rows = np.array([shares for _, shares in weights.points])
    if weights.ramp:
        return np.array([np.interp(at, points, column).sum() for column in rows.T]) / 4
    return rows[np.searchsorted(points, at, side="right") - 1].sum(axis=0) / 4


@given(schedule=SCHEDULES, ramp=st.booleans(), samples=st.integers(0, 400))
def test_targets_are_the_integral_of_the_schedule(schedule: list[Any], ramp: bool, samples: int) -> None:
    weights = Weights.of(schedule, ramp=ramp)
    assert np.allclose(weights.targets(samples), integral(weights, samples), atol=1e-6)
    assert np.isclose(weights.targets(samples).sum(), samples)


@settings(max_examples=60)
@given(schedule=SCHEDULES, ramp=st.booleans(), lanes=st.sampled_from([1, 2, 8]))
def test_schedules_are_kept_at_every_prefix(schedule: list[Any], ramp: bool, lanes: int) -> None:
    """They count the samples of all lanes, and each lane follows them by itself."""
    weights = Weights.of(schedule, ramp=ramp)
    lane = Mixing(weights, lanes)
    counts = np.zeros(3)
    for drawn in range(1, 150):
        counts[lane.draw()] += 1
        assert np.abs(counts - integral(weights, drawn * lanes) / lanes).max() < 1 + 1e-6


def reshared(weights: Weights, dead: int, start: int, stop: int) -> Any:
    """Sum up the shares that those who are left have of one another, one small step after the other."""
    at = (np.arange(start, stop, 0.01) + 0.005)[:, None]
    points = np.array([point for point, _ in weights.points])
    rows = np.array([shares for _, shares in weights.points])
    rows[:, dead] = 0
    here = np.searchsorted(points, at[:, 0], side="right") - 1
    shares = rows[here]
    if weights.ramp:
        shares = np.stack([np.interp(at[:, 0], points, column) for column in rows.T], axis=1)
    for place in np.flatnonzero(shares.sum(axis=1) <= 0).tolist():
        shares[place] = next((row for row in rows[here[place] :] if row.any()), np.zeros(3))
    return (shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-12)).sum(axis=0) * 0.01


@settings(max_examples=60)
@given(schedule=SCHEDULES, ramp=st.booleans(), drop_at=st.integers(0, 60))
def test_the_part_of_a_dropped_component_goes_to_the_others_in_proportion(
    schedule: list[Any], ramp: bool, drop_at: int
) -> None:
    weights = Weights.of(schedule, ramp=ramp)
    lane = Mixing(weights, lanes=1)
    for _ in range(drop_at):
        lane.draw()
    lane.drop(1)
    counts, due = np.zeros(3), np.zeros(3)
    for drawn in range(drop_at, drop_at + 60):
        chosen = lane.draw()
        due += reshared(weights, 1, drawn, drawn + 1)
        if chosen is None:
            assert due.sum() < drawn + 1 - drop_at
            assert not weights.points[-1][1][0]
            assert not weights.points[-1][1][2]
            return
        assert chosen in (0, 2)
        counts[chosen] += 1
        assert np.abs(counts - due).max() < 1 + 1e-3


def test_when_nobody_is_left_nothing_is_drawn() -> None:
    lane = Mixing(Weights.of([1, 1, 0]), lanes=1)
    lane.drop(0)
    assert [lane.draw() for _ in range(3)] == [1, 1, 1]
    lane.drop(1)
    assert lane.choose() is None
    assert lane.draw() is None  # the third never had a share


def test_those_who_are_left_need_not_wait_for_their_turn() -> None:
    weights = Weights.of([(0, [1, 0, 0]), (100, [0, 1, 3]), (200, [1, 0, 0])])
    lane = Mixing(weights, lanes=2)
    assert [lane.draw() for _ in range(10)] == [0] * 10
    lane.drop(0)
    assert Counter(lane.draw() for _ in range(80)) == {1: 20, 2: 60}
    # What was for a short time the share of one who left is not made up for later.
    early = Mixing(Weights.of([(0, [9, 1, 0]), (50, [0, 9, 1])]), lanes=1)
    early.drop(1)
    assert [early.draw() for _ in range(200)] == [0] * 50 + [2] * 150
    late = Mixing(Weights.of([(0, [1, 1]), (100, [1, 0])]), lanes=1)
    for _ in range(100):
        late.draw()
    late.drop(0)
    assert late.draw() is None  # the other has had its turn


@settings(max_examples=100)
@given(
    schedule=st.one_of(WEIGHTS.filter(lambda weights: len(weights) == 3), SCHEDULES),
    ramp=st.booleans(),
    at=st.integers(0, 120),
    drops=st.dictionaries(st.integers(0, 120), st.integers(0, 2), max_size=2),
)
def test_decisions_are_the_same_after_a_mark_at_any_draw(
    schedule: list[Any], ramp: bool, at: int, drops: dict[int, int]
) -> None:
    weights = Weights.of(schedule, ramp=ramp)
    lane, other = Mixing(weights, lanes=4), Mixing(weights, lanes=4)
    before, after = [], []
    for drawn in range(160):
        if drawn in drops:
            lane.drop(drops[drawn])
            other.drop(drops[drawn])
        if drawn == at:
            mark = json.loads(json.dumps(lane.mark()))
            other = Mixing(weights, lanes=4)
            other.load(mark)
            assert other.mark() == lane.mark()
            copy = lane.copy()
            ahead = [copy.draw() for _ in range(5)]
        before.append(lane.draw())
        after.append(other.draw())
    assert before == after
    drop_soon = any(at < drawn < at + 5 for drawn in drops)
    assert drop_soon or before[at : at + 5] == ahead


def test_choosing_and_counting_is_drawing() -> None:
    one, two = Mixing(Weights.of([5, 3, 2]), 1), Mixing(Weights.of([5, 3, 2]), 1)
    for _ in range(50):
        chosen = one.choose()
        assert chosen == one.choose() == two.draw()
        assert chosen is not None
        one.count(chosen)


@pytest.mark.parametrize("new", [[1, 3], [0, 1], [(0, [1, 0]), (400, [0, 1])]])
def test_new_weights_hold_for_what_is_drawn_after_them(new: list[Any]) -> None:
    lane = Mixing(Weights.of([9, 1]), lanes=1)
    for _ in range(100):
        lane.draw()
    mark = lane.mark()
    weights = Weights.of(new)
    changed = Mixing(weights, lanes=1)
    changed.load(mark, new_weights=True)
    counts, first = np.zeros(2), weights.targets(100)
    for drawn in range(1, 500):
        counts[changed.draw()] += 1
        # Nothing is made up for: what was drawn under the old weights is as it is.
        assert np.abs(counts - (weights.targets(100 + drawn) - first)).max() < 1
    again = Mixing(weights, lanes=1)
    again.load(json.loads(json.dumps(changed.mark())))
    assert [again.draw() for _ in range(50)] == [changed.draw() for _ in range(50)]


def test_lanes_of_one_phase_draw_alike() -> None:
    lanes = [Mixing(Weights.of([3, 1]), lanes=8) for _ in range(8)]
    assert len({tuple(lane.draw() for _ in range(40)) for lane in lanes}) == 1


@settings(max_examples=60)
@given(weights=WEIGHTS, lanes=st.sampled_from([1, 5, 16, 64]), size=st.integers(1, 64))
def test_lanes_in_phases_put_the_shares_into_every_batch(weights: list[float], lanes: int, size: int) -> None:
    """Lane l goes through the same draws as lane 0, from draw l on."""
    mixed = [Mixing(Weights.of(weights), lanes, phase=lane) for lane in range(lanes)]
    drawn = np.array([[lane.draw() for lane in mixed] for _ in range(12)])
    single = Mixing(Weights.of(weights), 1)
    sequence = np.array([single.draw() for _ in range(12 + lanes)])
    shares = np.array(weights) / sum(weights)
    for row in range(12):
        assert drawn[row].tolist() == sequence[row : row + lanes].tolist()
    for at in range(0, 12 * lanes - size if size <= lanes else 0, size):  # a batch that lies in two rows at most
        counts = np.bincount(drawn.ravel()[at : at + size], minlength=len(weights))
        assert np.abs(counts - shares * size).max() < 4
    counts = np.array([np.bincount(column, minlength=len(weights)) for column in drawn.T])
    assert np.abs(counts - shares * 12).max() < 3


def test_a_batch_of_a_mixture_is_mixed_at_the_start_after_new_weights_and_after_a_drop() -> None:
    def batches(lanes: list[Mixing], count: int) -> Any:
        return np.array([[lane.draw() for lane in lanes] for _ in range(count)])

    lanes = [Mixing(Weights.of([6, 1, 1]), 64, phase=lane) for lane in range(64)]
    assert (np.abs((batches(lanes, 20) == 0).sum(axis=1) - 48) <= 1).all()
    changed = [Mixing(Weights.of([2, 1, 1]), 64, phase=lane) for lane in range(64)]
    for lane, old in zip(changed, lanes, strict=True):
        lane.load(json.loads(json.dumps(old.mark())), new_weights=True)
    assert (np.abs((batches(changed, 20) == 0).sum(axis=1) - 32) <= 1).all()
    for lane in changed:
        lane.drop(0)
    assert (np.abs((batches(changed, 20) == 1).sum(axis=1) - 32) <= 1).all()
    again = [Mixing(Weights.of([2, 1, 1]), 64, phase=lane) for lane in range(64)]
    for lane, old in zip(again, changed, strict=True):
        lane.load(old.mark())
    assert batches(again, 20).tolist() == batches(changed, 20).tolist()


@pytest.mark.parametrize(
    "first", [[1, 0], [9, 1], [1, 1], [0, 1], [1, 0, 0], [1, 1, 0], [5, 3, 2, 0, 1]], ids=lambda first: str(first)
)
@pytest.mark.parametrize("ramp", [False, True])
def test_batches_follow_a_schedule_and_no_component_is_drawn_before_its_time(first: list[int], ramp: bool) -> None:
    lanes = 64
    weights = Weights.of([(0, first), (50 * lanes, first), (150 * lanes, first[::-1])], ramp=ramp)
    mixed = [Mixing(weights, lanes, phase=lane) for lane in range(lanes)]
    found = np.array([np.bincount([lane.draw() for lane in mixed], minlength=len(first)) for _ in range(300)])
    expected = np.diff([weights.targets(row * lanes) for row in range(301)], axis=0)
    assert (found[:50, np.array(first) == 0] == 0).all()
    far = np.abs(found - expected).max(axis=1)
    assert np.delete(far, [50, 51, 150, 151]).max() < 8  # right after a step some lanes make up for it
    assert np.abs(found.cumsum(axis=0) - expected.cumsum(axis=0)).max() < 2 * lanes


def test_a_mixture_in_a_mixture_is_in_phase_with_it() -> None:
    outer, inner = Weights.of([1, 1]), Weights.of([1, 1])
    lanes = [(Mixing(outer, 64, phase=lane), Mixing(inner, 64, phase=outer.phases(lane)[1])) for lane in range(64)]
    for _ in range(10):
        row = [(first, second.draw() if first else 0) for first, second in ((a.draw(), b) for a, b in lanes)]
        assert Counter(row) == {(0, 0): 32, (1, 0): 16, (1, 1): 16}


# Digests


@given(ids=st.lists(KEYS, min_size=2, max_size=30, unique=True), lanes=st.integers(1, 5), data=st.data())
def test_digests_are_the_same_however_they_are_put_together(ids: list[int], lanes: int, data: st.DataObject) -> None:
    slots = np.arange(len(ids))
    whole = np.zeros(lanes, np.uint64)
    add_to_digests(whole, slots % lanes, np.array(ids, np.uint64), slots)
    single = [0] * lanes
    for slot in data.draw(st.permutations(slots.tolist())):
        single[slot % lanes] = add_one_to_digest(single[slot % lanes], ids[slot], slot)
    assert single == whole.tolist()
    shuffled = data.draw(st.permutations(single))
    assert merge_digests(shuffled) == merge_digests(single)
    ranks = [merge_digests(single[rank::2]) for rank in range(2)]
    assert merge_digests(int(rank, 16) for rank in ranks) == merge_digests(single)
    assert len(merge_digests(single)) == 16


@given(ids=st.lists(KEYS, min_size=2, max_size=20, unique=True), data=st.data())
def test_a_digest_notices_what_is_swapped_lost_doubled_or_replaced(ids: list[int], data: st.DataObject) -> None:
    def digest(order: Sequence[int]) -> int:
        found = 0
        for index, number in enumerate(order):
            found = add_one_to_digest(found, number, index)
        return found

    one, two = data.draw(st.lists(st.sampled_from(range(len(ids))), min_size=2, max_size=2, unique=True))
    swapped = list(ids)
    swapped[one], swapped[two] = swapped[two], swapped[one]
    doubled = [ids[one] if at == two else number for at, number in enumerate(ids)]
    seen = [digest(ids), digest(swapped), digest(doubled), digest(ids[:-1]), digest([*ids, 0])]
    assert len(set(seen)) == len(seen)


def test_the_order_digest_of_an_epoch_tells_seeds_epochs_and_worlds_apart() -> None:
    def digests(seed: int, epoch: int) -> list[int]:
        order = ElementOrder(Walk(Shuffle("shards", seed), epoch, 20, lanes=8), Lengths([13] * 20))
        slots = np.arange(260)
        made = np.zeros(8, np.uint64)
        add_to_digests(made, slots % 8, sample_ids(order.locate(slots), 0), slots)
        return made.tolist()  # type: ignore[no-any-return]

    seen = [merge_digests(digests(seed, epoch)) for seed in range(3) for epoch in range(3)]
    assert len(set(seen)) == 9
    lanes = digests(0, 0)
    for world in (1, 2, 3, 5, 8):
        parts = [
            int(merge_digests(lanes[lane] for lane in own_lanes(Part(8, rank, world, 8))), 16) for rank in range(world)
        ]
        assert merge_digests(parts) == seen[0]
