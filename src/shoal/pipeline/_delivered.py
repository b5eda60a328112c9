"""What the lanes of a straight run have delivered: how many samples, their digest, and the last of them.

This is needed for a position, which is kept after each batch and asked for after few of them. So a batch is only
noted down, and what the notes say is worked out when somebody wants to know, or when there are many of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.order import Hashes, Ids, add_to_digests

__all__ = ["Delivered"]

_MANY = 64


class _Totals(NamedTuple):
    counts: Ids
    digests: Hashes
    last: Hashes

    def plus(self, notes: Sequence[tuple[Ids, Hashes]]) -> _Totals:
        """Add what is noted."""
        if not notes:
            return self
        counts, digests, last = self.counts.copy(), self.digests.copy(), self.last.copy()
        slots, ids = np.concatenate([note[0] for note in notes]), np.concatenate([note[1] for note in notes])
        lanes, indexes = slots % len(counts), slots // len(counts)
        add_to_digests(digests, lanes, ids, slots)
        last[lanes] = ids  # of several for one lane, the last holds
        counts[lanes] = indexes + 1
        return _Totals(counts, digests, last)


class Delivered:
    """A book of what was delivered in which slot.

    >>> book = Delivered(range(2), 2, {0: [1, 7, 9], 1: [0, 0, 0]})
    >>> before = book.marks()
    >>> book.add(np.array([1, 2]), np.array([5, 6], np.uint64))
    >>> before[0], before[1], book.marks()[0][0], book.marks()[1][2]
    ([1, 7, 9], [0, 0, 0], 2, 5)
    """

    def __init__(self, own: Sequence[int], lanes: int, marks: Mapping[int, Any] | None) -> None:
        self._own = own
        totals = _Totals(np.zeros(lanes, np.int64), np.zeros(lanes, np.uint64), np.zeros(lanes, np.uint64))
        for lane in own if marks else ():
            assert marks is not None
            totals.counts[lane], totals.digests[lane], totals.last[lane] = marks[lane]
        self._totals = totals
        self._notes: list[tuple[Ids, Hashes]] = []

    def add(self, slots: Ids, ids: Hashes) -> None:
        """Note what was delivered next."""
        if len(self._notes) >= _MANY:
            self._totals, self._notes = self._totals.plus(self._notes), []
        self._notes.append((slots, ids))

    def marks(self) -> Mapping[int, Any]:
        """Say where each lane is now; what is added later does not change it."""
        return _Marks(self._own, self._totals, self._notes, len(self._notes))

    def totals(self) -> tuple[Ids, Hashes, Hashes]:
        """Give count, digest and last id of all lanes."""
        return self._totals.plus(self._notes)


class _Marks(Mapping[int, Any]):
    def __init__(self, own: Sequence[int], totals: _Totals, notes: list[tuple[Ids, Hashes]], count: int) -> None:
        self._own, self._totals, self._notes, self._count = own, totals, notes, count

    def __getitem__(self, lane: int) -> list[int]:
        if self._count:
            self._totals, self._notes, self._count = self._totals.plus(self._notes[: self._count]), [], 0
        return [column[lane].item() for column in self._totals]

    def __iter__(self) -> Iterator[int]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)
