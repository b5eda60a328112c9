"""Export of pictures in files to Parquet, beside the loop that does it with ``datasets`` alone.

``python -m benchmarks.export_huggingface --count 4000 --rounds 5``; both write the same rows, in as many shards.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from datasets.table import embed_table_storage
from datasets.utils.py_utils import convert_file_size_to_int

from benchmarks.measure import compare, table
from benchmarks.photos import photos
from shoal.data.huggingface import export_parquet

COUNT, ROUNDS = 4000, 5
SHARD = "100MB"


def run(count: int = COUNT, rounds: int = ROUNDS) -> Iterator[str]:
    """Yield the table."""
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name:
        folder = Path(name)
        dataset = _pictures(folder, count)

        def ours() -> None:
            export_parquet(dataset, _fresh(folder / "ours"), SHARD, progress=False)

        def theirs() -> None:
            _loop(dataset, _fresh(folder / "theirs"))

        results = compare({"shoal": ours, "datasets, the loop": theirs}, rounds)
        _check(folder / "ours", folder / "theirs")
    title = f"Exporting {count:,} JPEG files to Parquet"
    yield table(title, results, work=count, unit="pictures/s", against="datasets, the loop")


def _pictures(folder: Path, count: int) -> Any:
    """Make files of pictures, and a dataset on disk that names them."""
    (folder / "pictures").mkdir()
    paths = [folder / "pictures" / f"{number:06d}.jpg" for number in range(count)]
    for path, data in zip(paths, photos(count), strict=True):
        path.write_bytes(data)
    rows = {"image": list(map(str, paths)), "label": [number % 10 for number in range(count)]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    table = datasets.Dataset.from_dict(rows, features=features).with_format("arrow")[:]
    with pa.OSFile(str(folder / "rows.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)  # save_to_disk would embed the pictures
    return datasets.Dataset.from_file(str(folder / "rows.arrow"))


def _loop(dataset: Any, folder: Path) -> None:
    """Embed and write one shard after the other, as users do it by hand."""
    count = int(dataset._estimate_nbytes() / convert_file_size_to_int(SHARD)) + 1
    folder.mkdir()
    for index in range(count):
        shard = dataset.shard(num_shards=count, index=index, contiguous=True)
        shown = shard.format
        shard = shard.with_format("arrow")
        shard = shard.map(embed_table_storage, batched=True, batch_size=1000, keep_in_memory=True)
        shard.with_format(**shown).to_parquet(folder / f"{index:05d}-of-{count:05d}.parquet")


def _check(ours: Path, theirs: Path) -> None:
    """Make sure that the same work was done."""
    assert [path.name for path in sorted(ours.iterdir())] == [path.name for path in sorted(theirs.iterdir())]
    one, other = (
        datasets.Dataset.from_parquet(str(folder / "*.parquet"), cache_dir=folder) for folder in (ours, theirs)
    )
    assert one.with_format("arrow")[:100] == other.with_format("arrow")[:100]
    assert len(one) == len(other)


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    for part in run(**vars(parser.parse_args())):
        print(part)
