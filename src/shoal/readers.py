"""The functions that make a dataset of data as it lies."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from shoal.errors import PlanError
from shoal.pipeline import Dataset
from shoal.settings import parse_bytes
from shoal.sources import ArraySource, ArrowSource, ParquetSource, TarSource, TFRecordSource, Urls, named_arrays

__all__ = [
    "from_arrays",
    "from_dask",
    "from_ray",
    "from_spark",
    "from_store",
    "read_arrow",
    "read_csv",
    "read_json",
    "read_parquet",
    "read_tar",
    "read_tfrecord",
]

#: Bytes of text that are parsed at once: picking one row costs as much.
_PART = "8MB"


def read_tar(
    urls: Urls,
    fields: Iterable[str] | None = None,
    *,
    cache: bool | str | os.PathLike[str] | None = None,
    trust: bool = False,
) -> Dataset:
    """Read tar shards in the WebDataset layout.

    ``urls`` may hold braces (``train-{0000..0147}.tar``), globs and folders, be a list, and have any scheme that fsspec
    knows; ``-`` is standard input, and ``pipe:command`` is run with ``trust=True``. ``fields`` keeps only these, every
    sample must have them, and ``"jpg;jpeg"`` takes the first that is there. ``cache`` keeps remote shards on the local
    disk, in a folder or (True) in the one of the settings.

    >>> import tempfile
    >>> from shoal.shards import TarWriter
    >>> folder = tempfile.mkdtemp()
    >>> with TarWriter(f"{folder}/a.tar") as writer:
    ...     _ = writer.write({"__key__": "dog/1", "txt": "a dog", "cls": 3})
    >>> list(read_tar(f"{folder}/*.tar", fields=["cls"]).decode())
    [{'__key__': 'dog/1', 'cls': 3}]
    """
    if fields is None:
        return Dataset(TarSource(urls, cache=cache, trust=trust))
    if isinstance(fields, str):
        raise PlanError(f"fields is {fields!r}, but must be a list of names, as in ['jpg;jpeg', 'cls']")
    fields = list(fields)
    keep = {name for names in fields for name in names.split(";")}
    return Dataset(TarSource(urls, keep=keep, cache=cache, trust=trust)).select(*fields)


def read_parquet(
    urls: Urls,
    columns: Iterable[str] | None = None,
    *,
    key: str | None = None,
    cache: bool | str | os.PathLike[str] | None = None,
) -> Dataset:
    """Read Parquet files: a row is a sample, a column a field.

    ``urls`` are as for `read_tar`, but for pipes, because Parquet is read from its end; a folder stands for its
    ``*.parquet``. Only ``columns`` are read. ``key`` names the column that holds the keys, ``cache`` keeps remote files
    on the local disk. Numbers in lists are read-only numpy arrays; all else is what pyarrow's ``to_pylist`` gives.

    >>> import tempfile, pyarrow, pyarrow.parquet
    >>> folder = tempfile.mkdtemp()
    >>> table = pyarrow.table({"name": ["Rex", "Mia"], "age": [3, 5], "place": [[0.5, 1.5], None]})
    >>> pyarrow.parquet.write_table(table, f"{folder}/pets.parquet")
    >>> list(read_parquet(folder, columns=["age", "place"]))  # doctest: +NORMALIZE_WHITESPACE
    [{'__key__': 'pets-000000000', 'age': 3, 'place': array([0.5, 1.5])},
     {'__key__': 'pets-000000001', 'age': 5, 'place': None}]
    """
    return Dataset(ParquetSource(urls, columns=columns, key=key, cache=cache))


def read_arrow(
    urls: Urls,
    columns: Iterable[str] | None = None,
    *,
    key: str | None = None,
    cache: bool | str | os.PathLike[str] | None = None,
    trust: bool = False,
) -> Dataset:
    """Read Arrow IPC files (also called Feather) and streams: a row is a sample, a column a field.

    A folder stands for its ``*.arrow``, ``*.arrows``, ``*.feather`` and ``*.ipc``. ``-`` and, with ``trust``,
    ``pipe:command`` may bring a stream. All else is as for `read_parquet`.

    >>> import tempfile, pyarrow, pyarrow.feather
    >>> path = f"{tempfile.mkdtemp()}/pets.feather"
    >>> pyarrow.feather.write_feather(pyarrow.table({"name": ["Rex", "Mia"], "age": [3, 5]}), path)
    >>> list(read_arrow(path, key="name"))
    [{'__key__': 'Rex', 'name': 'Rex', 'age': 3}, {'__key__': 'Mia', 'name': 'Mia', 'age': 5}]
    """
    return Dataset(ArrowSource(urls, columns=columns, key=key, cache=cache, trust=trust))


def read_csv(paths: Urls, *, key: str | None = None, part_size: int | str = _PART, **options: Any) -> Dataset:
    """Read CSV files: a row is a sample, a column a field.

    ``paths`` are as for `read_parquet`, and options those of `pandas.read_csv`; values are what pandas finds when it
    reads whole files. A missing number is nan, and None is what else is missing. A file larger than ``part_size`` is
    read in parts. All is parsed once for its rows and types when the dataset is first used, and once more when it is
    read. ``key`` names the column that holds the keys.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pets.csv")
    >>> _ = path.write_text("name,age\\nRex,3\\nMia,\\n")
    >>> list(read_csv(path))
    [{'__key__': 'pets-000000000', 'name': 'Rex', 'age': 3.0}, {'__key__': 'pets-000000001', 'name': 'Mia', 'age': nan}]
    """
    from shoal.data import CsvSource

    return Dataset(CsvSource(paths, key=key, part_size=parse_bytes(part_size), **options))


def read_json(paths: Urls, *, key: str | None = None, part_size: int | str = _PART, **options: Any) -> Dataset:
    """Read JSON files: a record is a sample.

    Options are those of `pandas.read_json`; files with a record in each line (``lines=True``, ``.jsonl``) are read in
    parts. Records in records have the fields that are in any of all rows, and numbers in lists are arrays, as in
    `read_parquet`; all else is as for `read_csv`.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pets.jsonl")
    >>> _ = path.write_text('{"name": "Rex", "at": [1, 2]}\\n{"name": "Mia", "at": []}\\n')
    >>> list(read_json(path, key="name"))  # doctest: +NORMALIZE_WHITESPACE
    [{'__key__': 'Rex', 'name': 'Rex', 'at': array([1, 2])},
     {'__key__': 'Mia', 'name': 'Mia', 'at': array([], dtype=int64)}]
    """
    from shoal.data import JsonSource

    return Dataset(JsonSource(paths, key=key, part_size=parse_bytes(part_size), **options))


def read_tfrecord(
    urls: Urls,
    features: Mapping[str, Any] | None = None,
    *,
    key: str | None = None,
    cache: bool | str | os.PathLike[str] | None = None,
) -> Dataset:
    """Read TFRecord files of ``tf.train.Example``: a record is a sample, a feature a field.

    ``features`` says which are read and what they are: ``int``, ``float``, ``bytes`` or ``str`` is one value, as in
    ``{"image": bytes, "label": int}``; ``[int]`` a list of any length, which may be missing; ``(float, (2, 3))`` an
    array of this shape. Without it all are read, numbers as arrays and bytes in lists, however many there are. Files
    may be compressed by gzip or zlib; these, and remote ones that are in no ``cache``, are read forward only. ``key``
    names the feature that holds the keys.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pets.tfrecord")
    >>> record = "11000000000000009d6db52e0a0f0a0d0a0361676512061a040a0203050d70c26d"
    >>> _ = path.write_bytes(bytes.fromhex(record))
    >>> list(read_tfrecord(path)), list(read_tfrecord(path, {"age": (int, (2, 1))}))  # doctest: +NORMALIZE_WHITESPACE
    ([{'__key__': 'pets-000000000', 'age': array([3, 5])}],
     [{'__key__': 'pets-000000000', 'age': array([[3], [5]])}])
    """
    return Dataset(TFRecordSource(urls, features=features, key=key, cache=cache))


def from_arrays(arrays: Any = None, /, **named: Any) -> Dataset:
    """Read the rows of arrays in memory: a row of all of them is a sample.

    Give them by name, as a dict, as a pandas frame or a pyarrow table; one array is the field ``x``. Rows are not
    copied before they are in a batch, whose arrays have the same types. Keys are the numbers of rows. What is missing
    in a frame or a table is None, but nan in a column of floats of pandas.

    >>> import numpy as np
    >>> dataset = from_arrays(x=np.zeros((4, 2), np.float32), y=np.arange(4))
    >>> next(iter(dataset.loader(2)))["x"].shape, [sample["y"].item() for sample in dataset]
    ((2, 2), [0, 1, 2, 3])
    """
    given = {} if arrays is None else named_arrays(arrays)
    twice = given.keys() & named.keys()
    if twice:
        raise PlanError(f"{', '.join(sorted(twice))} is given twice: in the first argument and by name")
    return Dataset(ArraySource({**given, **named}))


def from_spark(df: Any) -> Dataset:
    """Read the rows of a Spark DataFrame; its partitions are the shards, which the engine keeps while they are used."""
    from shoal.data import XShards

    return XShards.from_spark(df).to_dataset()


def from_dask(collection: Any) -> Dataset:
    """Read the rows of a Dask data frame, or of a bag of dicts; its partitions are the shards. See `from_spark`."""
    from shoal.data import XShards

    return XShards.from_dask(collection).to_dataset()


def from_ray(dataset: Any) -> Dataset:
    """Read the rows of a Ray dataset; its blocks are the shards. See `from_spark`."""
    from shoal.data import XShards

    return XShards.from_ray(dataset).to_dataset()


def from_store(object_id: Any, store: Any = None, *, partitions: str = "all") -> Dataset:
    """Read the rows of what lies in an object store, where it lies; its partitions are the shards.

    It is an id or a name, of a frame, a table, an array (the field ``x``), a dict of arrays, or of one in partitions;
    ``store`` is where `shoal.store.connect` leads, if it is not given. With ``partitions="local"`` only those are read
    that the store of this host has, and with ``"mine"`` those that fall to this worker.

    >>> import tempfile, numpy as np
    >>> from shoal.store import connect
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> number = store.put({"x": np.arange(3), "y": np.ones((3, 2))})
    >>> [batch["x"].tolist() for batch in from_store(number, store).loader(2, end="drop")]
    [[0, 1]]
    """
    from shoal.sources import StoreSource

    return Dataset(StoreSource(object_id, store, partitions=partitions))
