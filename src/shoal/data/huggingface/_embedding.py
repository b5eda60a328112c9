"""Files that rows name, put into the rows.

A picture or sound is stored as a struct of ``bytes`` and ``path``; where the bytes are missing, they are those of the
file, and of the path only the name remains.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from io import FileIO
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from shoal._optional import require
from shoal.errors import EncodeError
from shoal.files import local_path, open_read

__all__ = ["embedded", "holds_files"]

#: Bytes of one Arrow array, which may have 2 GiB at most.
_MOST = 2**30

#: Files that a thread reads before it asks for more.
_TOGETHER = 16

#: Where the bytes of a row are: in a local file of so many, or here; None for nowhere.
_Place: TypeAlias = "tuple[str, int] | memoryview | None"


def holds_files(feature: Any) -> bool:
    """Tell whether values of a feature may be in files of their own.

    >>> holds_files({"text": None, "pages": [None]})
    False
    """
    if isinstance(feature, Mapping):
        return any(map(holds_files, feature.values()))
    if isinstance(feature, list | tuple):
        return any(map(holds_files, feature))
    inner = getattr(feature, "feature", None)
    return hasattr(feature, "embed_storage") if inner is None else holds_files(inner)


def embedded(table: pa.Table, features: Mapping[str, Any], readers: Executor) -> pa.Table:
    """Put the files that rows name into a table, reading several at a time."""
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        feature = features[name]
        if hasattr(feature, "embed_storage"):
            column = pa.chunked_array(_embedded(column, name, readers), feature.pa_type)
        elif holds_files(feature):
            embed = require("datasets.table", "embedding files in lists and dicts").embed_array_storage
            with _named(name):
                column = pa.chunked_array([embed(chunk, feature) for chunk in column.chunks], column.type)
        columns.append(column)
    return pa.Table.from_arrays(columns, table.column_names)


def _embedded(column: pa.ChunkedArray, name: str, readers: Executor) -> Iterator[pa.StructArray]:
    for chunk in column.chunks:
        content, paths = (chunk.flatten()[chunk.type.get_field_index(field)] for field in ("bytes", "path"))
        listed = paths.to_pylist()
        names = pa.array([None if path is None else os.path.basename(path) for path in listed], pa.string())
        low = 0
        for part in _contents(content, listed, name, readers):
            rows = slice(low, low + len(part))
            yield pa.StructArray.from_arrays([part, names[rows]], ["bytes", "path"], mask=chunk[rows].is_null())
            low += len(part)


def _contents(content: pa.Array, paths: Sequence[str | None], name: str, readers: Executor) -> Iterator[pa.Array]:
    """Give the bytes of all rows, in arrays that are not too large."""
    missing = content.is_null().to_pylist()
    if not any(out and path is not None for path, out in zip(paths, missing, strict=True)):
        yield content.cast(pa.binary())
        return
    present = (memoryview(content[row].as_buffer()).cast("B") for row, out in enumerate(missing) if not out)
    with _named(name):
        found = readers.map(_located, (path if out else None for path, out in zip(paths, missing, strict=True)))
        rows = [place if out else next(present) for place, out in zip(found, missing, strict=True)]
        for part in _parts(rows):
            yield _filled(part, readers)


def _filled(rows: Sequence[_Place], readers: Executor) -> pa.BinaryArray:
    """Read the bytes of rows, each once and to where it stays."""
    ends = np.cumsum([0, *map(_size, rows)]).astype(np.int32)
    data = pa.allocate_buffer(int(ends[-1]))
    view = memoryview(data).cast("B")
    fills = [(row, view[low:high]) for row, (low, high) in zip(rows, pairwise(ends.tolist()), strict=True)]
    # Handing each file to a thread would take longer than reading it.
    for _ in readers.map(_fill, (fills[at : at + _TOGETHER] for at in range(0, len(fills), _TOGETHER))):
        pass
    missing = np.array([row is None for row in rows])
    valid = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
    return pa.Array.from_buffers(pa.binary(), len(rows), [valid, pa.py_buffer(ends), data])


def _parts(rows: Sequence[_Place]) -> Iterator[Sequence[_Place]]:
    low = size = 0
    for row, place in enumerate(rows):
        if size and size + _size(place) > _MOST:
            yield rows[low:row]
            low, size = row, 0
        size += _size(place)
    yield rows[low:]


def _located(path: str | None) -> _Place:
    """Find out how long a file is, or read it where that is a matter of one request."""
    if path is None:
        return None
    local = local_path(path)
    if local is not None:
        return local, os.stat(local).st_size
    with open_read(path) as file:
        return memoryview(file.read())


def _size(place: _Place) -> int:
    return 0 if place is None else place[1] if isinstance(place, tuple) else len(place)


def _fill(rows: Iterable[tuple[_Place, memoryview]]) -> None:
    for place, view in rows:
        if isinstance(place, tuple):
            with open(place[0], "rb", buffering=0) as file:
                _read(file, view)
        elif place is not None:
            view[:] = place


def _read(file: FileIO, view: memoryview) -> None:
    rest = view
    while len(rest) and (count := file.readinto(rest)):
        rest = rest[count:]
    if len(rest) or file.read(1):
        raise OSError(f"{file.name!r} changed while it was read")


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EncodeError(f"a file that a row names cannot be read: {error}", field=name) from error
