"""The stages, as methods and as functions: what each makes of a stream."""

from __future__ import annotations

import io
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal import webdataset as wds
from shoal.errors import MissingFieldError, SampleError
from shoal.webdataset import DataPipeline, FluidWrapper, WebDataset
from support.webdataset_shards import SAMPLES, write_pictures, write_samples


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_pictures(tmp_path_factory.mktemp("pictures") / "pictures.tar")


def fields_of(sample: dict[str, Any]) -> set[str]:
    return {name for name in sample if not name.startswith("__")}


class TestMap:
    def test_none_drops_the_sample(self) -> None:
        assert list(FluidWrapper(range(5)).map(lambda n: n if n % 2 else None)) == [1, 3]

    def test_the_key_of_a_dict_is_kept(self) -> None:
        samples = [{"__key__": "a", "cls": 1}]
        assert list(FluidWrapper(samples).map(lambda s: {"__key__": "z", "x": s["cls"]})) == [{"__key__": "a", "x": 1}]
        assert list(FluidWrapper(samples).map(lambda s: {"x": 2})) == [{"__key__": "a", "x": 2}]

    def test_the_handler_decides_about_failures(self) -> None:
        def inverse(n: int) -> float:
            return 1 / n

        with pytest.raises(ZeroDivisionError) as caught:
            list(FluidWrapper([1, 0, 2]).map(inverse))
        assert caught.value.__notes__ == ["at a sample of type int"]
        assert list(FluidWrapper([1, 0, 2]).map(inverse, handler=wds.ignore_and_continue)) == [1.0, 0.5]
        assert list(FluidWrapper([1, 0, 2]).map(inverse, handler=wds.ignore_and_stop)) == [1.0]
        with pytest.warns(UserWarning, match="division by zero"):
            assert list(FluidWrapper([1, 0, 2]).map(inverse, handler=wds.warn_and_stop)) == [1.0]

    def test_a_failure_names_sample_and_shard(self, pictures: str) -> None:
        with pytest.raises(KeyError) as caught:
            list(WebDataset(pictures).map(lambda sample: sample["nothing"]))
        assert caught.value.__notes__ == [f"at sample '000000' of {pictures}"]


def test_select_keeps_what_is_true(pictures: str) -> None:
    got = WebDataset(pictures).decode().select(lambda sample: sample["cls"] > 100)
    assert len(list(got)) == SAMPLES - 15


class TestMapDict:
    def test_fields_change_in_place(self) -> None:
        sample = {"__key__": "a", "cls": 1, "txt": "x"}
        assert list(FluidWrapper([sample]).map_dict(cls=lambda n: n + 1, txt=str.upper)) == [
            {"__key__": "a", "cls": 2, "txt": "X"}
        ]
        assert sample["cls"] == 2

    def test_a_missing_field_is_a_key_error(self, pictures: str) -> None:
        with pytest.raises(KeyError, match="cls2"):
            list(WebDataset(pictures).map_dict(cls2=len))


class TestToTuple:
    def test_one_text_is_split(self) -> None:
        stream = FluidWrapper([{"jpg": "p", "cls": 1}])
        assert list(stream.to_tuple("png;jpg cls")) == [("p", 1)]
        assert list(stream.to_tuple("png;jpg", "cls")) == [("p", 1)]
        assert list(stream.to_tuple(["png", "jpg"], ["cls"])) == [("p", 1)]

    def test_a_missing_field_is_a_value_error(self, pictures: str) -> None:
        with pytest.raises(ValueError, match="there is only cls, png, wnid, xml"):
            list(WebDataset(pictures).to_tuple("foo", "bar"))
        assert next(iter(WebDataset(pictures).to_tuple("foo", "cls", missing_is_error=False))) == (None, b"0")

    def test_none_is_a_value_error(self) -> None:
        stream = FluidWrapper([{"__key__": "a", "cls": None}])
        with pytest.raises(ValueError, match="sample 'a', field 'cls'"):
            list(stream.to_tuple("cls"))
        assert list(stream.to_tuple("cls", none_is_error=False)) == [(None,)]
        assert list(stream.to_tuple("cls", missing_is_error=False)) == [(None,)]


def test_map_tuple_leaves_the_rest_and_may_be_too_long() -> None:
    stream = FluidWrapper([(1, 2, 3)])
    assert list(stream.map_tuple(str)) == [("1", 2, 3)]
    assert list(stream.map_tuple(None, str)) == [(1, "2", 3)]
    assert list(stream.map_tuple(str, str, str, str)) == [("1", "2", "3")]


class TestRename:
    def test_the_old_name_goes_and_the_rest_stays(self, pictures: str) -> None:
        sample = next(iter(WebDataset(pictures).rename(image="png;jpg")))
        assert fields_of(sample) == {"cls", "image", "wnid", "xml"}
        assert sample["__key__"] == "000000"

    def test_without_keep_nothing_else_stays(self, pictures: str) -> None:
        assert set(next(iter(WebDataset(pictures).rename(image="png", keep=False)))) == {"image"}

    def test_a_missing_name_is_an_error(self, pictures: str) -> None:
        with pytest.raises(ValueError, match="foo"):
            list(WebDataset(pictures).rename(image="foo"))


