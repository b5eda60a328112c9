"""What an epoch consists of, for those who let others run it: `shoal.feed` does.

An `Origin` is what a loader loads. It begins a `Run` of an epoch at a `Position`; a run gives the `Rows` in the next
slots of a rank, and tells where each lane is after them.
"""

from __future__ import annotations

from shoal.pipeline._collate import column
from shoal.pipeline._dataset import Dataset
from shoal.pipeline._loader import LoaderOptions
from shoal.pipeline._meter import Meter
from shoal.pipeline._origin import Origin, PlanOrigin
from shoal.pipeline._rows import Rows, SampleRows
from shoal.pipeline._run import Run, Setting
from shoal.pipeline._state import Position, differences

__all__ = [
    "LoaderOptions",
    "Meter",
    "Origin",
    "Position",
    "Rows",
    "Run",
    "SampleRows",
    "Setting",
    "column",
    "differences",
    "origin_of",
]


def origin_of(dataset: Dataset) -> Origin:
    """Give what a loader of a dataset loads.

    >>> import shoal
    >>> origin_of(shoal.from_arrays({"x": range(5)})).slots()
    5
    """
    return PlanOrigin(dataset._plan)
