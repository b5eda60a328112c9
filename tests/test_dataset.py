"""A dataset is a plan; iterating keeps storage order, and loading deals out the same global batches to any world."""

from __future__ import annotations

import dataclasses
import gc
import gzip
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.abc import Block, Sample, Shard, Source
from shoal.errors import (
    CorruptShardError,
    DecodeError,
    DuplicateFieldError,
    MissingFieldError,
    PlanError,
    TruncatedShardError,
    TrustError,
    UrlNotFoundError,
)
from shoal.order import ElementOrder, Shuffle, Walk
from shoal.pipeline import Dataset
from support.engine import begun_threads
from support.tars import END, member, pack, write_shard


def make(folder: Path, *lengths: int, start: int = 0) -> list[str]:
    """Write shards with so many samples, numbered through all of them."""
    urls, number = [], start
    for shard, length in enumerate(lengths):
        samples = [(f"{n:05d}", {"cls": b"%d" % n, "txt": b"t%d" % n}) for n in range(number, number + length)]
        urls.append(write_shard(folder / f"{shard:03d}.tar", samples))
        number += length
    return urls


def classes(samples: Any) -> list[int]:
    return [int(sample["cls"]) for sample in samples]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return make(tmp_path_factory.mktemp("shards"), 7, 0, 100, 1, 30)


# Plans


def test_nothing_is_read_before_iterating(tmp_path: Path) -> None:
    calls: list[Sample] = []
    url = str(tmp_path / "later-{0..1}.tar")
    dataset = shoal.read_tar(url).decode().map(lambda s: calls.append(s) or s).filter(bool).take(3).shuffle("full")
    loader = dataset.loader(2)
    iterator = iter(dataset)
    assert calls == []
    with pytest.raises(UrlNotFoundError):
        next(iterator)
    with pytest.raises(UrlNotFoundError):
        next(iter(loader))
    for number in range(2):
        write_shard(tmp_path / f"later-{number}.tar", [("a", {"cls": b"%d" % number})])
    assert classes(dataset) == [0, 1]


def test_globs_are_expanded_when_needed(tmp_path: Path) -> None:
    dataset = shoal.read_tar(tmp_path / "*.tar")
    make(tmp_path, 2, 3)
    assert classes(dataset) == list(range(5))
    assert [shard.url for shard in dataset.shards] == [str(tmp_path / "000.tar"), str(tmp_path / "001.tar")]


def test_each_method_gives_a_new_dataset_and_changes_none(shards: list[str]) -> None:
    dataset = shoal.read_tar(shards).decode()
    before = repr(dataset)
    derived: list[Dataset] = [
        dataset.map(dict), dataset.filter(lambda s: False), dataset.take(1), dataset.batch(2), dataset.shuffle("full"),
        dataset.select("cls"), dataset.flat_map(lambda s: []), dataset.decode(),
    ]  # fmt: skip
    assert repr(dataset) == before
    assert len({repr(each) for each in [dataset, *derived]}) == 9
    assert classes(dataset) == list(range(138))
    with pytest.raises(dataclasses.FrozenInstanceError):
        dataset._plan.stages = ()  # type: ignore[misc]


def test_iterating_twice_gives_the_same(shards: list[str]) -> None:
    dataset = shoal.read_tar(shards).decode().filter(lambda s: s["cls"] % 3)
    assert classes(dataset) == classes(dataset) == [n for n in range(138) if n % 3]
    one, two = iter(dataset), iter(dataset)
    assert [next(one)["cls"], next(two)["cls"], next(one)["cls"]] == [1, 1, 2]


# Fields


def test_fields_may_have_alternatives(tmp_path: Path) -> None:
    url = write_shard(
        tmp_path / "a.tar", [("a", {"jpg": b"1", "x": b""}), ("b", {"jpeg": b"2"}), ("c", {"jpg": b"3", "jpeg": b"4"})]
    )
    assert list(shoal.read_tar(url, fields=["jpg;jpeg"])) == [
        {"__key__": "a", "jpg": b"1"},
        {"__key__": "b", "jpg": b"2"},
        {"__key__": "c", "jpg": b"3"},
    ]
    assert list(shoal.read_tar(url).select("jpg;jpeg")) == list(shoal.read_tar(url, fields=["jpg;jpeg"]))


