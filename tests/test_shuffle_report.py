"""A report says beforehand how well a shuffle mixes and what it reads, and a run then shows just that."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset

import shoal
from shoal.abc import Block, Sample, Shard, Source
from shoal.errors import PlanError
from shoal.order import Batching, Shuffle, ShuffleReport, Stock, shuffle_report
from shoal.pipeline import Dataset
from shoal.shards import TarWriter, find_index
from shoal.sources import TarSource

SHARDS, LENGTH = 16, 500


def write(folder: Path, lengths: Sequence[int], ending: str = "tar") -> list[str]:
    """Write shards whose keys tell the number of the shard and the place in it."""
    urls = []
    for shard, length in enumerate(lengths):
        urls.append(str(folder / f"{shard:03d}.{ending}"))
        with TarWriter(urls[-1]) as writer:
            for place in range(length):
                writer.write({"__key__": f"{shard:03d}-{place:05d}", "cls": place})
    return urls


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write(tmp_path_factory.mktemp("shards"), [LENGTH] * SHARDS)


class Watched(Source):
    """Tar shards, and what was read of them."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._tars = TarSource(urls)
        self.forget()

    def forget(self) -> None:
        self.reads, self.bytes, self.opened, self.lengths = 0, 0, 0, 0

    def shards(self) -> Sequence[Shard]:
        return self._tars.shards()

    @property
    def seekable(self) -> bool:
        return self._tars.seekable

    def size(self, shard: Shard) -> int | None:
        return self._tars.size(shard)

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        self.opened += 1
        self.bytes += Path(shard.url).stat().st_size
        return self._tars.open(shard, start)

    def length(self, shard: Shard) -> int:
        self.lengths += 1
        return self._tars.length(shard)

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        self.reads += 1 + int((np.diff(indices) != 1).sum())
        begins = self._begins(shard)
        self.bytes += int((begins[1:] - begins[:-1])[list(indices)].sum())
        return self._tars.take(shard, indices)

    def _begins(self, shard: Shard) -> Any:
        index = find_index(shard.url, shoal.files.stat(shard.url))
        assert index is not None
        return np.append(index.begins, index.offsets[-1] + 512)


def batches(dataset: Dataset, **options: Any) -> list[list[tuple[int, int]]]:
    """The shards and places of the samples of each global batch that is full."""
    keys = [batch["__key__"] for batch in dataset.loader(64, end="drop", workers=0, **options)]
    return [[(int(key[:3]), int(key[4:])) for key in batch] for batch in keys]


def run_figures(found: list[list[tuple[int, int]]]) -> tuple[float, float]:
    """How many shards batches had, and how far neighbours were from one another in storage."""
    places = np.array([[shard * LENGTH + place for shard, place in batch] for batch in found])
    correlation = np.corrcoef(places[:, :-1].ravel(), places[:, 1:].ravel())[0, 1]
    return float(np.mean([len({shard for shard, _ in batch}) for batch in found])), 1 - abs(correlation)


def shuffled(dataset: Dataset, mode: str) -> Dataset:
    return dataset if mode == "none" else dataset.shuffle(mode, seed=5)


@pytest.mark.parametrize("mode", ["none", "shards", "full"])
def test_a_run_shows_what_the_report_said(urls: list[str], mode: str) -> None:
    source = Watched(urls)
    dataset = shuffled(Dataset(source), mode)
    row = dataset.shuffle_report().row(mode)
    assert (source.reads, source.opened) == (0, 0)
    found = batches(dataset)
    assert len(found) == SHARDS * LENGTH // 64
    shards, spread = run_figures(found)
    assert row.shards_in_batch == pytest.approx(shards)
    assert row.spread == pytest.approx(spread, abs=1e-6)
    assert row.attainable == SHARDS
    assert row.reads == source.reads
    ends = sum(Path(url).stat().st_size for url in urls) - source.bytes
    assert row.bytes == source.bytes + ends
    assert 0 < ends <= SHARDS * 10_240  # what a tar has behind its last member


