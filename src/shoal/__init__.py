"""Shoal: data from where it lies into models that learn.

>>> import shoal
>>> shoal.__version__
'0.1.0'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal import abc, data, errors, files, image, settings, shards, webdataset
    from shoal.engines import engine, init, shutdown
    from shoal.pipeline import Dataset, Ledger, Loader, mix
    from shoal.readers import read_arrow, read_parquet, read_tar

__version__ = "0.1.0"

__all__ = [
    "Dataset",
    "Ledger",
    "Loader",
    "__version__",
    "abc",
    "data",
    "engine",
    "errors",
    "files",
    "image",
    "init",
    "mix",
    "read_arrow",
    "read_parquet",
    "read_tar",
    "settings",
    "shards",
    "shutdown",
    "webdataset",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "data": (),
        "engines": ("engine", "init", "shutdown"),
        "errors": (),
        "files": (),
        "image": (),
        "pipeline": ("Dataset", "Ledger", "Loader", "mix"),
        "readers": ("read_arrow", "read_parquet", "read_tar"),
        "settings": (),
        "shards": (),
        "abc": (),
        "webdataset": (),
    },
)
