"""What is in the slots of one batch on one rank: samples one by one, or columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from shoal.abc import Batch, Sample
from shoal.pipeline._assemble import assemble
from shoal.pipeline._memory import Memory
from shoal.pipeline._parcel import weight

__all__ = ["ColumnRows", "Rows", "SampleRows"]


class Rows(ABC):
    """Slots, and what is in them.

    >>> rows = SampleRows([{"__key__": "a"}, None, {"__key__": "b"}])
    >>> isinstance(rows, Rows), rows.places(), rows.cut(1).present
    (True, [0, 2], 1)
    """

    @abstractmethod
    def __len__(self) -> int:
        """Count the slots."""

    @abstractmethod
    def samples(self) -> Sequence[Sample]:
        """List what is in slots that are not empty."""

    @property
    @abstractmethod
    def present(self) -> int:
        """Count the slots that are not empty."""

    @property
    def nbytes(self) -> int:
        """The memory of the samples, about."""
        return weight(self.samples())

    def places(self) -> list[int] | None:
        """Say which of the slots are not empty; None if none is."""
        return None

    def columns(self) -> Sample | None:
        """Give the columns of which it is made, if it is."""
        return None

    @abstractmethod
    def cut(self, count: int) -> Rows:
        """Keep the first slots, and give the rest."""

    def batch(self, size: int, filler: Sample | None, memory: Memory) -> Sample:
        """Make a batch of so many rows; those that are missing are filled, and masked."""
        return assemble(self.samples(), size, filler or {}, memory)


class SampleRows(Rows):
    """Samples, and None behind the end of a lane.

    >>> rows = SampleRows([{"__key__": "a"}, None])
    >>> len(rows), rows.present
    (2, 1)
    """

    def __init__(self, slots: list[Sample | None]) -> None:
        self._slots = slots
        self._samples: list[Sample] | None = None

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def present(self) -> int:
        return len(self.samples())

    def places(self) -> list[int] | None:
        if self.present == len(self):
            return None
        return [place for place, sample in enumerate(self._slots) if sample is not None]

    def samples(self) -> Sequence[Sample]:
        if self._samples is None:
            self._samples = [sample for sample in self._slots if sample is not None]
        return self._samples

    def cut(self, count: int) -> Rows:
        self._slots, rest = self._slots[:count], self._slots[count:]
        self._samples = None
        return SampleRows(rest)


class ColumnRows(Rows):
    """A batch that is made already, of rows that are all there; what is not listed yet is when somebody wants it.

    >>> rows = ColumnRows({"__key__": ["a", "b"], "n": [1, 2]}, 2)
    >>> rows.batch(2, None, None) is rows.batch(2, None, None), rows.samples()[1]
    (True, {'__key__': 'b', 'n': 2})
    """

    def __init__(self, batch: Batch, count: int, nbytes: int = 0) -> None:
        self._batch, self._count, self._nbytes = batch, count, nbytes
        self._listed: Sample | None = None

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def __len__(self) -> int:
        return self._count

    @property
    def present(self) -> int:
        return self._count

    def samples(self) -> Sequence[Sample]:
        columns = self.columns()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def cut(self, count: int) -> Rows:
        samples = self.samples()
        self._listed = assemble(samples[:count], count, {}, None)
        self._count = count
        return SampleRows(list(samples[count:]))

    def batch(self, size: int, filler: Sample | None, memory: Memory) -> Sample:
        return self.columns() if size == self._count else super().batch(size, filler, memory)

    def columns(self) -> Sample:
        if self._listed is None:
            self._listed = {
                name: values if isinstance(values, np.ndarray | list) else values.tolist()
                for name, values in self._batch.items()
            }
            self._batch = {}
        return self._listed
