"""Tables of pictures and arrays: records in Parquet files, with a schema beside them, that every engine reads.

A table is a folder. Its records lie in chunks, ``chunk=0``, ``chunk=1``, ..., and ``_orca_metadata`` says which files
are of it and what is in their columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.data.image._folders import write_from_directory
    from shoal.data.image._formats import read_parquet, write_parquet
    from shoal.data.image._mnist import write_mnist
    from shoal.data.image._pictures import read_images
    from shoal.data.image._schema import DType, FeatureType, SchemaField
    from shoal.data.image._table import ParquetDataset
    from shoal.data.image._voc import write_voc

__all__ = [
    "DType",
    "FeatureType",
    "ParquetDataset",
    "SchemaField",
    "read_images",
    "read_parquet",
    "write_from_directory",
    "write_mnist",
    "write_parquet",
    "write_voc",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "_folders": ("write_from_directory",),
        "_formats": ("read_parquet", "write_parquet"),
        "_mnist": ("write_mnist",),
        "_pictures": ("read_images",),
        "_schema": ("DType", "FeatureType", "SchemaField"),
        "_table": ("ParquetDataset",),
        "_voc": ("write_voc",),
    },
)