class TestKeys:
    sample = {"__key__": "a", "left.png": 1, "right.png": 2, "cls": 3}

    def test_extract_by_pattern(self) -> None:
        stream = FluidWrapper([self.sample])
        assert list(stream.extract_keys("left.*", "*.cls")) == [(1, 3)]
        assert list(stream.extract_keys("*.foo;cls")) == [(3,)]
        assert list(stream.extract_keys(["*.foo", "cls"])) == [(3,)]

    def test_what_is_missing_is_an_error_or_left_out(self) -> None:
        stream = FluidWrapper([self.sample])
        with pytest.raises(ValueError, match="nothing in"):
            list(stream.extract_keys("*.foo", "cls"))
        assert list(stream.extract_keys("*.foo", "cls", ignore_missing=True)) == [(3,)]

    def test_two_matches_are_an_error(self) -> None:
        stream = FluidWrapper([self.sample])
        with pytest.raises(ValueError, match=r"left\.png.*right\.png"):
            list(stream.extract_keys("*.png"))
        assert list(stream.extract_keys("*.png", duplicate_is_error=False)) == [(1,)]

    def test_rename_by_pattern(self) -> None:
        stream = FluidWrapper([self.sample])
        assert list(stream.rename_keys(("image", "left.*"), label="*.cls")) == [{"image": 1, "label": 3}]
        assert list(stream.rename_keys(label="cls", keep_unselected=True)) == [
            {"__key__": "a", "left.png": 1, "right.png": 2, "label": 3}
        ]

    def test_renaming_nothing_or_too_much_is_an_error(self) -> None:
        stream = FluidWrapper([self.sample])
        with pytest.raises(ValueError, match="matches"):
            list(stream.rename_keys(label="*.foo"))
        assert list(stream.rename_keys(label="*.foo", must_match=False)) == [{}]
        with pytest.raises(ValueError, match="more than one field"):
            list(stream.rename_keys(image="*.png"))
        assert list(stream.rename_keys(image="*.png", duplicate_is_error=False)) == [{"image": 2}]