@pytest.mark.parametrize("world", [4, 64])
def test_more_ranks_read_longer_stretches_of_the_same_batches(urls: list[str], world: int) -> None:
    source = Watched(urls)
    dataset = Dataset(source).shuffle("shards", seed=5)
    alone, row = dataset.shuffle_report().row("shards"), dataset.shuffle_report(world_size=world).row("shards")
    for rank in range(world):
        assert batches(dataset, rank=rank, world_size=world)
    assert row.reads is not None
    assert alone.reads is not None
    assert row.reads == source.reads
    assert row.reads < 0.7 * alone.reads
    assert (row.shards_in_batch, row.bytes, row.spread) == (alone.shards_in_batch, alone.bytes, alone.spread)


@pytest.mark.parametrize("mode", ["none", "shards", "full"])
@pytest.mark.parametrize(("lanes", "world"), [(64, 1), (24, 1), (24, 5), (24, 24), (7, 3), (100, 2)])
def test_reads_are_counted_as_they_are_fetched(tmp_path: Path, mode: str, lanes: int, world: int) -> None:
    source = Watched(write(tmp_path, [61, 0, 130, 77, 5, 200, 99, 1]))
    dataset = Dataset(source).lanes(lanes)
    dataset = dataset if mode == "none" else dataset.shuffle(mode, seed=2, window=3, chunk=4)
    for rank in range(world):
        for _ in dataset.loader(64, rank=rank, world_size=world, workers=0):
            pass
    assert dataset.shuffle_report(world_size=world).row(mode).reads == source.reads


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("count", [5, 70])
def test_whole_shards_are_reported_as_they_are_read(tmp_path: Path, count: int, world: int) -> None:
    source = Watched(write(tmp_path, [40] * count, "tar.gz"))
    dataset = Dataset(source).shuffle("shards", seed=5)
    report = dataset.shuffle_report(world_size=world)
    assert (source.opened, source.lengths, source.reads) == (0, 0, 0)
    row = report.row("shards")
    alone = batches(dataset)
    assert row.shards_in_batch == pytest.approx(run_figures(alone)[0], abs=3)
    assert row.shards_in_use == min(count, 64)
    source.forget()
    for rank in range(world):
        for _ in dataset.loader(64, rank=rank, world_size=world, steps=200 if world > 1 else None, workers=0):
            pass
    assert row.reads == source.opened
    assert row.bytes == pytest.approx(source.bytes, rel=0.01)
    source.forget()
    for rank in range(world):
        for _ in Dataset(source).loader(64, rank=rank, world_size=world, steps=60 if world > 1 else None, workers=0):
            pass
    plain = report.row("none")
    assert (plain.reads, plain.bytes, plain.spread) == (source.opened, source.bytes, 0.0)


def test_what_is_not_known_is_said_and_nothing_is_read_for_it(tmp_path: Path) -> None:
    source = Watched(write(tmp_path, [3] * 4, "tar.gz"))
    report = Dataset(source).shuffle_report()
    assert (source.opened, source.lengths, source.reads) == (0, 0, 0)
    text = str(report)
    assert "4 shards, samples unknown" in text
    assert "whole shards are dealt to lanes" in text
    full, plain, buffer = (report.row(name) for name in ("full", "none", "buffer"))
    assert (full.shards_in_batch, full.spread, full.bytes, full.reads, full.shards_in_use) == (None,) * 5
    assert (plain.shards_in_batch, buffer.shards_in_batch, buffer.spread) == (None,) * 3
    assert buffer.reads == 4
    row = next(line for line in text.splitlines() if line.startswith("full"))
    assert row.split() == ["full", *"?????"]


@pytest.mark.parametrize(
    ("shards", "length", "about"),
    [(16, 500, 7.0), (8, 1000, 4.1), (100, 1000, 5.2), (64, 10_000, 1.4), (300, 250, 13.7)],
)
def test_windows_mix_at_least_as_many_shards_as_a_buffer(shards: int, length: int, about: float) -> None:
    report = shuffle_report([Stock("numbers", shards, np.full(shards, length))])
    windows, buffer, full = (report.row(name) for name in ("shards", "buffer", "full"))
    assert windows.shards_in_batch is not None
    assert buffer.shards_in_batch is not None
    assert full.spread is not None
    assert buffer.shards_in_batch == pytest.approx(about, abs=0.3)
    assert windows.shards_in_batch >= buffer.shards_in_batch
    assert windows.shards_in_batch > 0.95 * min(16, shards)
    assert full.spread > 0.97


