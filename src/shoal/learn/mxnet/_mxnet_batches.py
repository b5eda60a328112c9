"""What a data creator makes, read where MXNet is: all workers read the same batches, and each takes its part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shoal.abc import dealt
from shoal.errors import PlanError
from shoal.learn.mxnet._mxnet_there import alike, library

__all__ = ["Made"]


class Whole:
    """The kvstore as a data creator sees it: one worker of one, so that it makes all the data, which is shared out."""

    rank, num_workers, type = 0, 1, "dist_sync"


class Made:
    """An iterator or a loader of MXNet; an epoch follows from the seed and its number alone."""

    def __init__(self, function: Any, config: Mapping[str, Any], seed: int) -> None:
        self._seed = seed
        with alike(seed):
            self._given = function(dict(config), Whole())
        self._is_iterator = isinstance(self._given, library().io.DataIter)
        if not self._is_iterator and not isinstance(self._given, library().gluon.data.DataLoader):
            text = f"the data creator made a {type(self._given).__name__}"
            raise PlanError(f"{text}; it should return a DataIter or a DataLoader of MXNet, or give arrays to fit")
        self._epoch: int | None = None
        self._batches: Iterator[Any] = iter(())

    def begin(self, epoch: int, began: int, steps: int | None, wraps: bool) -> None:
        """Begin an epoch, after those since ``began`` that another process may have read.

        It has all batches, or ``steps`` of them, for which it begins anew if it ``wraps``.
        """
        for missed in range(began if self._epoch is None else self._epoch, epoch):
            self._pass_over(missed)
        self._epoch = epoch + 1
        self._batches = self._read(epoch, steps, wraps)

    def part(self, rank: int, size: int) -> tuple[list[Any], list[Any], int] | None:
        """Give inputs and targets that a worker has of the next batch, and how many count; None at the end."""
        for inputs, targets, rows in self._batches:
            mine = list(dealt(rows, size))[rank]
            place = slice(mine.start, mine.stop) if mine else slice(0, 1)
            return [each[place] for each in inputs], [each[place] for each in targets], len(mine)
        return None

    def _pass_over(self, epoch: int) -> None:
        """Do what an epoch does to those after it: iterators shuffle what was shuffled before."""
        if not self._is_iterator:
            return
        plain = type(self._given) is library().io.NDArrayIter and self._given.last_batch_handle != "roll_over"
        if plain:
            with alike(self._seed, epoch):
                self._given.reset()
        else:
            for _ in self._raw(epoch):
                pass

    def _read(self, epoch: int, steps: int | None, wraps: bool) -> Iterator[tuple[list[Any], list[Any], int]]:
        """Give the batches of an epoch."""
        count, before = 0, -1
        while before < count:
            before = count
            for batch in self._raw(epoch):
                if count == steps:
                    return
                inputs, targets, rows = _parts(batch)
                if rows:
                    count += 1
                    yield inputs, targets, rows
            if steps is None or not wraps:
                return

    def _raw(self, epoch: int) -> Iterator[Any]:
        """Give batches as they come; each is read with random numbers that all workers have."""
        number = 0
        with alike(self._seed, epoch):
            if self._is_iterator:
                self._given.reset()
            given = iter(self._given)
        while True:
            with alike(self._seed, epoch, number):
                batch = next(given, None)
            if batch is None:
                return
            number += 1
            yield batch


def _parts(batch: Any) -> tuple[list[Any], list[Any], int]:
    """Tell inputs from targets, without the rows that only fill a batch up."""
    if hasattr(batch, "data") and hasattr(batch, "label"):
        inputs, targets, pad = list(batch.data), list(batch.label or ()), int(batch.pad or 0)
    elif isinstance(batch, tuple | list) and len(batch) > 1:
        inputs, targets, pad = list(batch[:-1]), [batch[-1]], 0
    else:
        raise PlanError(f"a batch is a {type(batch).__name__}; it should have inputs and a target")
    rows = len(inputs[0]) - pad
    arrays = [[each.asnumpy()[: max(rows, 1)] for each in several] for several in (inputs, targets)]
    return arrays[0], arrays[1], rows
