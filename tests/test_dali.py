"""Pipelines of DALI as stages: any number of samples, in order, treated alike wherever it is; what fails is named."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from nvidia.dali import fn, pipeline_def, types

import shoal
from shoal.abc import Sample
from shoal.errors import MissingExtraError, MissingFieldError, PlanError, SampleError
from shoal.image import dali
from shoal.pipeline import Dataset
from support.engine import by_value, same
from support.lane_sources import MemorySource

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True, scope="module")
def _functions_of_tests_travel_by_value() -> Iterator[None]:
    with by_value(__name__, "support.lane_sources"):
        yield


def photo(number: int) -> bytes:
    """Make a small JPEG, each of another size."""
    rng = np.random.default_rng(number)
    picture = np.repeat(np.repeat(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8), 8, axis=0), 8, axis=1)
    data: bytes = simplejpeg.encode_jpeg(np.ascontiguousarray(picture[: 24 + number % 8]), 90, "RGB", "420")
    return data


def photos(count: int, broken: Sequence[int] = (), shard: int = 20) -> Dataset:
    samples: list[Sample] = [{"__key__": f"k{n}", "jpg": photo(n), "n": n} for n in range(count)]
    for number in broken:
        samples[number]["jpg"] = samples[number]["jpg"][:40]
    return Dataset(MemorySource([samples[at : at + shard] for at in range(0, count, shard)]))


@pipeline_def
def decoded() -> Any:
    return fn.decoders.image(fn.external_source(name="jpegs"), output_type=types.RGB)


@pipeline_def
def small(side: int = 16) -> Any:
    return fn.resize(fn.decoders.image(fn.external_source(name="jpegs")), size=(side, side))


@pipeline_def
def jittered() -> Any:
    """Cut a window out, flip and darken it, all by numbers from outside."""
    jpegs, numbers = fn.external_source(name="jpegs"), fn.external_source(name="numbers")
    pictures = fn.crop(fn.decoders.image(jpegs), crop=(16, 16), crop_pos_x=numbers[0], crop_pos_y=numbers[1])
    flipped = fn.flip(pictures, horizontal=fn.cast(numbers[2] < 0.5, dtype=types.INT32))
    return fn.cast(flipped, dtype=types.FLOAT) * numbers[3], numbers


def two_halves() -> Any:
    values = fn.external_source(name="values")
    return values // 2, values % 2


def through_bare(define: Any, count: int) -> list[np.ndarray[Any, Any]]:
    """Send all pictures through a pipeline at once, without a stage."""
    line = define(batch_size=count, num_threads=1, device_id=None, prefetch_queue_depth=1)
    (found,) = line.run(jpegs=[np.frombuffer(photo(n), np.uint8) for n in range(count)])
    return [np.array(found[at]) for at in range(count)]


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 1}, {"workers": 2}])
@pytest.mark.parametrize("size", [1, 7, 64])
def test_batches_are_what_dali_makes_in_order(options: Any, size: int) -> None:
    loader = photos(50).apply(dali(small, {"jpegs": "jpg"}, "jpg", batch_size=size)).loader(8, **options)
    found = list(loader)
    assert [batch["jpg"].shape for batch in found] == [(8, 16, 16, 3)] * 7
    assert same(list(np.concatenate([batch["jpg"] for batch in found])[:50]), through_bare(small, 50))
    assert np.concatenate([batch["n"] for batch in found])[:50].tolist() == list(range(50))


def test_pictures_keep_their_shapes() -> None:
    found = [sample["jpg"] for sample in photos(30).apply(dali(decoded, {"jpegs": "jpg"}, "jpg"))]
    assert len({picture.shape for picture in found}) == 8
    assert same(found, through_bare(decoded, 30))
    (batch,) = photos(30).apply(dali(decoded, {"jpegs": "jpg"}, "jpg")).loader(30)
    assert isinstance(batch["jpg"], list)
    assert same(batch["jpg"], found)


def test_what_is_kept_does_not_change() -> None:
    """A pipeline has memory of its own, which it must not use again for others."""
    kept = list(photos(120).apply(dali(small, {"jpegs": "jpg"}, "jpg", batch_size=4)))
    assert same([sample["jpg"] for sample in kept], through_bare(small, 120))


def test_outputs_are_named_and_other_fields_stay() -> None:
    arrays = shoal.from_arrays({"x": np.arange(12).reshape(6, 2), "y": np.arange(6.0)})
    stage = dali(two_halves, {"values": "z;x"}, ("half", "rest"))
    found = list(arrays.apply(stage))
    assert [sample["half"].tolist() for sample in found] == [[n, n] for n in range(6)]
    assert [sample["rest"].tolist() for sample in found] == [[0, 1]] * 6
    assert [sample["x"].tolist() for sample in found] == [[2 * n, 2 * n + 1] for n in range(6)]
    assert [sample["y"] for sample in found] == list(range(6))


def test_fields_may_be_views_into_a_shard(tmp_path: Path) -> None:
    with shoal.shards.TarWriter(tmp_path / "a.tar") as writer:
        for number in range(6):
            writer.write({"__key__": str(number), "jpg": photo(number), "cls": number})
    found = shoal.read_tar(str(tmp_path / "a.tar")).apply(dali(small, {"jpegs": "jpeg;jpg"}, "jpg"))
    assert same([sample["jpg"] for sample in found], through_bare(small, 6))
    assert [sample["cls"] for sample in found] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_arguments_go_to_the_function() -> None:
    (sample,) = photos(1).apply(dali(small, {"jpegs": "jpg"}, "jpg", side=9, num_threads=2))
    assert sample["jpg"].shape == (9, 9, 3)


# Random numbers


def drawn(count: int = 90, **options: Any) -> Dataset:
    stage = dali(jittered, {"jpegs": "jpg"}, ("jpg", "drawn"), random={"numbers": 4}, **options)
    return photos(count).shuffle("full", seed=5).apply(stage)


@pytest.mark.parametrize(
    "options", [{"workers": 1}, {"workers": 2}, {"workers": 2, "mode": "process"}, {"workers": 2, "batch_size": 5}]
)
def test_a_sample_is_treated_alike_wherever_it_is_its_turn(options: Any) -> None:
    size = {"batch_size": options.pop("batch_size")} if "batch_size" in options else {}
    expected = list(drawn().loader(8, workers=0))
    assert same(list(drawn(**size).loader(8, **options)), expected)
    numbers = np.concatenate([batch["drawn"] for batch in expected])
    assert numbers.dtype == np.float32
    assert 0 <= numbers.min() < 0.1 < 0.9 < numbers.max() < 1
    assert len(np.unique(numbers[:90])) == 360


def test_each_epoch_draws_anew() -> None:
    loader = drawn().loader(8)

    def epoch() -> dict[str, Any]:
        pairs = (zip(batch["__key__"], batch["drawn"].tolist(), strict=True) for batch in loader)
        return {key: row for some in pairs for key, row in some}

    first, second = epoch(), epoch()
    assert first.keys() == second.keys()
    assert all(first[key] != second[key] for key in first)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_resume_is_exact(workers: int) -> None:
    whole = list(drawn().loader(8, workers=workers))
    first = drawn().loader(8, workers=workers)
    begun = list(islice(first, 5))
    state = json.loads(json.dumps(first.state_dict()))
    first.close()
    second = drawn(batch_size=3, num_threads=2).loader(8, workers=3 - workers)
    second.load_state_dict(state)
    assert same(begun + list(second), whole)


def test_what_dali_draws_itself_keeps_the_order_at_least() -> None:
    @pipeline_def
    def noisy() -> Any:
        values = fn.external_source(name="values")
        return values, fn.random.uniform(range=[0.0, 1.0])

    stage = dali(noisy, {"values": "n"}, ("n", "noise"), seed=3)
    one, two = (list(photos(60).apply(stage).loader(6, workers=workers)) for workers in (1, 2))
    assert [batch["n"].tolist() for batch in one] == [batch["n"].tolist() for batch in two]
    assert [batch["__key__"] for batch in one] == [batch["__key__"] for batch in two]
    assert {batch["noise"].shape for batch in one} == {(6,)}


# What goes wrong


@pytest.mark.parametrize("options", [{}, {"workers": 2}, {"workers": 1, "mode": "process"}])
def test_the_sample_that_fails_is_named(options: Any) -> None:
    dataset = photos(60, broken=[33]).apply(dali(small, {"jpegs": "jpg"}, "jpg"), **options)
    with pytest.raises(SampleError, match=r"shard memory-1, sample 'k33': DALI could not treat it: ") as caught:
        list(dataset.run(workers=1))
    notes = "\n".join(caught.value.__notes__)
    assert "in stage dali(small), at sample 'k33' of shard memory-1" in notes
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_that_fail_are_skipped(workers: int) -> None:
    dataset = photos(60, broken=[3, 33, 34]).apply(dali(small, {"jpegs": "jpg"}, "jpg"))
    run = dataset.run(workers=workers, on_error="skip", error_budget=3)
    found = list(run)
    assert [sample["n"] for sample in found] == [n for n in range(60) if n not in (3, 33, 34)]
    bare = through_bare(small, 60)
    assert same([sample["jpg"] for sample in found], [bare[sample["n"]] for sample in found])
    assert [failure.key for failure in run.ledger] == ["k3", "k33", "k34"]


def test_a_sample_of_another_type_is_named() -> None:
    samples: list[Sample] = [{"__key__": "a", "x": np.zeros(2)}, {"__key__": "b", "x": np.zeros(2, np.int32)}]
    stage = dali(two_halves, {"values": "x"}, ("half", "rest"))
    with pytest.raises(SampleError, match=r"sample 'b': DALI could not treat it: .*the current type is int32"):
        list(Dataset(MemorySource([samples])).apply(stage))


class Narrow:
    """Pipelines that have room for one sample, and do not know it."""

    max_batch_size = 8

    def here(self) -> Narrow:
        return self

    def drop(self) -> None:
        pass

    def feed_input(self, name: str, values: list[Any]) -> None:
        self.values = values

    def run(self) -> list[Any]:
        if len(self.values) > 1:
            raise RuntimeError("out of memory")
        return [self.values]


def test_what_fails_only_together_is_said() -> None:
    stage = replace(dali(small, {"jpegs": "jpg"}, "jpg"), lines=Narrow())
    with pytest.raises(RuntimeError, match="out of memory") as caught:
        list(photos(5).apply(stage))
    assert "in stage dali(small), with 5 samples at once, each of which passes alone" in caught.value.__notes__
    assert len(list(photos(5).apply(stage).run(on_error="skip", error_budget=0))) == 5


def test_values_that_dali_does_not_take_are_named() -> None:
    with pytest.raises(
        MissingFieldError, match=r"sample 'k0', field 'png': the sample has no such field; it has jpg, n"
    ):
        list(photos(2).apply(dali(small, {"jpegs": "png"}, "jpg")))
    for value, seen in (("text", "str"), (np.zeros((0, 3)), r"float64 \(0, 3\)"), (None, "NoneType"), (b"", "bytes")):
        dataset = photos(2).map(lambda sample, value=value: {**sample, "jpg": value})
        with pytest.raises(SampleError, match=rf"sample 'k0', field 'jpg': DALI takes bytes, .* not {seen}"):
            list(dataset.apply(dali(small, {"jpegs": "jpg"}, "jpg")))


def test_pipelines_that_do_not_fit_are_refused() -> None:
    with pytest.raises(PlanError, match=r"the pipeline small has no fn.external_source\(name='pictures'\) to be fed"):
        list(photos(2).apply(dali(small, {"pictures": "jpg"}, "jpg")))
    with pytest.raises(PlanError, match=r"gives 1 outputs, and 2 are named: \('jpg', 'size'\)"):
        list(photos(2).apply(dali(small, {"jpegs": "jpg"}, ("jpg", "size"))))
    with pytest.raises(PlanError, match="at least one of each"):
        dali(small, {}, "jpg")
    with pytest.raises(PlanError, match="jpegs: an external source is fed by inputs or by random, not by both"):
        dali(small, {"jpegs": "jpg"}, "jpg", random={"jpegs": 1})
    with pytest.raises(PlanError, match=r"random=\{'u': 0\}"):
        dali(small, {"jpegs": "jpg"}, "jpg", random={"u": 0})
    with pytest.raises(PlanError, match="prefetch_queue_depth"):
        dali(small, {"jpegs": "jpg"}, "jpg", prefetch_queue_depth=2)


def test_a_missing_dali_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvidia.dali", None)
    sentence = r'shoal.image.dali needs nvidia.dali, which is not installed: pip install "shoal\[dali\]"'
    with pytest.raises(MissingExtraError, match=sentence):
        list(photos(2).apply(dali(small, {"jpegs": "jpg"}, "jpg")))
