"""Hugging Face datasets: their rows as samples, decoded by their features."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shoal.data.huggingface import export_parquet, features_of, from_huggingface
from shoal.data.huggingface._forms import forms_of
from shoal.errors import (
    CorruptShardError,
    DecodeError,
    MissingExtraError,
    PlanError,
    SchemaError,
    StateError,
)
from shoal.sources import HuggingFaceSource
from support.huggingface import (
    LABELS,
    crop,
    numbers,
    picture_dataset,
    picture_files,
    quiet,
    sounds,
    tone_files,
)


@pytest.fixture(autouse=True)
def _quiet(tmp_path: Path) -> Iterator[None]:
    with quiet(tmp_path / "huggingface"):
        yield


def saved(dataset: Any, folder: Path) -> Any:
    dataset.save_to_disk(folder)
    return datasets.load_from_disk(folder)


# Rows


@pytest.mark.parametrize("on_disk", [False, True])
def test_rows_come_in_the_order_of_the_indices(on_disk: bool, tmp_path: Path) -> None:
    dataset = saved(numbers(2500), tmp_path / "saved") if on_disk else numbers(2500)
    for chosen in (dataset, dataset.select([7, 3, 3, 2400]), dataset.shuffle(seed=1), dataset.shard(3, 1)):
        made = from_huggingface(chosen)
        assert [(sample["n"], sample["text"]) for sample in made] == list(zip(chosen["n"], chosen["text"], strict=True))
        assert made.count() == len(chosen)


def test_keys_are_made_of_the_split_or_taken_from_a_column() -> None:
    assert [sample["__key__"] for sample in from_huggingface(numbers(2))] == ["train-000000000", "train-000000001"]
    assert [sample["__key__"] for sample in from_huggingface(numbers(2), key="text")] == ["row 0", "row 1"]


def test_a_format_hides_columns_and_a_transform_is_refused() -> None:
    assert list(from_huggingface(numbers(1).with_format("numpy", columns=["n"]))) == [
        {"__key__": "train-000000000", "n": 0}
    ]
    with pytest.raises(PlanError, match=r"has a transform.*\.map\(function\)"):
        from_huggingface(numbers(1).with_transform(lambda rows: rows))


def test_an_empty_dataset_has_no_samples() -> None:
    assert list(from_huggingface(numbers(3).select([]))) == []
    assert from_huggingface(numbers(3).select([])).count() == 0


@given(
    chosen=st.lists(st.integers(0, 29), min_size=1, max_size=60),
    picks=st.lists(st.integers(0, 10**6), min_size=1, max_size=20),
)
def test_any_sample_can_be_picked_as_row_and_as_column(chosen: list[int], picks: list[int]) -> None:
    source = HuggingFaceSource(numbers(30).select(chosen))
    (shard,) = source.shards()
    places = np.array(picks) % len(chosen)
    taken = source.take(shard, places.tolist())
    assert [sample["n"] for sample in taken] == [chosen[place] for place in places]
    columns = source.take_columns(shard, places)
    assert columns is not None
    assert list(columns["n"]) == [chosen[place] for place in places]
    assert columns["__key__"] == [sample["__key__"] for sample in taken]


def test_a_shard_is_a_group_of_rows() -> None:
    source = HuggingFaceSource(numbers(2500).shuffle(seed=3))
    assert [source.length(shard) for shard in source.shards()] == [1000, 1000, 500]
    heavy = datasets.Dataset.from_dict({"data": [bytes(2**20)] * 40})
    assert [HuggingFaceSource(heavy).length(shard) for shard in HuggingFaceSource(heavy).shards()] == [15, 15, 10]


def test_a_dataset_on_disk_travels_as_the_names_of_its_files(tmp_path: Path) -> None:
    big = saved(datasets.Dataset.from_dict({"data": [bytes(1000)] * 1000}), tmp_path / "saved")
    sent = pickle.dumps(HuggingFaceSource(big.select(range(500))))
    assert len(sent) < 20_000
    source = pickle.loads(sent)
    assert source.take(source.shards()[0], [3])[0]["data"] == bytes(1000)


def test_a_damaged_table_is_told(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"word": ["a" * 77, "b" * 77, "c" * 77]}).save_to_disk(tmp_path / "saved")
    (path,) = (tmp_path / "saved").glob("*.arrow")
    good, bad = (np.array([0, 77, offset, 231], np.int32).tobytes() for offset in (154, 10**8))
    assert path.read_bytes().count(good) == 1
    path.write_bytes(path.read_bytes().replace(good, bad))
    damaged = datasets.load_from_disk(tmp_path / "saved")
    for chosen in (damaged, damaged.select([2, 0, 1])):
        with pytest.raises(CorruptShardError, match="huggingface://row: its table is damaged"):
            list(from_huggingface(chosen))


# Loading


def test_a_loader_shuffles_and_resumes_exactly(tmp_path: Path) -> None:
    dataset = saved(numbers(2560), tmp_path / "saved").shuffle(seed=5)
    made = from_huggingface(dataset).shuffle("full", seed=1)
    loader = made.loader(64)
    batches = list(loader)
    assert sorted(n for batch in batches for n in batch["n"].tolist()) == list(range(2560))
    assert batches[0]["n"].tolist() != sorted(batches[0]["n"].tolist())

    first = made.loader(64)
    steps = iter(first)
    for _ in range(7):
        next(steps)
    state = json.loads(json.dumps(first.state_dict()))
    again = from_huggingface(dataset).shuffle("full", seed=1).loader(64)
    again.load_state_dict(state)
    rest = list(again)
    assert [batch["n"].tolist() for batch in rest] == [batch["n"].tolist() for batch in batches[7:]]


def test_a_state_of_other_rows_is_refused() -> None:
    first = from_huggingface(numbers(100)).shuffle("full").loader(10)
    next(iter(first))
    other = from_huggingface(numbers(100).select(range(99, -1, -1))).shuffle("full").loader(10)
    with pytest.raises(StateError):
        other.load_state_dict(first.state_dict())


def test_processes_decode_pictures(tmp_path: Path) -> None:
    made = from_huggingface(picture_dataset(tmp_path, 20, on_disk=True))
    found = list(made.run(workers=2, mode="process"))
    assert [sample["label"] for sample in found] == [0, 1] * 10
    assert all(np.array_equal(sample["image"], crop(number)) for number, sample in enumerate(found))
    batches = list(made.shuffle("full", seed=2).loader(5, workers=2, mode="process"))
    assert [batch["image"].shape for batch in batches] == [(5, 24, 32, 3)] * 4


# The shapes that a dataset has


def test_of_several_splits_one_is_named() -> None:
    splits = datasets.DatasetDict({"train": numbers(3), "test": numbers(2)})
    assert from_huggingface(splits, split="test").count() == 2
    with pytest.raises(PlanError, match="split is not given; say which of 'train', 'test', as in split='train'"):
        from_huggingface(splits)
    with pytest.raises(PlanError, match="there is no split 'valid'"):
        features_of(splits, split="valid")
    with pytest.raises(PlanError, match="this is one already"):
        from_huggingface(numbers(3), split="train")


def test_a_saved_folder_is_read(tmp_path: Path) -> None:
    numbers(3).save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": numbers(2)}).save_to_disk(str(tmp_path / "many"))
    assert from_huggingface(tmp_path / "one").count() == 3
    assert from_huggingface(str(tmp_path / "many"), split="train").count() == 2


def test_a_stream_is_read_forward(tmp_path: Path) -> None:
    stream = picture_dataset(tmp_path, 10).to_iterable_dataset(num_shards=3)
    made = from_huggingface(stream)
    assert [shard.url for shard in made.shards] == [f"huggingface://row-{part}" for part in range(3)]
    assert all(np.array_equal(sample["image"], crop(number)) for number, sample in enumerate(made))
    assert [sample["text"] for sample in made] == [f"row {number}" for number in range(10)]
    assert made.count() == 10
    mapped = stream.map(lambda row: {"size": len(row["text"])})
    with pytest.raises(PlanError, match=r"features of the stream are not known.*dataset\.cast\(features\)"):
        from_huggingface(mapped)
    assert [sample["size"] for sample in from_huggingface(mapped, decode=False)] == [5] * 10


def test_a_stream_is_loaded_and_resumed() -> None:
    made = from_huggingface(numbers(96).to_iterable_dataset(num_shards=4))
    loader = made.loader(8)
    batches = [batch["n"].tolist() for batch in loader]
    assert sorted(n for batch in batches for n in batch) == list(range(96))
    first = made.loader(8)
    steps = iter(first)
    seen = [next(steps)["n"].tolist() for _ in range(3)]
    again = made.loader(8)
    again.load_state_dict(first.state_dict())
    assert seen + [batch["n"].tolist() for batch in again] == batches


class Squares(datasets.GeneratorBasedBuilder):
    """Numbers and their squares."""

    VERSION = datasets.Version("1.0.0")

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo(
            features=datasets.Features({"n": datasets.Value("int64"), "square": datasets.Value("int64")})
        )

    def _split_generators(self, manager: Any) -> list[datasets.SplitGenerator]:
        return [
            datasets.SplitGenerator(name="train", gen_kwargs={"count": 5}),
            datasets.SplitGenerator(name="test", gen_kwargs={"count": 2}),
        ]

    def _generate_examples(self, count: int) -> Iterator[tuple[int, dict[str, int]]]:
        for n in range(count):
            yield n, {"n": n, "square": n * n}


def test_a_builder_is_prepared_and_read(tmp_path: Path) -> None:
    assert [sample["square"] for sample in from_huggingface(Squares, split="train")] == [0, 1, 4, 9, 16]
    builder = Squares(cache_dir=str(tmp_path / "other"))
    assert [sample["square"] for sample in from_huggingface(builder, split="test")] == [0, 1]
    assert list(features_of(builder, split="test")) == ["n", "square"]


def test_anything_else_is_refused() -> None:
    with pytest.raises(PlanError, match=r"a dict.*neither|a set is neither a datasets\.Dataset"):
        from_huggingface({1, 2})


# Decoding


def test_pictures_become_what_is_asked_for(tmp_path: Path) -> None:
    dataset = picture_dataset(tmp_path, 2)
    (first, second) = from_huggingface(dataset)
    assert np.array_equal(first["image"], crop(0))
    assert second["label"] == 1
    assert features_of(dataset)["label"].int2str(1) == LABELS[1]
    assert isinstance(next(iter(from_huggingface(dataset, images="pil")))["image"], Image.Image)
    assert next(iter(from_huggingface(dataset, images="l8")))["image"].shape == (24, 32)
    with pytest.raises(PlanError, match="no image spec"):
        from_huggingface(dataset, images="rbg8")


def test_without_decoding_a_picture_is_as_it_is_stored(tmp_path: Path) -> None:
    dataset = picture_dataset(tmp_path, 1)
    stored = {"bytes": None, "path": dataset.cast_column("image", datasets.Image(decode=False))[0]["image"]["path"]}
    assert next(iter(from_huggingface(dataset, decode=False)))["image"] == stored
    assert next(iter(from_huggingface(dataset.cast_column("image", datasets.Image(decode=False)))))["image"] == stored


def test_nested_pictures_are_decoded_and_nulls_stay(tmp_path: Path) -> None:
    paths = picture_files(tmp_path / "pictures", 3)
    features = datasets.Features(
        {
            "pages": datasets.List(datasets.Image()),
            "book": {"title": datasets.Value("string"), "cover": datasets.Image()},
            "maybe": datasets.Image(),
            "grid": datasets.Array2D((2, 3), "int32"),
        }
    )
    rows = {
        "pages": [paths[:2], []],
        "book": [{"title": "a", "cover": paths[2]}, {"title": "b", "cover": None}],
        "maybe": [None, paths[0]],
        "grid": [[[1, 2, 3], [4, 5, 6]], [[0, 0, 0], [0, 0, 7]]],
    }
    dataset = datasets.Dataset.from_dict(rows, features=features)
    export_parquet(dataset, tmp_path / "out")
    for made in (from_huggingface(dataset), from_huggingface(tmp_path / "out")):
        first, second = made
        assert [np.array_equal(page, crop(at)) for at, page in enumerate(first["pages"])] == [True, True]
        assert first["book"]["title"] == "a"
        assert np.array_equal(first["book"]["cover"], crop(2))
        assert second["book"]["cover"] is None
        assert (len(second["pages"]), first["maybe"]) == (0, None)
        assert np.array_equal(second["maybe"], crop(0))
        assert second["grid"].tolist() == [[0, 0, 0], [0, 0, 7]]
        assert second["grid"].dtype == np.int32


def test_sound_is_mixed_to_one_channel(tmp_path: Path) -> None:
    paths = tone_files(tmp_path, 2, channels=2)
    found = [sample["audio"] for sample in from_huggingface(sounds(paths))]
    expected, rate = soundfile.read(paths[1])
    assert found[1]["path"] == paths[1]
    assert found[1]["sampling_rate"] == rate == 22050
    assert found[1]["array"].dtype == np.float32
    np.testing.assert_allclose(found[1]["array"], expected.mean(axis=1), atol=1e-7)


def test_channels_that_are_asked_for_come_first(tmp_path: Path) -> None:
    stereo = tone_files(tmp_path / "stereo", 1, channels=2)
    mono = tone_files(tmp_path / "mono", 1)
    for paths in (stereo, mono):
        (found,) = from_huggingface(sounds(paths, num_channels=2))
        assert found["audio"]["array"].shape == (2, 2205)
    assert not np.array_equal(*from_huggingface(sounds(stereo, num_channels=2)).__iter__().__next__()["audio"]["array"])
    three = tone_files(tmp_path / "three", 1, channels=3)
    with pytest.raises(DecodeError, match=r"3 channels, and the feature asks for 2.*num_channels=1") as caught:
        list(from_huggingface(sounds(three, num_channels=2)))
    assert (caught.value.field, caught.value.key) == ("audio", "row-000000000")


def test_features_that_older_versions_wrote_are_understood(tmp_path: Path) -> None:
    forms = forms_of(
        {
            "kept": {"sampling_rate": 8000, "mono": False, "_type": "Audio"},
            "each": {"feature": {"_type": "Image"}, "_type": "Sequence"},
            "rows": {"feature": {"photo": {"_type": "Image"}, "n": {"_type": "Value"}}, "_type": "Sequence"},
            "listed": [{"_type": "Image"}],
            "plain": {"names": ["a"], "_type": "ClassLabel"},
        }
    )
    assert repr(forms) == (
        "{'kept': Sound(rate=8000, channels=None), 'each': Each(form=Picture()), "
        "'rows': Fields(forms={'photo': Each(form=Picture())}), 'listed': Each(form=Picture())}"
    )


def test_sound_is_resampled_to_the_rate_of_its_feature(tmp_path: Path) -> None:
    (path,) = tone_files(tmp_path, 1, rate=48_000)
    (found,) = from_huggingface(sounds([path], sampling_rate=16_000))
    assert found["audio"]["sampling_rate"] == 16_000
    expected = 0.5 * np.sin(2 * np.pi * 220 * np.arange(1600) / 16_000)
    np.testing.assert_allclose(found["audio"]["array"][100:-100], expected[100:-100], atol=2e-3)


def test_resampling_without_its_library_says_what_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = tone_files(tmp_path, 1, rate=48_000)
    monkeypatch.setitem(sys.modules, "scipy.signal", None)
    with pytest.raises(MissingExtraError, match=r"resampling sound from 48000 to 16000 .* pip install .*audio"):
        list(from_huggingface(sounds([path], sampling_rate=16_000)))
    assert len(list(from_huggingface(sounds([path], sampling_rate=48_000)))) == 1


def test_an_error_names_sample_and_field(tmp_path: Path) -> None:
    paths = picture_files(tmp_path, 3)
    Path(paths[1]).write_bytes(b"no picture")
    rows = datasets.Dataset.from_dict(
        {"pages": [paths]}, features=datasets.Features({"pages": datasets.List(datasets.Image())})
    )
    with pytest.raises(DecodeError, match=r"'row-000000000', field 'pages\[1\]': .*no picture"):
        list(from_huggingface(rows))
    Path(paths[1]).unlink()
    with pytest.raises(DecodeError, match=r"in another file, which cannot be read.*export_parquet") as caught:
        list(from_huggingface(rows))
    assert caught.value.field == "pages[1]"
    run = from_huggingface(rows).run(on_error="skip", error_budget=1)
    assert list(run) == []
    assert len(run.ledger.failures) == 1


# Parquet files


def test_plain_parquet_has_nothing_to_decode(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2], "data": [b"a", b"b"]}), tmp_path / "a.parquet")
    assert [sample["n"] for sample in from_huggingface([tmp_path / "a.parquet"])] == [1, 2]
    assert features_of(tmp_path)["data"].dtype == "binary"


def test_a_description_that_is_not_understood_is_told(tmp_path: Path) -> None:
    table = pa.table({"n": [1]}).replace_schema_metadata({"huggingface": "[]"})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match=r"a\.parquet.*not understood.*decode=False"):
        from_huggingface(tmp_path)
    assert len(list(from_huggingface(tmp_path, decode=False))) == 1


def test_parquet_is_read_without_the_library(tmp_path: Path) -> None:
    export_parquet(picture_dataset(tmp_path, 3), tmp_path / "out")
    script = """
    import sys
    sys.modules["datasets"] = None
    from shoal.data.huggingface import from_huggingface
    print([sample["image"].shape for sample in from_huggingface(sys.argv[1])])
    """
    from support.engine import run_script

    done = run_script(script, arguments=[str(tmp_path / "out")])
    assert done.stdout == f"{[(24, 32, 3)] * 3}\n", done.stderr
