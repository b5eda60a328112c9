"""How large a dataset will be once the files that it names are embedded, and how many shards that makes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from shoal._optional import require
from shoal.files import stat

__all__ = ["bytes_of", "shard_count"]

#: Rows whose files are looked at; those of the others are taken to be as large on average.
_LOOK = 1000
_READERS = 16


def shard_count(size: int, most: int) -> int:
    """Tell how many shards of at most so many bytes to make; there is room to spare in each.

    >>> shard_count(999, 500), shard_count(1000, 500), shard_count(0, 500)
    (2, 3, 1)
    """
    return size // most + 1


def bytes_of(dataset: Any) -> int:
    """Estimate the bytes of all rows of a dataset, with those of the files that they name.

    >>> import datasets
    >>> bytes_of(datasets.Dataset.from_dict({"n": [1, 2, 3]}))
    24
    """
    stored = len(dataset.data)
    if not stored:
        return 0
    head = dataset.with_format("arrow")[:_LOOK]
    outside = _outside(head) * stored // len(head) if len(head) else 0
    return (int(dataset.data.nbytes) + outside) * len(dataset) // stored


def _outside(table: pa.Table) -> int:
    """Add up what embedding adds: the bytes of files, less those of their names."""
    found: list[pa.StructArray] = []

    def visit(array: Any, feature: Any) -> None:
        if hasattr(feature, "embed_storage"):
            found.append(array)

    require("datasets.table", "exporting a dataset").table_visitor(table, visit)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="shoal-sizes") as pool:
        sizes = pool.map(_size, (path for array in found for path in _outer_paths(array)))
        return sum(sizes) - sum(int(array.field("path").nbytes) for array in found)


def _outer_paths(array: pa.StructArray) -> Iterator[str]:
    content, paths = (array.flatten()[array.type.get_field_index(name)] for name in ("bytes", "path"))
    missing = content.is_null().to_pylist()
    return (path for path, out in zip(paths.to_pylist(), missing, strict=True) if out and path is not None)


def _size(path: str) -> int:
    return stat(path).size or 0