class TestBatched:
    def test_the_last_batch_is_smaller(self) -> None:
        samples = [(n, str(n)) for n in range(10)]
        batches = list(FluidWrapper(samples).batched(3))
        assert [len(names) for _, names in batches] == [3, 3, 3, 1]
        assert isinstance(batches[0][0], np.ndarray)
        assert batches[0][0].tolist() == [0, 1, 2]
        assert batches[0][1] == ["0", "1", "2"]
        assert len(list(FluidWrapper(samples).batched(3, partial=False))) == 3

    def test_dicts_become_a_dict(self) -> None:
        (batch,) = FluidWrapper([{"__key__": "a", "x": 1.5}, {"__key__": "b", "x": 2.5}]).batched(5)
        assert batch["__key__"] == ["a", "b"]
        assert batch["x"].tolist() == [1.5, 2.5]

    def test_arrays_and_tensors_are_stacked(self) -> None:
        (batch,) = FluidWrapper([(np.zeros((2, 3)), torch.ones(4)) for _ in range(5)]).batched(5)
        assert batch[0].shape == (5, 2, 3)
        assert tuple(batch[1].shape) == (5, 4)

    def test_what_does_not_fit_together_is_an_error(self) -> None:
        with pytest.raises(SampleError, match=r"\(2,\), \(3,\)"):
            list(FluidWrapper([(np.zeros(2),), (np.zeros(3),)]).batched(2))
        with pytest.raises(SampleError, match="'y' is not in each"):
            list(FluidWrapper([{"x": 1}, {"x": 1, "y": 2}]).batched(2))
        with pytest.raises(SampleError, match="one length"):
            list(FluidWrapper([(1,), (1, 2)]).batched(2))
        with pytest.raises(SampleError, match="not of int"):
            list(FluidWrapper([1, 2]).batched(2))

    def test_a_function_of_your_own_collates(self) -> None:
        assert list(FluidWrapper([1, 2, 3]).batched(2, collation_fn=sum)) == [3, 3]

    def test_unbatched_takes_batches_apart(self) -> None:
        tuples = [(n, str(n)) for n in range(10)]
        assert list(FluidWrapper(tuples).batched(3).unbatched()) == tuples
        dicts = [{"__key__": str(n), "x": n} for n in range(10)]
        assert list(FluidWrapper(dicts).batched(3).unbatched()) == dicts

    @given(st.lists(st.integers()), st.integers(1, 7))
    def test_lists_and_back(self, items: list[int], size: int) -> None:
        stream = FluidWrapper(items)
        lists = list(stream.listed(size))
        assert all(len(each) == size for each in lists[:-1])
        assert list(stream.listed(size).unlisted()) == items
        assert list(stream.listed(size, partial=False).unlisted()) == items[: len(items) // size * size]


class TestShuffle:
    @given(st.integers(0, 200), st.integers(-1, 50), st.integers(0, 60), st.integers(0, 3))
    def test_it_loses_and_doubles_nothing(self, count: int, size: int, initial: int, seed: int) -> None:
        got = list(FluidWrapper(range(count)).shuffle(size, initial, seed=seed))
        assert sorted(got) == list(range(count))
        if size < 1:
            assert got == list(range(count))

    def test_a_seed_repeats_the_order(self) -> None:
        seeded = FluidWrapper(range(1000)).shuffle(100, seed=1)
        assert list(seeded) == list(seeded) != list(range(1000))
        assert list(FluidWrapper(range(1000)).shuffle(100, seed=2)) != list(seeded)

    def test_without_a_seed_the_order_is_pythons(self) -> None:
        unseeded = FluidWrapper(range(1000)).shuffle(100)
        orders = []
        for _ in range(2):
            random.seed(5)
            orders.append(list(unseeded))
        assert orders[0] == orders[1] != list(unseeded)

    def test_a_generator_of_your_own(self) -> None:
        orders = [list(FluidWrapper(range(99)).shuffle(50, rng=random.Random(3))) for _ in range(2)]
        assert orders[0] == orders[1]

    def test_the_first_sample_does_not_wait_for_a_full_buffer(self) -> None:
        taken = []

        def source() -> Any:
            for n in range(10_000):
                taken.append(n)
                yield n

        next(iter(FluidWrapper(source()).shuffle(5000, initial=10)))
        assert len(taken) <= 12


class TestDetshuffle:
    def test_equal_per_epoch_and_different_between_epochs(self) -> None:
        one, other = (DataPipeline(range(100), wds.detshuffle(seed=4)) for _ in range(2))
        epochs = [list(one) for _ in range(3)]
        assert [list(other) for _ in range(3)] == epochs
        assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
        assert epochs[0] != epochs[1] != epochs[2]


def test_slice_takes_what_islice_takes() -> None:
    stream = FluidWrapper(range(10))
    assert list(stream.slice(3)) == [0, 1, 2]
    assert list(stream.slice(2, 4)) == [2, 3]
    assert list(stream.slice(1, None, 4)) == [1, 5, 9]


def test_rsample_keeps_about_a_share() -> None:
    random.seed(0)
    assert 350 < len(list(FluidWrapper(range(1000)).rsample(0.4))) < 450


def test_log_keys_appends_number_shard_and_key(pictures: str, tmp_path: Path) -> None:
    log = tmp_path / "keys.tsv"
    list(WebDataset(pictures).slice(2).log_keys(log))
    list(WebDataset(pictures).slice(1).log_keys(log))
    assert log.read_text() == f"0\t{pictures}\t000000\n1\t{pictures}\t000001\n0\t{pictures}\t000000\n"


def test_info_shows_the_first_samples() -> None:
    shown = io.StringIO()
    samples = [{"__key__": str(n), "txt": "x" * 99} for n in range(7)]
    list(DataPipeline(samples, wds.info(n=1, every=5, width=8, stream=shown)))
    assert shown.getvalue() == "---\n__key__ '0'\ntxt 'xxxxxxx\n---\n__key__ '4'\ntxt 'xxxxxxx\n"
    shown = io.StringIO()
    list(DataPipeline([(1, 2)], wds.info("{} and {}", stream=shown)))
    assert shown.getvalue() == "1 and 2\n"


class TestCached:
    def test_samples_are_kept_after_a_complete_pass_only(self) -> None:
        runs = []

        def source() -> Any:
            runs.append(1)
            return iter(range(5))

        cached = DataPipeline(source).mcached().map(lambda n: n + 1)
        next(iter(cached))
        assert [list(cached) for _ in range(3)] == [[1, 2, 3, 4, 5]] * 3
        assert len(runs) == 4
        assert next(iter(cached)) == 1


def test_associate_adds_by_key() -> None:
    samples = [{"__key__": "a"}, {"__key__": "b"}]
    assert list(DataPipeline(samples, wds.associate({"a": {"x": 1}}, y=2))) == [
        {"__key__": "a", "x": 1, "y": 2},
        {"__key__": "b", "y": 2},
    ]


def test_non_empty_complains_about_nothing() -> None:
    assert list(DataPipeline([1], wds.non_empty)) == [1]
    with pytest.raises(ValueError, match="no samples"):
        list(DataPipeline([], wds.non_empty))


def test_errors_are_those_of_shoal_too(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a.tar", [("a", {"cls": b"1"})])
    with pytest.raises(MissingFieldError):
        list(WebDataset(path).to_tuple("png"))


def test_stages_can_be_sent_to_another_process() -> None:
    pipeline = (
        FluidWrapper([{"__key__": "a", "cls": b"1", "left.txt": b"x"}])
        .decode("rgb")
        .shuffle(10)
        .rename_keys(label="cls", text="*.txt")
        .map_dict(label=str)
        .to_tuple("label", "text")
        .map_tuple(int)
        .listed(1)
        .unlisted()
        .batched(1)
        .unbatched()
        .slice(1)
        .log_keys()
        .mcached()
    )
    assert list(pickle.loads(pickle.dumps(pipeline))) == [(1, "x")]
