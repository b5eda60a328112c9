"""Hugging Face datasets to embedded Parquet to Ray, as users write it, and the same in few words.

The data is local: photographs and tones. What is not public any more is left out, and told where it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import soundfile

from shoal.data.huggingface import export_parquet, features_of, from_huggingface
from support.clusters import running
from support.huggingface import crop, picture_dataset, quiet, rows_of, tone_files

COUNT = 24


@pytest.fixture(autouse=True)
def _quiet(tmp_path: Path) -> Iterator[None]:
    with quiet(tmp_path / "huggingface"):
        yield


@pytest.fixture
def pictures(tmp_path: Path) -> Any:
    return picture_dataset(tmp_path, COUNT, on_disk=True)


@pytest.fixture
def speech(tmp_path: Path) -> Any:
    """Some rows like those of LJ Speech."""
    paths = tone_files(tmp_path / "tones", 4)
    names = [f"LJ001-{number:04d}" for number in range(4)]
    rows = {"id": names, "audio": paths, "file": paths, "text": ["One, two."] * 4, "normalized_text": ["one two"] * 4}
    return datasets.Dataset.from_dict(rows, split="train").cast_column("audio", datasets.Audio(sampling_rate=22050))


def test_load_a_dataset(pictures: Any, speech: Any) -> None:
    assert len(pictures) == COUNT
    assert isinstance(pictures.features["image"], datasets.Image)
    assert (len(speech), speech.features["audio"].sampling_rate) == (4, 22050)
    assert from_huggingface(speech).count() == 4


def test_load_what_was_converted_to_parquet(pictures: Any, tmp_path: Path) -> None:
    export_parquet(pictures, tmp_path / "main")
    loaded = datasets.load_dataset("parquet", data_dir=str(tmp_path / "main"))
    assert loaded["train"].features == pictures.features
    assert features_of(tmp_path / "main") == pictures.features
    assert [sample["text"] for sample in from_huggingface(loaded, split="train")] == pictures["text"][:]


def by_hand(dataset: Any, data_dir: str, max_shard_size: Any) -> None:
    """Embed and write shard after shard."""
    from datasets import config
    from datasets.features.features import require_decoding
    from datasets.table import embed_table_storage
    from datasets.utils.py_utils import convert_file_size_to_int
    from tqdm import tqdm

    decodable_columns = [k for k, v in dataset.features.items() if require_decoding(v, ignore_decode_attribute=True)]
    assert decodable_columns in (["image"], ["audio"])
    dataset_nbytes = dataset._estimate_nbytes()
    max_shard_size = convert_file_size_to_int(max_shard_size or config.MAX_SHARD_SIZE)
    num_shards = int(dataset_nbytes / max_shard_size) + 1
    num_shards = max(num_shards, 1)
    shards = (dataset.shard(num_shards=num_shards, index=i, contiguous=True) for i in range(num_shards))

    # Embed Audio and Image as bytes in the Parquet files
    def shards_with_embedded_external_files(shards: Any) -> Iterator[Any]:
        for shard in shards:
            format = shard.format
            shard = shard.with_format("arrow")
            shard = shard.map(
                embed_table_storage,
                batched=True,
                batch_size=1000,
                keep_in_memory=True,
            )
            shard = shard.with_format(**format)
            yield shard

    shards = shards_with_embedded_external_files(shards)

    os.makedirs(data_dir)

    for index, shard in tqdm(
        enumerate(shards),
        desc="Save the dataset shards",
        total=num_shards,
    ):
        shard_path = f"{data_dir}/{index:05d}-of-{num_shards:05d}.parquet"
        shard.to_parquet(shard_path)


@pytest.mark.parametrize("kind", ["pictures", "speech"])
def test_export_gives_the_rows_of_the_loop(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    dataset = request.getfixturevalue(kind)
    by_hand(dataset, str(tmp_path / "theirs"), "8KB")
    ours = export_parquet(dataset, tmp_path / "ours", "8KB")
    theirs = [str(path) for path in sorted((tmp_path / "theirs").iterdir())]
    assert [os.path.basename(path) for path in ours] == [os.path.basename(path) for path in theirs]
    assert len(ours) > 2
    assert [rows_of([path]) for path in ours] == [rows_of([path]) for path in theirs]
    assert features_of(ours) == features_of(theirs) == dataset.features


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_ray_reads_and_decodes_what_was_exported(pictures: Any, tmp_path: Path) -> None:
    export_parquet(pictures, tmp_path / "out", "20KB")
    features = features_of(tmp_path / "out")

    def decoded(row: dict[str, Any]) -> dict[str, Any]:
        made = features.decode_example(row)
        return {**made, "image": np.asarray(made["image"])}  # Ray keeps arrays, but no pictures of Pillow

    class Decoder:
        def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
            return decoded(row)

    with running("ray", workers=2):
        import ray.data

        ray.data.DataContext.get_current().enable_progress_bars = False
        ds = ray.data.read_parquet(str(tmp_path / "out"))
        assert ds.count() == COUNT
        assert all(row["image"]["bytes"].startswith(b"\x89PNG") for row in ds.take_all())
        plain = ds.map(decoded)
        growing = ds.map(Decoder, num_cpus=0.5, concurrency=(1, 2))
        with pytest.raises(ValueError, match="not a callable class"):
            ds.map(features.decode_example, concurrency=(1, 2))
        for made in (plain.materialize(), growing.materialize()):
            rows = {row["text"]: row for row in made.take_all()}
            assert all(np.array_equal(rows[f"row {number}"]["image"], crop(number)) for number in range(COUNT))
        assert "Map" in made.stats()


def test_the_same_rows_decoded_in_few_words(pictures: Any, tmp_path: Path) -> None:
    export_parquet(pictures, tmp_path / "out", "20KB")
    rows = list(from_huggingface(tmp_path / "out").run(workers=2))
    assert [sample["text"] for sample in rows] == pictures["text"][:]
    assert all(np.array_equal(sample["image"], crop(number)) for number, sample in enumerate(rows))


def test_one_row_is_decoded_as_far_as_it_is_there(pictures: Any, tmp_path: Path) -> None:
    (path, *_) = export_parquet(pictures, tmp_path / "out")
    row = rows_of([path])[1]
    made = pictures.features.decode_example({"image": row["image"], "label": 1})
    assert np.array_equal(np.asarray(made["image"]), crop(1))
    assert made["label"] == 1
    assert pictures.features.decode_example({"label": 1}) == {"label": 1}
    chosen = from_huggingface(pictures.select_columns(["label", "text"]))
    assert next(iter(chosen)) == {"__key__": "train-000000000", "label": 0, "text": "row 0"}


def test_exported_sound_is_decoded(speech: Any, tmp_path: Path) -> None:
    paths = list(speech["file"])
    export_parquet(speech, tmp_path / "out")
    sounds = [soundfile.read(path)[0] for path in paths]
    for path in paths:
        os.unlink(path)
    for sample, sound in zip(from_huggingface(tmp_path / "out"), sounds, strict=True):
        np.testing.assert_allclose(sample["audio"]["array"], sound, atol=1e-7)
        assert sample["audio"]["sampling_rate"] == 22050
        assert sample["audio"]["path"].endswith(".wav")


class LJSpeech(datasets.GeneratorBasedBuilder):
    """Speech in files; task templates are not part of the library any more."""

    VERSION = datasets.Version("1.1.0")

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo(
            description="Short passages, read aloud.",
            features=datasets.Features(
                {
                    "id": datasets.Value("string"),
                    "audio": datasets.Audio(sampling_rate=22050, decode=False),
                    "file": datasets.Value("string"),
                    "text": datasets.Value("string"),
                    "normalized_text": datasets.Value("string"),
                }
            ),
            supervised_keys=("file", "text"),
            homepage="https://keithito.com/LJ-Speech-Dataset/",
        )


def test_a_builder_tells_its_features(tmp_path: Path) -> None:
    features = LJSpeech(cache_dir=str(tmp_path)).info.features
    assert list(features) == ["id", "audio", "file", "text", "normalized_text"]
    assert features["audio"].sampling_rate == 22050