@pytest.mark.parametrize("name", ["a.tar", "a.tgz"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_missing_field_is_an_error_that_names_shard_and_key(tmp_path: Path, name: str, shuffled: bool) -> None:
    url = str(tmp_path / name)
    with shoal.shards.TarWriter(url) as writer:
        writer.write({"__key__": "good", "txt": "1", "cls": 1})
        writer.write({"__key__": "bad", "txt": "1", "json": []})
    dataset = shoal.read_tar(url, fields=["txt", "cls;class"])
    with pytest.raises(MissingFieldError) as caught:
        list(dataset.shuffle("full").loader(1) if shuffled else dataset)
    error = caught.value
    assert isinstance(error, KeyError)
    assert (error.shard, error.key, error.field) == (url, "bad", "cls;class")
    assert all(word in str(error) for word in (url, "'bad'", "cls;class", "txt"))


def test_fields_in_one_string_are_refused_with_a_hint(shards: list[str]) -> None:
    with pytest.raises(PlanError, match=r"must be a list of names"):
        shoal.read_tar(shards, fields="cls")


def test_undecoded_fields_are_bytes_everywhere(shards: list[str]) -> None:
    seen: list[type] = []
    dataset = shoal.read_tar(shards[:1]).map(lambda s: seen.append(type(s["cls"])) or s)
    assert {type(sample["txt"]) for sample in dataset} == {bytes} == set(seen)
    assert {type(sample["txt"]) for sample in shoal.read_tar(shards[:1])} == {bytes}
    assert {type(value) for batch in shoal.read_tar(shards[:1]).loader(2) for value in batch["txt"]} == {bytes}


# Stages


def test_decode_goes_by_extension_and_can_be_limited(tmp_path: Path) -> None:
    url = write_shard(tmp_path / "a.tar", [("a", {"cls": b"7", "json": b"[1]", "own": b"xyz", "pkl": b"junk"})])
    dataset = shoal.read_tar(url)
    assert list(dataset.decode(only=["cls"])) == [
        {"__key__": "a", "cls": 7, "json": b"[1]", "own": b"xyz", "pkl": b"junk"}
    ]
    assert list(dataset.select("own").decode(codecs={"own": len})) == [{"__key__": "a", "own": 3}]
    with pytest.raises(TrustError):
        list(dataset.decode())


def test_map_filter_flat_map_and_take(shards: list[str]) -> None:
    dataset = shoal.read_tar(shards).decode()
    assert list(dataset.map(lambda s: {"double": 2 * s["cls"]}).take(2)) == [
        {"__key__": "00000", "double": 0},
        {"__key__": "00001", "double": 2},
    ]
    assert classes(dataset.filter(lambda s: s["cls"] > 135)) == [136, 137]
    copies = dataset.take(2).flat_map(lambda s: ({"n": n} for n in range(s["cls"] + 1)))
    assert list(copies) == [
        {"__key__": "00000-0", "n": 0},
        {"__key__": "00001-0", "n": 0},
        {"__key__": "00001-1", "n": 1},
    ]
    assert list(dataset.flat_map(lambda s: [])) == []
    assert list(dataset.take(0)) == []
    assert len(list(dataset.take(1000))) == 138
    assert classes(dataset.take(5).filter(lambda s: s["cls"] % 2)) == [1, 3]
    assert classes(dataset.filter(lambda s: s["cls"] % 2).take(2)) == [1, 3]
    with pytest.raises(PlanError):
        dataset.take(-1)


def test_a_key_given_by_the_function_is_kept(shards: list[str]) -> None:
    dataset = shoal.read_tar(shards).decode().take(1)
    assert list(dataset.map(lambda s: {"__key__": "new", "x": 1})) == [{"__key__": "new", "x": 1}]
    assert list(dataset.flat_map(lambda s: [{"__key__": "new"}, {}])) == [{"__key__": "new"}, {"__key__": "00000-1"}]


def test_count_needs_no_pass_where_stages_keep_the_number(shards: list[str]) -> None:
    def fail(sample: Sample) -> Sample:
        raise ZeroDivisionError

    assert shoal.read_tar(shards).map(fail).count() == 138
    assert shoal.read_tar(shards).decode().filter(lambda s: s["cls"] < 9).count() == 9
    assert shoal.read_tar(shards).take(5).count() == 5


def test_batches_are_stacked_and_the_last_may_be_short(shards: list[str]) -> None:
    dataset = shoal.read_tar(shards).decode().take(5)
    batches = list(dataset.batch(2))
    assert [batch["cls"].tolist() for batch in batches] == [[0, 1], [2, 3], [4]]
    assert batches[0]["__key__"] == ["00000", "00001"]
    assert batches[0]["txt"] == ["t0", "t1"]
    assert len(list(dataset.batch(2, partial=False))) == 2
    assert [batch["cls"].sum() for batch in dataset.batch(3).map(lambda b: b)] == [3, 7]
    with pytest.raises(PlanError):
        dataset.batch(0)


def test_samples_with_other_fields_make_no_batch(tmp_path: Path) -> None:
    url = write_shard(tmp_path / "a.tar", [("a", {"x": b"1"}), ("b", {"y": b"1"})])
    with pytest.raises(MissingFieldError, match="differ in their fields: x, y") as caught:
        list(shoal.read_tar(url).batch(2))
    assert caught.value.key == "b"


@pytest.mark.parametrize("wrong", [None, 7, "text", [1]])
def test_a_function_that_gives_no_sample_is_refused(shards: list[str], wrong: Any) -> None:
    with pytest.raises(PlanError, match="a sample is a dict") as caught:
        list(shoal.read_tar(shards).map(lambda s: wrong))
    assert ("use filter" in str(caught.value)) == (wrong is None)
    with pytest.raises(PlanError, match="a sample is a dict"):
        list(shoal.read_tar(shards).flat_map(lambda s: [wrong]))


def broken(sample: Sample) -> Sample:
    if sample["cls"] == 12:
        raise ZeroDivisionError("twelve")
    return sample


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("add", "stage"),
    [
        (lambda d: d.map(broken), "map(broken)"),
        (lambda d: d.filter(broken), "filter(broken)"),
        (lambda d: d.flat_map(lambda s: [broken(s)]), "flat_map("),
        (lambda d: d.filter(lambda s: True).map(broken).filter(bool), "map(broken)"),
    ],
)
def test_an_error_says_in_which_stage_at_which_sample_of_which_shard(
    shards: list[str], workers: int, add: Callable[[Dataset], Dataset], stage: str
) -> None:
    dataset = add(shoal.read_tar(shards).decode())
    with pytest.raises(ZeroDivisionError) as caught:
        list(dataset.run(workers=workers))
    (note,) = caught.value.__notes__
    assert all(word in note for word in (stage, "'00012'", shards[2]))
    with pytest.raises(ZeroDivisionError) as caught:
        list(dataset.shuffle("full").loader(4, workers=workers))
    (note,) = caught.value.__notes__
    assert all(word in note for word in (stage, "'00012'", shards[2]))


def test_the_place_is_said_without_a_shard_where_none_is_known(shards: list[str]) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        list(shoal.read_tar(shards).decode().take(20).map(broken))
    (note,) = caught.value.__notes__
    assert "'00012'" in note
    assert "None" not in note


def test_shards_with_the_same_keys_are_all_named(tmp_path: Path) -> None:
    urls = [write_shard(tmp_path / f"{n}.tar", [("k", {"cls": b"%d" % n})]) for n in (11, 12)]
    with pytest.raises(ZeroDivisionError) as caught:
        list(shoal.read_tar(urls).decode().map(broken).shuffle("full").loader(2))
    assert urls[1] in caught.value.__notes__[0]


def test_a_decoding_error_carries_its_place_as_attributes(tmp_path: Path) -> None:
    url = write_shard(tmp_path / "a.tar", [("a", {"cls": b"7"}), ("b", {"cls": b"seven"})])
    with pytest.raises(DecodeError) as caught:
        list(shoal.read_tar(url).decode())
    assert (caught.value.shard, caught.value.key, caught.value.field) == (url, "b", "cls")
    assert all(word in str(caught.value) for word in (url, "'b'", "'cls'"))


# Writing


def test_write_tar_writes_what_iterating_gives(tmp_path: Path, shards: list[str]) -> None:
    dataset = (
        shoal.read_tar(shards).decode().filter(lambda s: s["cls"] % 2).map(lambda s: {**s, "json": {"n": s["cls"]}})
    )
    written = dataset.write_tar(tmp_path / "out-%03d.tar", maxcount=20)
    assert [shard.count for shard in written] == [20, 20, 20, 9]
    assert sorted(os.listdir(tmp_path)) == sorted(f"out-00{n}.tar{end}" for n in range(4) for end in ("", ".index"))
    again = shoal.read_tar([shard.url for shard in written])
    assert again.count() == 69
    assert list(again.decode()) == list(dataset)
    before = [Path(shard.url).read_bytes() for shard in written]
    again.write_tar(tmp_path / "copy-%03d.tar", maxcount=20)
    assert [(tmp_path / f"copy-{n:03d}.tar").read_bytes() for n in range(4)] == before


# Engine


STAGES: list[Callable[[Dataset], Dataset]] = [
    lambda d: d.map(lambda s: {**s, "sum": s["cls"] + 1}),
    lambda d: d.filter(lambda s: s["cls"] % 3),
    lambda d: d.flat_map(lambda s: [{**s, "__key__": f"{s['__key__']}-{n}"} for n in range(s["cls"] % 3)]),
    lambda d: d.take(37),
    lambda d: d.select("cls"),
]


@settings(max_examples=30, deadline=None)
@given(stages=st.lists(st.sampled_from(STAGES), max_size=4), workers=st.sampled_from([1, 2, 3, 8, "auto"]))
def test_results_do_not_depend_on_the_number_of_workers(
    shards: list[str], stages: list[Callable[[Dataset], Dataset]], workers: int | str
) -> None:
    dataset = shoal.read_tar(shards).decode()
    for stage in stages:
        dataset = stage(dataset)
    assert list(dataset.run(workers=workers)) == list(dataset.run(workers=0))


@pytest.mark.parametrize("workers", [1, 4, "auto"])
def test_leaving_early_leaves_no_threads(shards: list[str], workers: int | str) -> None:
    before = threading.enumerate()
    dataset = shoal.read_tar(shards).decode()
    for sample in dataset.run(workers=workers):
        assert begun_threads(before)
        assert sample["cls"] == 0
        break
    gc.collect()
    assert begun_threads(before) == []
    for _ in dataset.shuffle("full").loader(8, workers=workers):
        break
    gc.collect()
    assert begun_threads(before) == []
    with pytest.raises(ZeroDivisionError):
        list(dataset.map(broken).run(workers=workers))
    gc.collect()
    assert begun_threads(before) == []


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("name", ["damaged.tar", "damaged.tgz"])
def test_samples_before_a_damaged_place_come_before_the_error(tmp_path: Path, workers: int, name: str) -> None:
    good = pack([(f"{n:05d}.cls", b"%d" % n) for n in range(200)], blocking=False)[: -len(END)]
    data = good + member("x.cls", b"1") + b"\xff" * 512 + END
    (tmp_path / name).write_bytes(data if name.endswith("tar") else gzip.compress(data))
    got = []
    with pytest.raises(CorruptShardError) as caught:
        got.extend(shoal.read_tar(tmp_path / name).decode().map(dict).run(workers=workers))
    assert classes(got) == list(range(200))
    assert caught.value.shard == str(tmp_path / name)


def test_shards_after_a_sound_one_are_read_until_the_damaged(tmp_path: Path) -> None:
    urls = make(tmp_path, 3, 3)
    Path(urls[1]).write_bytes(b"")
    got = []
    with pytest.raises(TruncatedShardError, match="empty"):
        got.extend(shoal.read_tar(urls))
    assert classes(got) == [0, 1, 2]


def test_a_field_twice_is_an_error_of_iterating(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(pack([("a.x", b"1"), ("b.x", b"1"), ("b.X", b"1")]))
    iterator = iter(shoal.read_tar(tmp_path / "a.tar"))
    assert next(iterator)["__key__"] == "a"
    with pytest.raises(DuplicateFieldError):
        next(iterator)


@pytest.mark.parametrize("workers", [-1, "many", 1.5, None])
def test_a_number_of_workers_that_is_none_is_refused(shards: list[str], workers: Any) -> None:
    with pytest.raises(PlanError, match="workers="):
        list(shoal.read_tar(shards).decode().run(workers=workers))
    with pytest.raises(PlanError, match="workers="):
        list(shoal.read_tar(shards).decode().filter(bool).run(workers=workers))
    with pytest.raises(PlanError, match="workers="):
        list(shoal.read_tar(shards).decode().loader(2, workers=workers))


# Loading


SHUFFLES = [None, Shuffle("full", seed=3), Shuffle("shards", seed=3, window=2)]


def shuffled(dataset: Dataset, shuffle: Shuffle | None) -> Dataset:
    return dataset if shuffle is None else dataset.shuffle(shuffle.mode, seed=shuffle.seed, window=shuffle.window)


def real(batch: Sample) -> list[int]:
    """The rows of a batch that are no padding."""
    values = batch["cls"].tolist()
    return [
        value for value, is_real in zip(values, batch.get("__mask__", [True] * len(values)), strict=True) if is_real
    ]


class Counting(Source):
    """Numbers in memory, dealt into shards."""

    def __init__(self, lengths: list[int]) -> None:
        self._lengths = lengths
        self._starts = np.cumsum([0, *lengths]).tolist()

    def shards(self) -> list[Shard]:
        return [Shard(str(number)) for number in range(len(self._lengths))]

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        yield Block(self.take(shard, range(start, self.length(shard))), (shard,))

    def length(self, shard: Shard) -> int:
        return self._lengths[int(shard.url)]

    def take(self, shard: Shard, indices: Any) -> list[Sample]:
        first = self._starts[int(shard.url)]
        return [{"__key__": str(first + index), "cls": first + index} for index in indices]


def epoch_order(lengths: list[int], shuffle: Shuffle | None, epoch: int, passes: int = 1) -> list[int]:
    """List the samples of an epoch in their order, counted through all shards."""
    walk = Walk(shuffle, epoch, len(lengths), lanes=64, wrap=passes > 1)
    found = ElementOrder(walk, lambda shards: np.array(lengths)[shards]).locate(np.arange(passes * sum(lengths)))
    starts = np.cumsum([0, *lengths])
    return (starts[found.shards] + found.offsets).tolist()  # type: ignore[no-any-return]


LENGTHS = st.lists(st.integers(0, 12), min_size=1, max_size=6).filter(any)


@settings(max_examples=100)
@given(
    lengths=LENGTHS,
    batch_size=st.integers(1, 9),
    world=st.integers(1, 5),
    lanes=st.sampled_from([5, 8, 64]),
    shuffle=st.sampled_from(SHUFFLES),
)
def test_every_world_gets_the_same_global_batches_in_equal_steps(
    lengths: list[int], batch_size: int, world: int, lanes: int, shuffle: Shuffle | None
) -> None:
    world = min(world, batch_size)
    dataset = shuffled(Dataset(Counting(lengths)), shuffle).lanes(lanes)
    alone = dataset.loader(batch_size, workers=0)
    ranks = [dataset.loader(batch_size, rank=rank, world_size=world, workers=0) for rank in range(world)]
    assert {loader.steps for loader in (alone, *ranks)} == {-(-sum(lengths) // batch_size)}
    for _ in range(2):
        whole = [real(batch) for batch in alone]
        parts = [list(rank) for rank in ranks]
        assert sorted(number for batch in whole for number in batch) == list(range(sum(lengths)))
        assert {len(part) for part in parts} == {len(whole)} == {alone.steps}
        for step, batch in enumerate(whole):
            assert len(batch) == batch_size or step == len(whole) - 1
            assert sorted(number for part in parts for number in real(part[step])) == sorted(batch)
            assert len({len(part[step]["cls"]) for part in parts}) == 1
            assert all(len(part[step]["__key__"]) == len(part[step]["cls"]) for part in parts)


@settings(max_examples=60)
@given(
    lengths=LENGTHS,
    batch_size=st.integers(2, 9),
    world=st.integers(2, 5),
    lanes=st.sampled_from([5, 8, 64]),
    shuffle=st.sampled_from(SHUFFLES),
)
def test_ranks_share_filtered_batches_where_the_steps_are_given(
    lengths: list[int], batch_size: int, world: int, lanes: int, shuffle: Shuffle | None
) -> None:
    """Lanes end at different times then. Alone, batches without a sample are passed over; ranks pad them."""
    world = min(world, batch_size)
    dataset = shuffled(Dataset(Counting(lengths)), shuffle).lanes(lanes).filter(lambda s: s["cls"] % 4 != 1)
    alone = dataset.loader(batch_size, workers=0)
    assert alone.steps is None
    whole, slots = [], 0
    for batch in alone:
        whole.append(real(batch))
        slots = alone.state_dict()["slot"]
    assert sorted(number for batch in whole for number in batch) == [n for n in range(sum(lengths)) if n % 4 != 1]
    steps = slots // batch_size
    options = {"world_size": world, "workers": 0}
    parts = [list(dataset.loader(batch_size, rank=rank, steps=steps, **options)) for rank in range(world)]
    assert {len(part) for part in parts} == {steps}
    together = [sorted(number for part in parts for number in real(part[step])) for step in range(steps)]
    assert [batch for batch in together if batch] == [sorted(batch) for batch in whole]
    assert all(len({len(part[step]["cls"]) for part in parts}) == 1 for step in range(steps))
    with pytest.raises(PlanError, match=r"Give steps=, or start torch\.distributed"):
        next(iter(dataset.loader(batch_size, rank=0, **options)))


@settings(max_examples=60, deadline=None)
@given(lengths=LENGTHS, batch_size=st.integers(1, 9), world=st.integers(1, 4), shuffle=st.sampled_from(SHUFFLES))
def test_dropping_the_end_keeps_only_full_batches(
    lengths: list[int], batch_size: int, world: int, shuffle: Shuffle | None
) -> None:
    world = min(world, batch_size)
    dataset = shuffled(Dataset(Counting(lengths)), shuffle)
    parts = [
        list(dataset.loader(batch_size, rank=rank, world_size=world, end="drop", workers=0)) for rank in range(world)
    ]
    assert {len(part) for part in parts} == {sum(lengths) // batch_size}
    rows = [number for part in parts for batch in part for number in real(batch)]
    assert len(rows) == len(set(rows)) == sum(lengths) // batch_size * batch_size


@settings(max_examples=60, deadline=None)
@given(
    lengths=LENGTHS,
    batch_size=st.integers(1, 9),
    world=st.integers(1, 4),
    steps=st.integers(0, 12),
    shuffle=st.sampled_from(SHUFFLES),
)
def test_wrapping_goes_on_with_the_next_epoch_until_the_steps_are_done(
    lengths: list[int], batch_size: int, world: int, steps: int, shuffle: Shuffle | None
) -> None:
    world = min(world, batch_size)
    dataset = shuffled(Dataset(Counting(lengths)), shuffle)
    options = {"world_size": world, "steps": steps, "end": "wrap", "workers": 0}
    parts = [list(dataset.loader(batch_size, rank=rank, **options)) for rank in range(world)]
    assert {len(part) for part in parts} == {steps}
    stream = epoch_order(lengths, shuffle, 0, passes=steps * batch_size // sum(lengths) + 2)
    for step in range(steps):
        rows = sorted(number for part in parts for number in real(part[step]))
        assert rows == sorted(stream[step * batch_size : (step + 1) * batch_size])


def test_a_world_larger_than_the_dataset_takes_equal_steps_too() -> None:
    filtered = Dataset(Counting([3])).filter(lambda s: s["cls"] == 1)
    for dataset, steps in ((Dataset(Counting([1])), None), (filtered, 1)):
        parts = [list(dataset.loader(4, rank=rank, world_size=4, steps=steps, workers=0)) for rank in range(4)]
        assert [len(part) for part in parts] == [1, 1, 1, 1]
        assert sum(len(real(part[0])) for part in parts) == 1
        assert all(part[0]["cls"].tolist() == [parts[0][0]["cls"][0]] for part in parts)


def test_shards_are_loaded_like_any_source(shards: list[str]) -> None:
    for shuffle in SHUFFLES:
        dataset = shuffled(shoal.read_tar(shards).decode(), shuffle)
        for workers in (0, 2):
            loader = dataset.loader(16, workers=workers)
            order = [number for batch in loader for number in real(batch)]
            assert order == epoch_order([7, 0, 100, 1, 30], shuffle, 0)
            assert sorted(order) == list(range(138))
        parts = [list(dataset.loader(16, rank=rank, world_size=3)) for rank in range(3)]
        assert sorted(number for part in parts for batch in part for number in real(batch)) == list(range(138))


@pytest.mark.parametrize("mode", ["full", "shards"])
def test_epochs_differ_and_the_same_seed_repeats(mode: str) -> None:
    dataset = Dataset(Counting([20] * 5))

    def epochs(seed: int) -> list[list[int]]:
        loader = dataset.shuffle(mode, seed=seed, window=2).loader(10, workers=0)
        assert loader.epoch == 0
        found = [[number for batch in loader for number in real(batch)] for _ in range(3)]
        assert loader.epoch == 3
        return found

    seeds = [0, 1, -1, 2**63, 2**64 + 2]
    runs = [epochs(seed) for seed in seeds]
    assert runs == [epochs(seed) for seed in seeds]
    orders = [tuple(order) for run in runs for order in run]
    assert len(set(orders)) == len(orders)
    assert all(sorted(order) == list(range(100)) for order in orders)


def test_unshuffled_epochs_are_the_same_and_a_break_begins_the_next_one() -> None:
    loader = Dataset(Counting([5, 4])).loader(3, workers=0)
    first = [real(batch) for batch in loader]
    assert first == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    for _ in loader:
        break
    assert loader.epoch == 2
    assert [real(batch) for batch in loader] == first


def test_steps_limit_an_epoch() -> None:
    loader = Dataset(Counting([10])).loader(3, steps=2, workers=0)
    assert [real(batch) for batch in loader] == [[0, 1, 2], [3, 4, 5]]
    assert list(Dataset(Counting([10])).loader(3, steps=0, workers=0)) == []


def test_an_empty_dataset_has_no_batches() -> None:
    empty, emptied = Dataset(Counting([0, 0])), Dataset(Counting([4])).filter(lambda s: False)
    for options in ({}, {"end": "drop"}, {"end": "wrap", "steps": 5}, {"steps": 5}):
        assert list(empty.loader(2, workers=0, **options)) == []
        assert list(emptied.loader(2, workers=0, **options)) == []
    assert list(empty.loader(2, rank=1, world_size=2, workers=0)) == []
    with pytest.raises(PlanError, match="no sample at all, so nothing to pad batches with"):
        list(emptied.loader(2, rank=1, world_size=2, steps=5, workers=0))


def test_padding_is_masked_and_only_where_there_is_some() -> None:
    batches = list(Dataset(Counting([5])).loader(3, workers=0))
    assert "__mask__" not in batches[0]
    assert batches[1]["__mask__"].tolist() == [True, True, False]
    assert batches[1]["cls"].tolist() == [3, 4, 4]
    assert batches[1]["__key__"] == ["3", "4", "4"]


def test_batches_can_be_torch_tensors(tmp_path: Path) -> None:
    array = np.arange(6, dtype=">f4").reshape(2, 3)
    with shoal.shards.TarWriter(tmp_path / "a.tar") as writer:
        for number in range(3):
            writer.write({"__key__": str(number), "cls": number, "npy": array + number, "txt": "x"})
    batches = list(shoal.read_tar(tmp_path / "a.tar").decode().loader(2, to="torch"))
    assert isinstance(batches[0]["npy"], torch.Tensor)
    assert batches[0]["npy"].shape == (2, 2, 3)
    assert batches[0]["npy"].sum() == 36.0
    assert batches[0]["cls"].tolist() == [0, 1]
    assert batches[0]["txt"] == ["x", "x"]
    assert batches[1]["__mask__"].dtype == torch.bool


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 4, "rank": 2, "world_size": 2}, "rank 2"),
        ({"batch_size": 4, "rank": -1}, "rank -1"),
        ({"batch_size": 4, "rank": 0, "world_size": 5}, "world_size 5"),
        ({"batch_size": 100, "rank": 0, "world_size": 65}, "world_size 65"),
        ({"batch_size": 4, "world_size": 2}, "needs rank="),
        ({"batch_size": 4, "end": "stop"}, "'pad', 'drop', 'wrap'"),
        ({"batch_size": 4, "end": "wrap"}, "steps="),
        ({"batch_size": 4, "steps": -1}, "negative"),
        ({"batch_size": 4, "to": "tesnorflow"}, "format"),
        ({"batch_size": 4, "to": "numpi"}, "did you mean 'numpy'"),
    ],
)
def test_options_that_cannot_work_are_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Dataset(Counting([4])).loader(**options)


def test_a_loader_of_batches_joins_those_of_several_lanes() -> None:
    batches = list(Dataset(Counting([8])).lanes(2).batch(2).loader(2, workers=0))
    assert [batch["cls"].tolist() for batch in batches] == [[0, 2, 1, 3], [4, 6, 5, 7]]
    assert [batch["__key__"] for batch in batches] == [["0", "2", "1", "3"], ["4", "6", "5", "7"]]


def test_shuffles_that_do_not_exist_are_refused() -> None:
    dataset = Dataset(Counting([4]))
    with pytest.raises(PlanError, match="'shards' and 'full'"):
        dataset.shuffle("buffer")
    with pytest.raises(PlanError, match="at least 1"):
        dataset.shuffle("shards", window=0)


class Stream(Source):
    """Two shards that can only be read forward."""

    def shards(self) -> list[Shard]:
        return [Shard("0"), Shard("10")]

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        numbers = range(int(shard.url) + start, int(shard.url) + 3)
        yield Block([{"__key__": str(number), "cls": number} for number in numbers], (shard,))


def test_a_source_without_lengths_is_shuffled_by_whole_shards_only() -> None:
    everything = [0, 1, 2, 10, 11, 12]
    dataset = Dataset(Stream())
    assert classes(dataset) == everything
    assert [real(batch) for batch in dataset.loader(6, workers=0)] == [everything]
    (epoch,) = ([real(batch) for batch in dataset.shuffle("shards").lanes(2).loader(6, workers=0)],)
    assert sorted(number for batch in epoch for number in batch) == everything
    assert [number // 10 for number in epoch[0][:2]] in ([0, 1], [1, 0])
    with pytest.raises(PlanError, match="cannot tell the lengths"):
        list(dataset.shuffle("full").loader(1))
    with pytest.raises(PlanError, match="Give steps="):
        list(dataset.loader(2, rank=0, world_size=2))


def test_each_batch_of_a_mixture_holds_the_shares() -> None:
    a = Dataset(Counting([400]))
    b = a.map(lambda sample: {**sample, "cls": sample["cls"] + 1000})
    for size in (16, 48, 64):
        batches = list(shoal.mix([a, b], [3, 1]).loader(size, workers=0, end="drop"))
        assert len(batches) > 3
        assert {sum(number >= 1000 for number in batch["cls"].tolist()) for batch in batches} == {size // 4}
