"""Export of Hugging Face datasets: sizes, embedded files, stops in the middle, one result on all engines."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets.table import embed_table_storage

import shoal
from shoal.data.huggingface import _embedding, export_parquet, features_of, from_huggingface
from shoal.data.huggingface._sizes import bytes_of, shard_count
from shoal.errors import (
    EncodeError,
    PlanError,
    SettingsError,
)
from shoal.settings import parse_bytes
from support.clusters import running
from support.huggingface import (
    LABELS,
    crop,
    numbers,
    picture_dataset,
    picture_files,
    quiet,
    rows_of,
    sounds,
    tone_files,
)

#: What the engines say about each other and about themselves.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:pyspark"),
]


@pytest.fixture(autouse=True)
def _quiet(tmp_path: Path) -> Iterator[None]:
    with quiet(tmp_path / "huggingface"):
        yield


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.parquet"))}


# Sizes


def test_sizes_are_written_as_users_of_the_library_write_them() -> None:
    from datasets.utils.py_utils import convert_file_size_to_int

    for text in ("1MiB", "500MB", "8Mb", 7, "3PB", "2PiB", "16Gb", "5KiB"):
        assert parse_bytes(text) == convert_file_size_to_int(text)
    assert [parse_bytes(text) for text in ("1MiB", "500MB", "8Mb", 7)] == [1048576, 500_000_000, 1_000_000, 7]
    with pytest.raises(SettingsError, match="5 potatoes"):
        parse_bytes("5 potatoes")


def test_exact_multiples_get_one_shard_more() -> None:
    assert [shard_count(size, 500) for size in (0, 499, 500, 999, 1000)] == [1, 1, 2, 2, 3]


def test_the_estimate_is_the_one_of_the_library(tmp_path: Path) -> None:
    pictures = picture_dataset(tmp_path / "a", 30, on_disk=True)
    nested = datasets.Dataset.from_dict(
        {"pages": [picture_files(tmp_path / "b", 2)] * 3},
        features=datasets.Features({"pages": datasets.List(datasets.Image())}),
    )
    tones = sounds(tone_files(tmp_path / "c", 3))
    for dataset in (pictures, pictures.shuffle(seed=1).select(range(7)), nested, tones, numbers(50), numbers(0)):
        assert bytes_of(dataset) == dataset._estimate_nbytes()


# Export


def test_rows_are_dealt_out_in_order(tmp_path: Path) -> None:
    dataset = numbers(10)
    assert [dataset.shard(3, part, contiguous=True)["n"][:] for part in range(3)] == [
        [0, 1, 2, 3],
        [4, 5, 6],
        [7, 8, 9],
    ]
    assert dataset.shard(3, 0, contiguous=False)["n"][:] == [0, 3, 6, 9]
    paths = export_parquet(dataset, tmp_path, bytes_of(dataset) // 2 - 1)
    assert [os.path.basename(path) for path in paths] == [f"0000{part}-of-00003.parquet" for part in range(3)]
    assert [[row["n"] for row in rows_of([path])] for path in paths] == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_more_shards_than_rows_leave_empty_ones(tmp_path: Path) -> None:
    paths = export_parquet(numbers(2), tmp_path, 8)
    assert len(paths) > 2
    assert [row["n"] for row in rows_of(paths)] == [0, 1]
    assert [sample["n"] for sample in from_huggingface(tmp_path)] == [0, 1]


@pytest.mark.parametrize("on_disk", [False, True])
def test_pictures_are_embedded(on_disk: bool, tmp_path: Path) -> None:
    dataset = picture_dataset(tmp_path, 12, on_disk=on_disk).shuffle(seed=4)
    order = [int(text.removeprefix("row ")) for text in dataset["text"]]
    contents = [(tmp_path / "pictures" / f"{number:03d}.png").read_bytes() for number in order]
    dataset.to_parquet(tmp_path / "direct.parquet")
    assert {row["image"]["bytes"] for row in rows_of([str(tmp_path / "direct.parquet")])} == {None}
    paths = export_parquet(dataset, tmp_path / "out", "10KB")
    assert len(paths) > 1
    shutil.rmtree(tmp_path / "pictures")
    stored = [row["image"] for row in rows_of(paths)]
    assert [each["bytes"] for each in stored] == contents
    assert [each["path"] for each in stored] == [f"{number:03d}.png" for number in order]
    assert all(
        np.array_equal(sample["image"], crop(number))
        for sample, number in zip(from_huggingface(tmp_path / "out"), order, strict=True)
    )


def test_the_library_loads_what_was_exported_with_its_features(tmp_path: Path) -> None:
    dataset = picture_dataset(tmp_path, 6)
    export_parquet(dataset, tmp_path / "out", "4KB")
    loaded = datasets.load_dataset("parquet", data_files=str(tmp_path / "out" / "*.parquet"), split="train")
    assert loaded.features == dataset.features == features_of(tmp_path / "out")
    assert loaded["label"][:] == dataset["label"][:]
    assert np.array_equal(np.asarray(loaded[3]["image"]), crop(3))


def test_what_names_no_files_is_written_as_it_is(tmp_path: Path) -> None:
    features = datasets.Features({"n": datasets.Value("int8"), "kind": datasets.ClassLabel(names=LABELS)})
    dataset = datasets.Dataset.from_dict({"n": [1, None], "kind": [0, 1]}, features=features)
    table = dataset.with_format("arrow")[:]
    assert embed_table_storage(table) == table
    (path,) = export_parquet(dataset, tmp_path)
    assert rows_of([path]) == table.to_pylist()
    assert features_of(tmp_path)["kind"].names == LABELS


def test_bytes_that_are_there_stay_and_nulls_too(tmp_path: Path) -> None:
    (path,) = picture_files(tmp_path / "pictures", 1)
    content = Path(path).read_bytes()
    here, nothing = {"bytes": b"here", "path": "/far/away.png"}, {"bytes": b"", "path": None}
    rows = [here, None, {"bytes": None, "path": path}, nothing]
    table = pa.table({"image": pa.array(rows, datasets.Image().pa_type)})
    dataset = datasets.Dataset(table).cast_column("image", datasets.Image(decode=False))
    (made,) = export_parquet(dataset, tmp_path / "out")
    assert [row["image"] for row in rows_of([made])] == [
        {"bytes": b"here", "path": "away.png"},
        None,
        {"bytes": content, "path": "000.png"},
        nothing,
    ]


def test_embedding_does_what_the_library_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = picture_files(tmp_path, 8)
    (tmp_path / "empty.png").touch()
    known = [{"bytes": bytes(500 * n), "path": f"far/{n}.png"} for n in range(4)]
    named = [{"bytes": None, "path": path} for path in [*paths, str(tmp_path / "empty.png")]]
    rows = [row for pair in zip(named, [*known, None] * 2, strict=False) for row in pair]
    table = datasets.Dataset(pa.table({"image": pa.array(rows, datasets.Image().pa_type)}))
    table = table.cast_column("image", datasets.Image()).with_format("arrow")[3:]
    features = datasets.Features.from_arrow_schema(table.schema)
    monkeypatch.setattr(_embedding, "_MOST", 4000)
    with ThreadPoolExecutor(2) as readers:
        made = _embedding.embedded(table, features, readers)
    assert made["image"].num_chunks > 2
    assert made.to_pylist() == embed_table_storage(table).to_pylist()


@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_that_changes_while_it_is_read_is_told(change: int, tmp_path: Path) -> None:
    (path,) = picture_files(tmp_path, 1)
    with ThreadPoolExecutor(1) as readers, pytest.raises(OSError, match=r"000\.png' changed while it was read"):
        _embedding._filled([(path, os.stat(path).st_size + change)], readers)


def test_columns_of_files_are_plain_and_others_compressed(tmp_path: Path) -> None:
    (path,) = export_parquet(picture_dataset(tmp_path, 4), tmp_path / "out", row_group_size=3)
    group = pq.ParquetFile(path).metadata.row_group(0)
    assert [pq.ParquetFile(path).metadata.row_group(part).num_rows for part in range(2)] == [3, 1]
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert columns["image.bytes"].compression == "UNCOMPRESSED"
    assert columns["image.bytes"].statistics is None
    assert not columns["image.bytes"].has_dictionary_page
    assert columns["text"].compression == "SNAPPY"
    assert columns["label"].statistics.max == 1


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    dataset = picture_dataset(tmp_path, 1010)
    (tmp_path / "pictures" / "1005.png").unlink()
    with pytest.raises(EncodeError, match=r"field 'image'.*cannot be read.*1005\.png"):
        export_parquet(dataset, tmp_path / "out")
    assert list((tmp_path / "out").glob("*.parquet")) == []


def test_only_a_dataset_with_a_length_is_exported(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="splits 'train', 'test'; export each"):
        export_parquet(datasets.DatasetDict({"train": numbers(1), "test": numbers(1)}), tmp_path)
    with pytest.raises(PlanError, match="IterableDataset cannot be exported"):
        export_parquet(numbers(1).to_iterable_dataset(), tmp_path)
    with pytest.raises(PlanError, match="row_group_size is 0"):
        export_parquet(numbers(1), tmp_path, row_group_size=0)


# Stopping and going on


def test_finished_shards_are_left_alone(tmp_path: Path) -> None:
    dataset = numbers(100)
    paths = export_parquet(dataset, tmp_path, 300)
    before = digests(tmp_path)
    times = {path: os.stat(path).st_mtime_ns for path in paths}
    os.unlink(paths[2])
    assert export_parquet(dataset, tmp_path, 300) == paths
    assert digests(tmp_path) == before
    assert [path for path in paths if os.stat(path).st_mtime_ns != times[path]] == [paths[2]]


def test_another_export_is_in_the_way(tmp_path: Path) -> None:
    export_parquet(numbers(100), tmp_path, 300)
    count = len(digests(tmp_path))
    for other, size in ((numbers(100), 1000), (numbers(101), 300), (numbers(100).select(range(99, -1, -1)), 300)):
        with pytest.raises(PlanError, match=r"not of this export.*overwrite=True"):
            export_parquet(other, tmp_path, size)
    assert len(digests(tmp_path)) == count
    paths = export_parquet(numbers(100), tmp_path, 1000, overwrite=True)
    assert sorted(digests(tmp_path)) == [os.path.basename(path) for path in paths]
    assert [row["n"] for row in rows_of(paths)] == list(range(100))


def test_files_of_others_are_refused_and_never_removed(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "mine.parquet")
    with pytest.raises(PlanError, match=r"holds mine\.parquet, not of this export"):
        export_parquet(numbers(3), tmp_path)
    export_parquet(numbers(3), tmp_path, overwrite=True)
    assert (tmp_path / "mine.parquet").exists()


def test_killed_and_started_again_it_gives_the_same_bytes(tmp_path: Path) -> None:
    dataset = picture_dataset(tmp_path, 200, on_disk=True)
    export_parquet(dataset, tmp_path / "whole", "5KB")
    script = """