@pytest.mark.parametrize(("shards", "length", "size"), [(16, 500, 1000), (40, 100, 1000), (10, 30, 50), (3, 4, 1000)])
def test_the_buffer_is_webdatasets(shards: int, length: int, size: int) -> None:
    def mixed(seed: int) -> float:
        rng = random.Random(seed)
        order = rng.sample(range(shards), shards)
        stream = iter([shard for shard in order for _ in range(length)])
        found = list(webdataset.shuffle(size, rng=rng)(stream))
        width = min(64, len(found))
        return float(np.mean([len(set(found[at : at + width])) for at in range(0, len(found) - width + 1, width)]))

    runs = [mixed(seed) for seed in range(20)]
    reports = [
        shuffle_report([Stock("", shards, np.full(shards, length), shuffle=Shuffle(seed=seed))], Batching(buffer=size))
        for seed in range(20)
    ]
    ours = [report.row("buffer").shards_in_batch or 0 for report in reports]
    assert np.mean(ours) == pytest.approx(np.mean(runs), rel=0.03)
    assert np.std(ours) == pytest.approx(np.std(runs), abs=0.2)


def test_the_datasets_own_windows_are_reported_and_marked(urls: list[str]) -> None:
    plain = shoal.read_tar(urls)
    assert [row.chosen for row in plain.shuffle_report().rows] == [True, False, False, False]
    narrow = plain.shuffle("shards", window=2, seed=3).shuffle_report()
    assert [row.chosen for row in narrow.rows] == [False, True, False, False]
    assert narrow.row("shards").shards_in_use == 2
    assert narrow.row("shards").shards_in_batch == pytest.approx(2, abs=0.2)
    full = plain.shuffle("full", seed=3).shuffle_report()
    assert full.row("full").chosen
    assert full.row("shards").shards_in_use == 16
    assert full.row("full") == narrow.row("full").__class__(**{**fields(narrow.row("full")), "chosen": True})


def fields(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__slots__}


def test_whole_shards_are_reported_where_the_user_cuts_there(urls: list[str]) -> None:
    row = shoal.read_tar(urls).shuffle("shards", cut="shards").shuffle_report().row("shards")
    assert (row.reads, row.shards_in_use) == (SHARDS, SHARDS)
    assert row.shards_in_batch == SHARDS


def test_each_component_of_a_mixture_is_reported(urls: list[str], tmp_path: Path) -> None:
    other = shoal.read_tar(write(tmp_path, [50] * 3)).shuffle("full")
    inner = shoal.mix([shoal.read_tar(urls[:4]).shuffle("shards"), other])
    report = shoal.mix([inner, shoal.read_tar(urls[4:6])], [3, 1]).shuffle_report(batch_size=32)
    assert [(row.source, row.shuffle) for row in report.rows if row.chosen] == [(0, "shards"), (1, "full"), (2, "none")]
    assert [row.attainable for row in report.rows[::4]] == [4, 3, 2]
    assert len(report.sources) == 3
    assert "by itself" in str(report)
    assert report.row("full", 1) == alone_at(other.shuffle_report(batch_size=32), "full", 1)


def alone_at(report: ShuffleReport, shuffle: str, source: int) -> Any:
    row = report.row(shuffle)
    return row.__class__(**{**fields(row), "source": source})


