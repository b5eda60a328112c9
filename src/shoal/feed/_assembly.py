"""A batch that is put together from what several feeders send.

Large arrays are received where they belong: whoever is first with a field has the memory of the whole batch made, and
each feeder's rows go to their places in it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import registry
from shoal.abc import Sample
from shoal.feed._columns import ARRAYS, Column, samples_of, values_of
from shoal.feed._pieces import Outline
from shoal.pipeline.runs import Rows, column

__all__ = ["Assembly", "FedRows", "Received", "placed", "rooms"]

#: A column's kind, the type of its array, and the shape of a row.
Signature = tuple[str, np.dtype[Any], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Received:
    """What came from one feeder of one batch."""

    places: NDArray[np.int64]
    """Where in the batch its rows belong."""
    columns: dict[str, Column]
    marks: bytes
    outline: Outline


def rooms(target: NDArray[Any], places: NDArray[np.int64]) -> list[memoryview]:
    """Give the memory of some rows of an array, neighbours as one.

    >>> [bytes(room) for room in rooms(np.arange(5, dtype="u1").reshape(5, 1), np.array([0, 1, 4]))]
    [b'\\x00\\x01', b'\\x04']
    """
    size = target.nbytes // len(target)
    whole = memoryview(target.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    runs = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
    return [whole[int(run[0]) * size : (int(run[-1]) + 1) * size] for run in runs]


class Assembly:
    """The rows of a rank in one batch, as they come."""

    def __init__(self, rows: int, memory: Any) -> None:
        self.rows, self._memory = rows, memory
        self._lock = threading.Lock()
        self._targets: dict[str, tuple[Signature, NDArray[Any]]] = {}
        self.received: list[Received] = []

    def target(self, name: str, signature: Signature) -> NDArray[Any] | None:
        """Give the array of the whole batch for a field; None if others have sent another kind of it."""
        _, dtype, shape = signature
        with self._lock:
            if name not in self._targets:
                self._targets[name] = signature, self._memory((self.rows, *shape), dtype)
            known, array = self._targets[name]
        return array if known == signature else None

    def place(self, received: Received) -> None:
        """Take what a feeder sent."""
        with self._lock:
            self.received.append(received)


def placed(name: str, column: Column, assembly: Assembly, places: NDArray[np.int64]) -> Column:
    """Put the rows of a small array where the batch has them, which is memory that users may keep and change."""
    if column.kind not in ARRAYS:
        return column
    target = assembly.target(name, column.signature)
    if target is None:
        return column
    target[places] = column.values
    return Column(column.kind, target, places.tolist())


class FedRows(Rows):
    """The rows of a batch, which came from one or several feeders."""

    def __init__(self, assembly: Assembly) -> None:
        self._count, self._parts = assembly.rows, assembly.received
        self._samples: list[Sample] | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def present(self) -> int:
        return sum(len(part.places) for part in self._parts)

    @property
    def nbytes(self) -> int:
        arrays = {
            id(each.values): each.values.nbytes
            for part in self._parts
            for each in part.columns.values()
            if each.kind in ARRAYS
        }
        return sum(arrays.values()) if arrays else super().nbytes

    def samples(self) -> Sequence[Sample]:
        if self._samples is None:
            found = [
                (place, sample)
                for part in self._parts
                for place, sample in zip(part.places.tolist(), samples_of(part.columns, len(part.places)), strict=True)
            ]
            self._samples = [sample for _, sample in sorted(found, key=lambda pair: pair[0])]
        return self._samples

    def cut(self, count: int) -> Rows:
        raise NotImplementedError("batches of feeders have the size that was asked for")

    def batch(self, size: int, filler: Sample | None, memory: Any) -> Sample:
        whole = self._whole(memory) if self.present == self._count == size else None
        return super().batch(size, filler, memory) if whole is None else whole

    def _whole(self, memory: Any) -> Sample | None:
        """Put columns together; None where samples have to be looked at, because they differ in their fields."""
        parts = [part for part in self._parts if len(part.places)]
        first = min(parts, key=lambda part: int(part.places[0]))
        if "" in first.columns or any(part.columns.keys() != first.columns.keys() for part in parts):
            return None
        return {name: self._column(name, parts, memory) for name in first.columns}

    def _column(self, name: str, parts: Sequence[Received], memory: Any) -> Any:
        columns = [part.columns[name] for part in parts]
        kind = columns[0].kind
        if kind == "values" or len({each.signature for each in columns}) > 1:
            return column(self._listed(name, parts), memory)
        if kind not in ARRAYS:
            return columns[0].values if len(parts) == 1 else self._listed(name, parts)
        array = self._array(name, parts, memory)
        return registry.load("format", kind.split()[1])({"": array})[""] if kind.startswith("tensor") else array

    def _array(self, name: str, parts: Sequence[Received], memory: Any) -> NDArray[Any]:
        array: NDArray[Any] = parts[0].columns[name].values
        if all(part.columns[name].values is array for part in parts):
            return array
        joined: NDArray[Any] = memory((self._count, *array.shape[1:]), array.dtype)
        for part in parts:
            rows = part.columns[name].rows
            joined[part.places] = part.columns[name].values[slice(None) if rows is None else rows]
        return joined

    def _listed(self, name: str, parts: Sequence[Received]) -> list[Any]:
        """List the values of a field as samples have them, in the order of the batch."""
        values: list[Any] = [None] * self._count
        for part in parts:
            for place, value in zip(part.places.tolist(), values_of(part.columns[name]), strict=True):
                values[place] = value
        return values
