"""What the metrics of a model count: sums in their variables, which are added up over batches and over workers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.abc import Member
from shoal.learn._packed import pack, unpack
from shoal.learn.keras import _keras_variables as variables

__all__ = ["Counted", "results"]


class Counted:
    """The sums of all metrics, over some batches."""

    def __init__(self, sums: list[NDArray[Any]] | None = None) -> None:
        self.sums = sums or []

    def add(self, model: Any) -> None:
        """Add what metrics have counted in the last batch, and let them begin anew."""
        found = [each.astype(np.float64) for each in variables.arrays(variables.metric_variables(model))]
        self.sums = [one + other for one, other in zip(self.sums, found, strict=True)] if self.sums else found
        model.reset_metrics()

    def dumped(self) -> bytes:
        """Give the sums as a file."""
        return pack(self.sums)

    @classmethod
    def taken(cls, data: bytes) -> Counted:
        """Take what `dumped` gave."""
        return cls(list(unpack(data).values()))


def results(model: Any, counted: Counted, member: Member) -> dict[str, float]:
    """Say what metrics make of the sums of all workers; a worker that had no row has no sums."""
    every = [sums for sums in member.all_gather(counted.sums) if sums]
    mine: dict[str, float] = {}
    if every and counted.sums:
        targets = variables.metric_variables(model)
        summed = [np.sum(parts, axis=0) for parts in zip(*every, strict=True)]
        kinds = [each.dtype for each in variables.arrays(targets)]
        variables.assign(targets, [np.asarray(value, kind) for value, kind in zip(summed, kinds, strict=True)])
        mine = variables.described(_said(model))
        mine.pop("loss", None)
        model.reset_metrics()
    return next((each for each in member.all_gather(mine) if each), {})


def _said(model: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for metric in model.metrics:
        result = metric.result()
        found |= result if isinstance(result, dict) else {metric.name: result}
    return found
