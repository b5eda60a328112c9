"""The functions that make a dataset of data as it lies."""

from __future__ import annotations

import os
from collections.abc import Iterable

from shoal.errors import PlanError
from shoal.pipeline import Dataset
from shoal.sources import ArrowSource, ParquetSource, TarSource, Urls

__all__ = ["read_arrow", "read_parquet", "read_tar"]


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