import sys, datasets
from shoal.data.huggingface import export_parquet
export_parquet(datasets.Dataset.from_file(sys.argv[1], split="train"), sys.argv[2], "5KB")
"""
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "rows.arrow"), tmp_path / "out"])
    while process.poll() is None and len(digests(tmp_path / "out")) < 3:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stopped = digests(tmp_path / "out")
    assert stopped.items() <= digests(tmp_path / "whole").items()
    export_parquet(dataset, tmp_path / "out", "5KB")
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".parquet"}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "dask", "ray", "spark"])
def test_all_engines_write_the_same_bytes(engine: str, tmp_path: Path) -> None:
    on_disk = picture_dataset(tmp_path, 20, on_disk=True).shuffle(seed=1)
    in_memory = datasets.Dataset.from_dict(
        {"image": picture_files(tmp_path / "pictures", 20)}, features=datasets.Features({"image": datasets.Image()})
    )
    for number, dataset in enumerate((on_disk, in_memory)):
        export_parquet(dataset, tmp_path / f"here-{number}", "5KB")
    with running(engine, workers=2):
        for number, dataset in enumerate((on_disk, in_memory)):
            export_parquet(dataset, tmp_path / f"there-{number}", "5KB")
            assert digests(tmp_path / f"there-{number}") == digests(tmp_path / f"here-{number}")
            assert len(digests(tmp_path / f"there-{number}")) > 3


def test_an_export_goes_to_any_url(tmp_path: Path) -> None:
    dataset = picture_dataset(tmp_path, 4)
    with shoal.init("local", workers=1, mode="thread"):
        paths = export_parquet(dataset, "memory://export/pictures", "4KB")
        assert paths[0].startswith("memory://export/pictures/00000-of-")
        assert [sample["text"] for sample in from_huggingface("memory://export/pictures/")] == dataset["text"][:]
        assert export_parquet(dataset, "memory://export/pictures", "4KB") == paths
