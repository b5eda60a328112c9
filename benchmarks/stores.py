"""The same samples in the format of each library. A library is imported only by the function that writes its format.

A sample is a dict: ``{"jpg": bytes, "cls": int}`` for a picture, ``{"bin": bytes}`` for a small one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Samples = Sequence[dict[str, Any]]


def write_tar(samples: Samples, folder: Path, shard: int) -> None:
    """Plain tars, as webdataset has them, without an index."""
    from shoal.shards import ShardWriter

    with ShardWriter(folder / "%04d.tar", maxcount=shard, index=False) as writer:
        for number, sample in enumerate(samples):
            writer.write({"__key__": f"{number:08d}", **sample})


def write_files(samples: Samples, folder: Path, shard: int) -> None:
    """One file a picture, named by its label."""
    for sample in samples:
        (folder / f"{sample['cls']:08d}.jpg").write_bytes(sample["jpg"])


def write_parquet(samples: Samples, folder: Path, shard: int) -> None:
    """Parquet files of so many rows, uncompressed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number, part in enumerate(_parts(samples, shard)):
        pq.write_table(pa.Table.from_pylist(part), folder / f"{number:04d}.parquet", compression="none")


def write_arrow(samples: Samples, folder: Path, shard: int) -> None:
    """Hugging Face's Arrow files."""
    import datasets

    datasets.Dataset.from_list(list(samples)).save_to_disk(folder, num_shards=-(-len(samples) // shard))


def write_tfrecord(samples: Samples, folder: Path, shard: int) -> None:
    """TFRecord files: Examples for pictures, the bare bytes for small samples."""
    import tensorflow as tf

    for number, part in enumerate(_parts(samples, shard)):
        with tf.io.TFRecordWriter(f"{folder}/{number:04d}.tfrecord") as writer:
            for sample in part:
                writer.write(_example(tf, sample) if "jpg" in sample else sample["bin"])


def write_arrayrecord(samples: Samples, folder: Path, shard: int) -> None:
    """ArrayRecord files, one record a group and uncompressed, as Grain advises for random access."""
    from array_record.python.array_record_module import ArrayRecordWriter

    for number, part in enumerate(_parts(samples, shard)):
        writer = ArrayRecordWriter(f"{folder}/{number:04d}.arrayrecord", "group_size:1,uncompressed")
        for sample in part:
            writer.write(sample["cls"].to_bytes(8, "little") + sample["jpg"] if "jpg" in sample else sample["bin"])
        writer.close()


def write_litdata(samples: Samples, folder: Path, shard: int) -> None:
    """LitData's chunks of 64 MB, its documented size."""
    import litdata

    litdata.optimize(samples.__getitem__, list(range(len(samples))), str(folder), chunk_bytes="64MB", num_workers=1)


def write_mds(samples: Samples, folder: Path, shard: int) -> None:
    """Shards of MosaicML Streaming, 64 MB each."""
    from benchmarks.peers import _torchvision  # noqa: F401

    # isort: split
    from streaming import MDSWriter

    columns = {name: "int" if isinstance(value, int) else "bytes" for name, value in samples[0].items()}
    with MDSWriter(out=str(folder), columns=columns, exist_ok=True, size_limit=1 << 26) as writer:
        for sample in samples:
            writer.write(sample)


def _example(tf: Any, sample: dict[str, Any]) -> bytes:
    picture = tf.train.Feature(bytes_list=tf.train.BytesList(value=[sample["jpg"]]))
    label = tf.train.Feature(int64_list=tf.train.Int64List(value=[sample["cls"]]))
    features = tf.train.Features(feature={"jpg": picture, "cls": label})
    data: bytes = tf.train.Example(features=features).SerializeToString()
    return data


def _parts(samples: Samples, size: int) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(samples), size):
        yield list(samples[start : start + size])


STORES: dict[str, Callable[[Samples, Path, int], None]] = {
    "tar": write_tar,
    "files": write_files,
    "parquet": write_parquet,
    "arrow": write_arrow,
    "tfrecord": write_tfrecord,
    "arrayrecord": write_arrayrecord,
    "litdata": write_litdata,
    "mds": write_mds,
}
