"""Data-parallel pandas: tables in files as shards of frames, each a part of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shoal._optional import require
from shoal.settings import parse_bytes

if TYPE_CHECKING:
    from shoal.data._xshards import XShards

__all__ = ["read_csv", "read_json", "read_parquet", "read_tfrecord"]

_PART = "64MB"


def read_csv(file_path: Any, *, part_size: int | str = _PART, **options: Any) -> XShards:
    """Read CSV files: a path, a folder, a wildcard, or a list of them, on disk or in any store.

    Options are those of `pandas.read_csv`. A file that is larger than ``part_size`` becomes several shards, cut at ends
    of records. Types are what pandas would find in the whole file. Without a header columns are "0", "1", ...

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.csv").write_text("id,price\\n1,2.5\\n2,3\\n")
    >>> _ = (folder / "b.csv").write_text("id,price\\n3,1\\n")
    >>> shards = read_csv(folder)
    >>> shards.num_partitions(), len(shards), shards.to_pandas()["price"].tolist()
    (2, 3, [2.5, 3.0, 1.0])
    """
    require("pandas", "reading tables")
    from shoal.data._csv import CsvForm
    from shoal.data._reading import read_tables

    return read_tables(file_path, CsvForm.of(parse_bytes(part_size), options))


def read_json(file_path: Any, *, part_size: int | str = _PART, **options: Any) -> XShards:
    r"""Read JSON files; those with a record in each line (``lines=True``, ``.jsonl``) can be cut. See `read_csv`.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.jsonl")
    >>> _ = path.write_text('{"x": 1}\n{"x": 2}\n')
    >>> read_json(path).to_pandas()["x"].tolist()
    [1, 2]
    """
    require("pandas", "reading tables")
    from shoal.data._json import JsonForm
    from shoal.data._reading import read_tables

    return read_tables(file_path, JsonForm(options, parse_bytes(part_size)))


def read_parquet(
    file_path: Any, columns: Sequence[str] | None = None, *, part_size: int | str = _PART, **options: Any
) -> XShards:
    """Read Parquet files, only some columns if they are named; a shard is some row groups. See `read_csv`.

    Options are those of `pyarrow.Table.to_pandas`.

    >>> import pandas, tempfile
    >>> path = f"{tempfile.mkdtemp()}/a.parquet"
    >>> pandas.DataFrame({"x": [1, 2], "y": [3, 4]}).to_parquet(path)
    >>> list(read_parquet(path, columns=["y"]).to_pandas().columns)
    ['y']
    """
    require("pyarrow", "reading Parquet")
    require("pandas", "reading tables")
    from shoal.data._parquet import ParquetForm
    from shoal.data._reading import read_tables

    chosen = None if columns is None else tuple(columns)
    return read_tables(file_path, ParquetForm(chosen, parse_bytes(part_size), options))


def read_tfrecord(
    file_path: Any, features: Mapping[str, Any] | None = None, *, part_size: int | str = _PART
) -> XShards:
    """Read TFRecord files of ``tf.train.Example``: a record is a row, a feature a column. See `read_csv`.

    ``features`` says what they are, as in ``{"image": bytes, "label": int, "box": [float]}``: in brackets a list of
    any length, and ``(float, (2, 3))`` an array of this shape. Without it all are read, each as an array of numbers or
    a list of bytes, however many there are.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pets.tfrecord")
    >>> record = "11000000000000009d6db52e0a0f0a0d0a0361676512061a040a0203050d70c26d"
    >>> _ = path.write_bytes(bytes.fromhex(record))
    >>> read_tfrecord(path, {"age": (int, (2,))}).to_pandas()["age"].tolist()
    [array([3, 5])]
    """
    require("pandas", "reading tables")
    require("google_crc32c", "reading TFRecord files")
    from shoal.data._reading import read_tables
    from shoal.data._tfrecord import TFRecordForm
    from shoal.sources import Features

    return read_tables(file_path, TFRecordForm(Features.of(features), parse_bytes(part_size)))
