"""Shoal: data from where it lies into models that learn.

>>> import shoal
>>> shoal.__version__
'0.1.0'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal import abc, data, errors, feed, files, image, settings, shards, view, webdataset
    from shoal.data.huggingface import export_parquet, from_huggingface
    from shoal.engines import engine, init, shutdown
    from shoal.pipeline import Dataset, Ledger, Loader, mix
    from shoal.readers import (
        from_arrays,
        from_dask,
        from_ray,
        from_spark,
        from_store,
        read_arrow,
        read_csv,
        read_json,
        read_parquet,
        read_tar,
        read_tfrecord,
    )
    from shoal.view import show

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
    "export_parquet",
    "feed",
    "files",
    "from_arrays",
    "from_dask",
    "from_huggingface",
    "from_ray",
    "from_spark",
    "from_store",
    "image",
    "init",
    "mix",
    "read_arrow",
    "read_csv",
    "read_json",
    "read_parquet",
    "read_tar",
    "read_tfrecord",
    "settings",
    "shards",
    "show",
    "shutdown",
    "view",
    "webdataset",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "data": (),
        "data.huggingface": ("export_parquet", "from_huggingface"),
        "engines": ("engine", "init", "shutdown"),
        "errors": (),
        "feed": (),
        "files": (),
        "image": (),
        "pipeline": ("Dataset", "Ledger", "Loader", "mix"),
        "readers": (
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
        ),
        "settings": (),
        "shards": (),
        "abc": (),
        "view": (),
        "view._notebook": ("show",),
        "webdataset": (),
    },
)
