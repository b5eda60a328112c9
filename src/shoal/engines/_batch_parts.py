"""Batches cut into parts, and parts put together to batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from shoal.abc import Sample

__all__ = ["cut", "rebatched", "rows"]


def cut(batch: Sample, parts: int, size: int, *, equal: bool) -> list[Sample | None]:
    """Deal the rows of a batch, ``size`` to each of so many parts in their order; None for a part without any.

    Of a batch with fewer rows, the parts are as large as they can be: the same size, if they have to be equal, and then
    some rows may be left out; or as large as others, as long as there are rows.

    >>> batch = {"__key__": list("abcde"), "x": np.arange(5)}
    >>> [part["x"].tolist() for part in cut(batch, 2, 3, equal=True)]
    [[0, 1], [2, 3]]
    >>> [part["x"].tolist() for part in cut(batch, 2, 3, equal=False)]
    [[0, 1, 2], [3, 4]]
    """
    whole = _real(batch)
    count = len(whole["__key__"])
    each = min(size, count // parts) if equal else size
    ends = [(min(part * each, count), min((part + 1) * each, count)) for part in range(parts)]
    return [_slice(whole, low, high) if low < high else None for low, high in ends]


def rows(part: Sample) -> Iterator[Sample]:
    """Give the rows of a part as samples."""
    for row in range(len(part["__key__"])):
        yield {name: values[row] for name, values in part.items()}


def rebatched(parts: Iterable[Sample], size: int, *, drop_last: bool) -> Iterator[Sample]:
    """Make batches of a size of parts of other sizes.

    >>> parts = ({"__key__": [str(n)] * 3, "x": np.full(3, n)} for n in range(3))
    >>> [batch["x"].tolist() for batch in rebatched(parts, 4, drop_last=False)]
    [[0, 0, 0, 1], [1, 1, 2, 2], [2]]
    """
    held: list[Sample] = []
    have = 0
    for part in parts:
        begin, count = 0, len(part["__key__"])
        while have + count - begin >= size:
            end = begin + size - have
            yield _joined([*held, _slice(part, begin, end)])
            held, have, begin = [], 0, end
        if begin < count:
            held.append(_slice(part, begin, count))
            have += count - begin
    if held and not drop_last:
        yield _joined(held)


def _real(batch: Sample) -> Sample:
    """Leave out the rows that are padding."""
    mask = batch.get("__mask__")
    if mask is None:
        return batch
    places = np.flatnonzero(mask)
    return {name: _picked(values, places) for name, values in batch.items() if name != "__mask__"}


def _picked(values: Any, places: Any) -> Any:
    return values[places] if isinstance(values, np.ndarray) else [values[place] for place in places]


def _slice(part: Sample, low: int, high: int) -> Sample:
    return {name: values[low:high] for name, values in part.items()}


def _joined(parts: Sequence[Sample]) -> Sample:
    first = parts[0]
    return first if len(parts) == 1 else {name: _column([part[name] for part in parts]) for name in first}


def _column(values: Sequence[Any]) -> Any:
    if all(isinstance(value, np.ndarray) for value in values) and len({value.shape[1:] for value in values}) == 1:
        return np.concatenate(values)
    return [row for value in values for row in value]
