"""The functions that make a dataset of data as it lies."""

from __future__ import annotations

import os
from collections.abc import Iterable

from shoal.errors import PlanError
from shoal.pipeline import Dataset
from shoal.sources import TarSource, Urls

__all__ = ["read_tar"]


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
