"""One epoch of a loader on one rank: the samples in its slots, and the position after them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shoal._ending import ends_with_program
from shoal._slabs import Slabs
from shoal.abc import Pool
from shoal.order import Ids, Part
from shoal.pipeline._live import LiveLine
from shoal.pipeline._meter import Meter
from shoal.pipeline._rows import Rows
from shoal.pipeline.ledger import Ledger

__all__ = ["CHANGED", "Run", "Setting"]

CHANGED = (
    "the sample that lane {lane} delivered last is not where it was: the shards have other lengths than in the run "
    "that this state is of"
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run of an epoch needs to know, beside what it runs.

    >>> from shoal.abc import Pool
    >>> from shoal.order import Part
    >>> Setting(Part(8), Pool(1), wrap=False, ways=("pick",)).part.lanes
    64
    """

    part: Part
    pool: Pool
    wrap: bool
    ways: tuple[str, ...]
    worker: tuple[int, int] = (0, 1)
    """Which of several processes this is that make every so-manieth batch of the rank."""
    new_weights: bool = False
    ledger: Ledger = field(default_factory=lambda: Ledger("raise"))
    slabs: Slabs = field(default_factory=Slabs)
    progress: bool = False


class Run(ABC):
    """An epoch that is being delivered.

    >>> import numpy as np
    >>> import shoal
    >>> from shoal.abc import Pool
    >>> from shoal.order import Part
    >>> from shoal.pipeline.runs import Position, origin_of
    >>> origin = origin_of(shoal.from_arrays({"x": range(5)}))
    >>> run = origin.run(Setting(Part(2), Pool(1), wrap=False, ways=origin.ways()), Position())
    >>> [int(sample["x"]) for sample in run.rows(np.array([0, 1])).samples()]
    [0, 1]
    >>> run.close()
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self.meter = Meter()
        self.line = LiveLine(self.meter) if setting.progress else None
        self._closed = False
        ends_with_program(self)

    @abstractmethod
    def rows(self, slots: Ids) -> Rows:
        """Give what is in the next slots of this rank."""

    @abstractmethod
    def rows_of_others(self, slots: Ids) -> Rows | None:
        """Pass over slots that another worker delivers; say what is in them if that has to be known anyway."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether a lane of this rank may have samples behind slots that were empty."""

    @abstractmethod
    def marks(self) -> Mapping[int, Any]:
        """Say where each lane of this rank is."""

    @abstractmethod
    def anchors(self, slot: int, marks: Mapping[int, Any]) -> tuple[Any, ...]:
        """Say what each leaf has to know to go on from marks."""

    def close(self) -> None:
        """Let go of everything."""
        if not self._closed:
            self._closed = True
            self.meter.end()
            self._let_go()
            if self.line is not None:
                self.line.close()

    @abstractmethod
    def _let_go(self) -> None:
        """End the workers, and keep no samples."""
