"""Rows of objects in the store: a partition is a shard, and a sample is read where it lies."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.abc import Block, Columns, Sample, Shard, Source
from shoal.sources._arrays import ArraySource
from shoal.sources._named_arrays import named_arrays
from shoal.store import BaseStore, Object, columns, connect, row_partitions

__all__ = ["StoreSource"]

_SCHEME = "store://"
#: Partitions whose arrays are at hand; opening one again costs little, and their memory is the store's.
_OPEN = 64


class StoreSource(Source):
    """The rows of a stored frame, table, array or dict of arrays, or of all partitions of one.

    >>> import tempfile
    >>> from shoal import store
    >>> shelf = store.connect(tempfile.mkdtemp(), memory="10MB")
    >>> source = StoreSource(shelf.put({"x": np.arange(3), "y": np.arange(3) * 2}), shelf)
    >>> [(int(row["x"]), int(row["y"])) for row in source.take(source.shards()[0], [2, 0])]
    [(2, 4), (0, 0)]
    """

    def __init__(self, object_id: Any, store: BaseStore | None = None, *, partitions: str = "all") -> None:
        self._store = connect() if store is None else store
        found: Object = self._store.get_object(object_id)
        self._id, self._ids = found.id, [part.id or 0 for part in row_partitions(found, partitions)]
        self._opened: OrderedDict[int, ArraySource] = OrderedDict()
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"StoreSource({self._id}, {len(self._ids)} partitions)"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_opened")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock(), _opened=OrderedDict())

    @property
    def seekable(self) -> bool:
        """True: all is in memory."""
        return True

    @property
    def counted(self) -> bool:
        """True: all is in memory."""
        return True

    @property
    def waits(self) -> bool:
        """Whether reading waits for another host."""
        return False

    def shards(self) -> Sequence[Shard]:
        """Name the partitions."""
        return [Shard(f"{_SCHEME}{self._id}/{number}") for number in range(len(self._ids))]

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        """Yield the rows of a shard in blocks."""
        inner, number = self._rows(shard)
        for block in inner.open(shard, start):
            yield Block([_keyed(number, sample) for sample in block.samples], (shard,))

    def length(self, shard: Shard) -> int:
        """Count the rows of a shard."""
        return self._rows(shard)[0].length(shard)

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        """Give the rows at these positions of a shard, in this order."""
        inner, number = self._rows(shard)
        return [_keyed(number, sample) for sample in inner.take(shard, indices)]

    def take_columns(self, shard: Shard, indices: NDArray[np.int64]) -> Columns | None:
        """Give the rows at these positions as columns; neighbours are not copied."""
        inner, number = self._rows(shard)
        found = inner.take_columns(shard, indices)
        return None if found is None else {**found, "__key__": [_key(number, key) for key in found["__key__"]]}

    def split(self, shard: Shard, parts: int) -> list[Shard]:
        """Cut a shard into ranges of rows."""
        return shard.split(parts, self.length(shard))

    def fingerprint(self, shard: Shard) -> str:
        """Give the name of the partition, which cannot change, and its first and last rows."""
        return f"{self._ids[_number(shard)]}-{self._rows(shard)[0].fingerprint(shard)}"

    def size(self, shard: Shard) -> int | None:
        """Give the memory of the rows."""
        return self._rows(shard)[0].size(shard)

    def _rows(self, shard: Shard) -> tuple[ArraySource, int]:
        number = _number(shard)
        with self._lock:
            found = self._opened.pop(number, None)
        if found is None:
            found = ArraySource(_arrays(self._store.get_object(self._ids[number])))
        with self._lock:
            self._opened[number] = found
            while len(self._opened) > _OPEN:
                self._opened.popitem(last=False)
        return found, number


def _arrays(part: Object) -> dict[str, Any]:
    """Give the columns of a partition as samples have them."""
    if part.typename in ("vineyard::Table", "vineyard::RecordBatch"):
        return named_arrays(part.store.get(part.id))
    return {str(name): column for name, column in columns(part).items()}


def _number(shard: Shard) -> int:
    return int(shard.url.rpartition("/")[2])


def _keyed(number: int, sample: Sample) -> Sample:
    return {**sample, "__key__": _key(number, sample["__key__"])}


def _key(number: int, key: str) -> str:
    return f"{number:05d}-{key}"
