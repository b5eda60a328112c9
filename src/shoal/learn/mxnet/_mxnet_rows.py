"""Rows that a data creator makes where MXNet is, beside the model: each worker gets its part of each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

from shoal.errors import PlanError
from shoal.learn._job import Batches, Rows
from shoal.learn._parts import Part, PartsLoader
from shoal.learn.mxnet._mxnet_abroad import MXNetAbroad
from shoal.learn.mxnet._mxnet_sending import sent

__all__ = ["MadeRows"]


class MadeRows(Rows):
    """What a function of config and kvstore makes; its batches are those of all workers."""

    def __init__(self, framework: MXNetAbroad, function: Callable[..., Any]) -> None:
        self._framework, self._name = framework, uuid4().hex
        self._packed = sent(function)

    def loader(self, batch_size: int, rank: int, world_size: int, to: str, **options: Any) -> Batches:
        """Let the function be called, and make the batches of one worker."""
        unknown = sorted(options.keys() - {"end", "steps"})
        if unknown:
            text = f"{', '.join(unknown)} would be for a loader of Shoal's"
            raise PlanError(f"{text}, and here the data creator makes the batches; leave it out")
        if options.get("end", "pad") not in ("pad", "wrap"):
            text = f"end={options['end']!r} is for rows that Shoal puts into batches"
            raise PlanError(f"{text}; let the data creator say what becomes of the last batch")
        self._framework.make(self._name, self._packed, batch_size)
        return _MadeLoader(self, rank, world_size, options.get("steps"), options.get("end") == "wrap")

    def taken(self, batch: dict[str, Any]) -> tuple[list[Any], list[Any], int]:
        """Give inputs, targets, and how many rows count."""
        return *batch["items"], batch["count"]

    def parts(self, epoch: int, began: int, rank: int, size: int, limit: tuple[int | None, bool]) -> Iterator[Part]:
        """Give the parts of an epoch."""
        self._framework.begin(self._name, epoch, began, *limit)
        while (found := self._framework.part(self._name, rank, size)) is not None:
            inputs, targets, count = found
            yield (inputs, targets), count


class _MadeLoader(PartsLoader):
    """The parts of one worker; each iteration is an epoch."""

    def __init__(self, rows: MadeRows, rank: int, size: int, steps: int | None, wraps: bool) -> None:
        super().__init__(self._read)
        self._rows, self._place, self._limit = rows, (rank, size), (steps, wraps)
        self._began: int | None = None

    def load_state_dict(self, states: Any) -> None:
        """Go on after as many batches, in an epoch that others may have gone before."""
        self._began = self.epoch
        super().load_state_dict(states)

    def _read(self) -> Iterator[Part]:
        if self._began is None:
            self._began = self.epoch
        return self._rows.parts(self.epoch, self._began, *self._place, self._limit)