def test_take_and_filter_are_told(urls: list[str]) -> None:
    whole, some = shoal.read_tar(urls).shuffle_report(), shoal.read_tar(urls).take(1000).shuffle_report()
    assert "1,000 samples" in some.sources[0]
    assert (some.row("none").bytes or 0) == pytest.approx((whole.row("none").bytes or 0) / 8, rel=0.01)
    assert (some.row("full").reads or 0) <= 1000
    assert some.row("buffer").reads == 2
    assert not any("gather" in note for note in whole.notes)
    filtered = shoal.read_tar(urls).filter(bool).shuffle_report()
    assert any("gather" in note for note in filtered.notes)
    assert filtered.rows == whole.rows


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0], [1], [0, 1], [1, 1], [2, 0, 5], [100] * 3])
@pytest.mark.parametrize("batch_size", [1, 2, 64, 1000])
def test_few_samples_are_no_trouble(lengths: list[int], batch_size: int) -> None:
    stock = Stock("few", len(lengths), np.array(lengths, np.int64), bytes=10 * len(lengths))
    report = shuffle_report([stock], Batching(batch_size))
    for row in report.rows:
        if sum(lengths):
            assert row.shards_in_batch is not None
            assert 1 <= row.shards_in_batch <= row.attainable <= min(batch_size, len(lengths))
            assert row.reads is not None
            assert row.reads <= max(sum(lengths), len(lengths))
        assert row.spread is None or 0 <= row.spread <= 1
    assert str(report)
    assert report._repr_html_().count("<tr>") == 5


def test_a_report_is_the_same_every_time_and_can_be_read(urls: list[str]) -> None:
    dataset = shoal.read_tar(urls).shuffle("shards", seed=1)
    report = dataset.shuffle_report(batch_size=32, buffer=500)
    assert report == dataset.shuffle_report(batch_size=32, buffer=500)
    lines = str(report).splitlines()
    assert "16 shards, 8,000 samples" in lines[0]
    assert lines[1].split("  ")[0] == "shuffle"
    assert [line.split("  ")[0] for line in lines[2:6]] == ["none", "shards *", "full", "buffer of 500"]
    assert len({len(line) - len(line.lstrip()) for line in lines}) == 1
    named = shuffle_report([Stock("<b>&", 1, np.array([1]))])
    assert "&lt;b&gt;&amp;" in named._repr_html_()
    assert "<b>" not in named._repr_html_()


def test_sizes_are_written_for_people() -> None:
    for count, text in ((0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (10**13, "10.0 TB"), (10**19, "10,000.0 PB")):
        assert f" {text} " in str(shuffle_report([Stock("", 2, np.array([2, 2]), bytes=count)]))


def test_options_that_cannot_work_are_refused(urls: list[str]) -> None:
    with pytest.raises(PlanError, match="batch_size"):
        shoal.read_tar(urls).shuffle_report(0)
    with pytest.raises(PlanError, match="world_size 65"):
        shoal.read_tar(urls).shuffle_report(100, world_size=65)


class Large(Source):
    """100,000 shards, of which nobody wants to ask each one."""

    def __init__(self, *, counted: bool) -> None:
        self._shards = [Shard(str(number)) for number in range(100_000)]
        self._counted = counted
        self.lengths = self.sizes = 0

    def shards(self) -> Sequence[Shard]:
        return self._shards

    @property
    def counted(self) -> bool:
        return self._counted

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        raise AssertionError("a report reads nothing")

    def length(self, shard: Shard) -> int:
        self.lengths += 1
        return 90_000 + int(shard.url) // 5  # 10 billion in all

    def size(self, shard: Shard) -> int | None:
        self.sizes += 1
        return 10**9

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        raise AssertionError("a report reads nothing")


@pytest.mark.parametrize("counted", [True, False])
def test_of_many_shards_some_are_asked_and_stand_for_all(counted: bool) -> None:
    source = Large(counted=counted)
    report = Dataset(source).lanes(1024).shuffle_report(4096, world_size=1024)
    assert source.sizes == 64
    assert source.lengths == (100_000 if counted else 64)
    row = report.row("shards")
    assert row.bytes == 10**14
    assert row.shards_in_batch == pytest.approx(16, abs=0.5)
    assert report.row("full").shards_in_batch == pytest.approx(4014, abs=5)
    assert row.reads is not None
    assert 10**10 / 64 < row.reads < 3 * 10**10 / 64  # a rank has one lane, and reads 64 samples forward
    samples = int(report.sources[0].split()[3].replace(",", ""))
    assert samples == pytest.approx(99_999.5 * 10**5 if not counted else 99_999.4 * 10**5, rel=0.02)
    assert any("64 were asked" in note for note in report.notes)
