"""Pipelines as a whole: epochs, lengths, shard lists, mixtures, splitting among nodes."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch.distributed
from hypothesis import given
from hypothesis import strategies as st

from shoal import webdataset as wds
from shoal.errors import PlanError, SettingsError
from shoal.webdataset import DataPipeline, FluidWrapper, RandomMix, ResampledShards, RoundRobin, WebDataset
from shoal.webdataset._split import deal
from support.webdataset_shards import SAMPLES, write_numbers, write_pictures


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_pictures(tmp_path_factory.mktemp("pictures") / "pictures.tar")


class TestEpochs:
    def test_with_epoch_counts_exactly_every_time(self, pictures: str) -> None:
        dataset = WebDataset(pictures).with_epoch(193)
        assert [sum(1 for _ in dataset) for _ in range(3)] == [193, 193, 193]
        assert len(list(WebDataset(pictures).with_epoch(2))) == 2

    def test_with_epoch_begins_anew(self, pictures: str) -> None:
        dataset = WebDataset(pictures).with_epoch(2)
        assert [sample["__key__"] for sample in dataset] == [sample["__key__"] for sample in dataset]

    def test_repeat_goes_round(self, pictures: str) -> None:
        assert len(list(WebDataset(pictures).repeat(nepochs=2))) == 2 * SAMPLES
        assert len(list(WebDataset(pictures).repeat(nbatches=100))) == 100
        assert len(list(WebDataset(pictures, repeat=True).slice(100))) == 100

    def test_with_length_sets_the_length_only(self, pictures: str) -> None:
        dataset = WebDataset(pictures).with_length(1793)
        assert len(dataset) == 1793
        assert sum(1 for _ in dataset) == SAMPLES
        with pytest.raises(TypeError):
            len(WebDataset(pictures))
        assert WebDataset(pictures)

    def test_an_empty_source_is_not_repeated_for_ever(self) -> None:
        with pytest.raises(PlanError, match="never end"):
            list(FluidWrapper([]).with_epoch(5))
        assert list(FluidWrapper([]).repeat(3)) == []


class TestComposing:
    def test_methods_give_a_new_pipeline(self) -> None:
        first = FluidWrapper([1, 2, 3])
        second = first.map(lambda n: n + 1)
        assert (list(first), list(second)) == ([1, 2, 3], [2, 3, 4])
        assert second.with_length(5) is second
        assert second.with_epoch(1) is second

    def test_a_method_on_a_dataset_gives_a_dataset(self, pictures: str) -> None:
        assert type(WebDataset(pictures).shuffle(10).decode()) is WebDataset

    def test_append_and_stage(self) -> None:
        pipeline = DataPipeline([3, 1, 2], None)
        pipeline.append(sorted)
        assert list(pipeline) == [1, 2, 3]
        assert pipeline.stage(1) is sorted
        assert list(pipeline.compose(reversed, list)) == [3, 2, 1]

    def test_objects_with_run_are_stages(self) -> None:
        class Doubled:
            def run(self, stream: Any) -> Any:
                return (2 * n for n in stream)

        class Numbers:
            def run(self) -> Any:
                return iter([1, 2])

        assert list(DataPipeline(Numbers(), Doubled())) == [2, 4]

    def test_no_source_is_an_error(self) -> None:
        with pytest.raises(PlanError, match="no source"):
            list(DataPipeline())

    def test_functions_make_the_same_pipeline_as_methods(self, pictures: str) -> None:
        by_functions = DataPipeline(
            wds.SimpleShardList(pictures),
            wds.split_by_worker,
            wds.tarfile_to_samples(),
            wds.decode("rgb8"),
            wds.to_tuple("png", "cls"),
            wds.map_tuple(lambda image: image.shape),
            wds.batched(4),
        )
        by_methods = WebDataset(pictures).decode("rgb8").to_tuple("png", "cls").map_tuple(lambda image: image.shape)
        pairs = list(zip(by_functions, by_methods.batched(4), strict=True))
        assert len(pairs) == 12
        assert all(a[0] == b[0] and a[1].tolist() == b[1].tolist() for a, b in pairs)


class TestShardOrder:
    urls = [str(n) for n in range(10)]

    def order(self, dataset: WebDataset) -> list[str]:
        return [piece.url for piece in dataset.stage(0)()]

    def test_a_seed_shuffles_a_list_the_same_way_each_time(self) -> None:
        shards = wds.SimpleShardList(self.urls, seed=17)
        first = [shard["url"] for shard in shards]
        assert first == [shard["url"] for shard in wds.SimpleShardList(self.urls, seed=17)]
        assert sorted(first) == self.urls != first
        assert first != [shard["url"] for shard in wds.SimpleShardList(self.urls, seed=18)]

    @pytest.mark.parametrize("shardshuffle", [None, False, 0])
    def test_no_shuffle_and_no_warning_by_default(self, shardshuffle: Any) -> None:
        assert self.order(WebDataset(self.urls, shardshuffle=shardshuffle)) == self.urls

    @pytest.mark.parametrize("shardshuffle", [True, 5, 100])
    def test_a_seeded_shuffle_repeats_itself(self, shardshuffle: Any) -> None:
        one, other = (WebDataset(self.urls, shardshuffle=shardshuffle, seed=3) for _ in range(2))
        first = self.order(one)
        assert sorted(first) == self.urls != first
        assert self.order(one) == self.order(other) == first

    def test_detshuffle_changes_with_the_epoch(self) -> None:
        one, other = (WebDataset(self.urls, shardshuffle=100, detshuffle=True, seed=3) for _ in range(2))
        epochs = [self.order(one) for _ in range(3)]
        assert epochs == [self.order(other) for _ in range(3)]
        assert epochs[0] != epochs[1]

    def test_without_a_seed_each_epoch_has_its_own_order(self) -> None:
        dataset = WebDataset(self.urls, shardshuffle=True)
        assert len({tuple(self.order(dataset)) for _ in range(5)}) > 1

    def test_the_environment_may_give_the_seed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seeded = self.order(WebDataset(self.urls, shardshuffle=True, seed=5))
        monkeypatch.setenv("WDS_SEED", "5")
        assert self.order(WebDataset(self.urls, shardshuffle=True)) == seeded
        monkeypatch.setenv("WDS_SEED", "five")
        with pytest.raises(SettingsError, match="WDS_SEED"):
            self.order(WebDataset(self.urls, shardshuffle=True))


class TestResampling:
    urls = [str(n) for n in range(10)]

    def test_so_many_are_drawn(self) -> None:
        drawn = list(DataPipeline(wds.SimpleShardList(self.urls), wds.resampled(27)))
        assert len(drawn) == 27
        assert {shard["url"] for shard in drawn} <= set(self.urls)

    def test_nothing_to_draw_from_is_an_error(self) -> None:
        with pytest.raises(PlanError, match="no shards"):
            list(DataPipeline([], wds.resampled(3)))

    def test_deterministic_rows_repeat_and_change_with_epoch_and_node(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def rows() -> list[list[str]]:
            shards = ResampledShards(self.urls, 20, seed=1, deterministic=True)
            return [[shard["url"] for shard in shards] for _ in range(2)]

        first = rows()
        assert first == rows()
        assert first[0] != first[1]
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert rows()[0] not in first

    def test_other_rows_differ_each_time(self) -> None:
        shards = ResampledShards(self.urls, 20)
        assert list(shards) != list(shards)
        fixed = ResampledShards(self.urls, 20, worker_seed=lambda: 7, deterministic=True)
        assert len(list(fixed)) == 20

    def test_a_dataset_without_end(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        urls = write_numbers(tmp_path, shards=4, each=3)
        dataset = WebDataset(urls, resampled=True, seed=1).decode().with_epoch(50)
        first, second = ([sample["cls"] for sample in dataset] for _ in range(2))
        assert len(first) == len(second) == 50
        assert set(first) <= set(range(12))


class TestMixtures:
    def test_round_robin_to_the_longest(self) -> None:
        assert list(RoundRobin([[2, 2], [1], [3, 3, 3]], longest=True)) == [2, 1, 3, 2, 3, 3]

    def test_round_robin_to_the_first_that_ends(self) -> None:
        assert list(RoundRobin([[2, 2], [1], [3, 3, 3]])) == [2, 1, 3, 2]
        assert list(RoundRobin([])) == []

    def test_random_mix_in_proportion(self) -> None:
        import random

        random.seed(0)
        drawn = Counter(FluidWrapper(RandomMix([[1] * 5000, [2] * 5000], probs=[3, 1])).slice(4000))
        assert 2800 < drawn[1] < 3200
        assert Counter(RandomMix([[1] * 50, [2] * 7], longest=True)) == {1: 50, 2: 7}
        assert len(list(RandomMix([[1] * 50, [2] * 7]))) < 57

    def test_proportions_that_do_not_fit_are_refused(self) -> None:
        with pytest.raises(PlanError, match="2 datasets"):
            RandomMix([[1], [2]], probs=[1])

    def test_the_same_sample_many_times(self) -> None:
        assert list(wds.MockDataset({"cls": 1}, 3)) == [{"cls": 1}] * 3


class TestNodes:
    urls = [str(n) for n in range(10)]

    def test_several_nodes_need_a_splitter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(ValueError, match="explicit nodesplitter"):
            list(WebDataset("a.tar"))

    def test_each_node_reads_its_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        urls = write_numbers(tmp_path, shards=5, each=2)
        monkeypatch.setenv("WORLD_SIZE", "2")
        parts = []
        for rank in range(2):
            monkeypatch.setenv("RANK", str(rank))
            dataset = WebDataset(urls, nodesplitter=wds.split_by_node).decode()
            parts.append([sample["cls"] for sample in dataset])
        assert parts == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7]]

    def test_the_process_group_tells_where_the_environment_does_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda group: 1)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda group: 3)
        assert list(wds.split_by_node(self.urls)) == ["1", "4", "7"]
        with pytest.raises(ValueError, match="3 nodes"):
            wds.single_node_only(self.urls)

    def test_one_node_reads_all(self) -> None:
        assert list(wds.split_by_node(self.urls)) == list(wds.single_node_only(self.urls)) == self.urls

    def test_the_environment_may_name_the_worker(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORKER", "1")
        monkeypatch.setenv("NUM_WORKERS", "4")
        assert list(wds.split_by_worker(self.urls)) == ["1", "5", "9"]

    def test_a_splitter_of_your_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORKER", "1")
        monkeypatch.setenv("NUM_WORKERS", "4")
        dataset = WebDataset(self.urls, workersplitter=lambda shards: list(shards)[:2])
        assert [piece.url for piece in dataset.stage(0)()] == ["0", "1"]
        dataset = WebDataset(self.urls, workersplitter=None)
        assert [piece.url for piece in dataset.stage(0)()] == self.urls


@given(st.integers(0, 12), st.integers(1, 12))
def test_workers_share_all_shards_and_no_part_twice(shards: int, workers: int) -> None:
    pieces = [piece for number in range(workers) for piece in deal([str(n) for n in range(shards)], number, workers)]
    by_url: dict[str, list[Any]] = {}
    for piece in pieces:
        by_url.setdefault(piece.url, []).append(piece)
    assert len(by_url) == shards
    for mine in by_url.values():
        assert [piece.part for piece in mine] == list(range(mine[0].parts))
        assert {piece.parts for piece in mine} == {len(mine)}
    if shards >= workers:
        assert all(piece.parts == 1 for piece in pieces)


class TestImports:
    def run(self, program: str) -> str:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def test_writing_needs_no_torch(self) -> None:
        program = "import sys; from shoal.webdataset import TarWriter, ShardWriter; print('torch' in sys.modules)"
        assert self.run(program) == "False"

    def test_reading_works_where_torch_is_not_installed(self, pictures: str) -> None:
        program = f"""
import sys
sys.modules["torch"] = None
from shoal.errors import MissingExtraError
from shoal.webdataset import WebDataset, WebLoader
dataset = WebDataset({pictures!r}, extensions="png cls", shuffle=10)
assert len(list(dataset)) == {SAMPLES}
assert WebDataset.__base__.__module__ == "shoal.webdataset._torch"
try:
    WebLoader(dataset)
except MissingExtraError as error:
    print(error)
"""
        assert 'pip install "shoal[torch]"' in self.run(program)

    def test_every_public_name_is_there(self) -> None:
        assert all(hasattr(wds, name) for name in wds.__all__)
        assert set(wds.__all__) <= set(dir(wds))
