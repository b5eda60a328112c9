"""Where the epochs of a loader come from: a plan that is run in this process, or somebody else who runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.abc import Source
from shoal.pipeline._digest import changed_shards, plan_description, plan_weights
from shoal.pipeline._lane_run import LaneRun
from shoal.pipeline._leaves import lengths_of
from shoal.pipeline._plan import Plan
from shoal.pipeline._program import ways_of_reading
from shoal.pipeline._run import Run, Setting
from shoal.pipeline._state import Position, differences
from shoal.pipeline._straight_run import StraightRun

__all__ = ["Origin", "PlanOrigin"]


class Origin(ABC):
    """What a loader has to know of what it loads, and how an epoch of it is begun.

    >>> import shoal
    >>> from shoal.pipeline.runs import origin_of
    >>> origin = origin_of(shoal.from_arrays({"x": range(5)}).lanes(4))
    >>> origin.lanes, origin.endless, origin.slots()
    (4, False, 5)
    """

    @property
    @abstractmethod
    def lanes(self) -> int:
        """How many lanes there are."""

    @property
    @abstractmethod
    def endless(self) -> bool:
        """Whether an epoch goes on for ever."""

    @property
    @abstractmethod
    def part(self) -> tuple[int, int] | None:
        """Which part of how many it is, if it was split before."""

    @abstractmethod
    def skipping(self) -> Origin:
        """Let samples that fail be left out."""

    @abstractmethod
    def ways(self, before: Sequence[str] = ()) -> tuple[str, ...]:
        """Decide how each source is read; where that is open, what was decided before holds."""

    @abstractmethod
    def description(self, ways: Sequence[str], *, wrap: bool) -> dict[str, Any]:
        """Describe everything that decides about the order."""

    def changes(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
        """Say in words what is not as it was when it was described before."""
        return differences(before, now)

    @abstractmethod
    def weights(self) -> list[Any]:
        """List the weights of all mixtures."""

    @abstractmethod
    def is_straight(self, ways: Sequence[str]) -> bool:
        """Tell whether slot g simply holds element g of one source."""

    @property
    @abstractmethod
    def counted(self) -> bool:
        """Whether `slots` is known without asking many shards for their lengths, or has to be known anyway."""

    @abstractmethod
    def slots(self) -> int:
        """Count the slots of an epoch; only where it is straight."""

    @abstractmethod
    def run(self, setting: Setting, position: Position) -> Run:
        """Begin an epoch, or go on in the middle of one."""


class PlanOrigin(Origin):
    """A plan that is run by the engine of this process."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @property
    def lanes(self) -> int:
        return self.plan.lanes

    @property
    def endless(self) -> bool:
        return self.plan.endless

    @property
    def part(self) -> tuple[int, int] | None:
        return self.plan.part

    def skipping(self) -> Origin:
        return PlanOrigin(self.plan.skipping())

    def ways(self, before: Sequence[str] = ()) -> tuple[str, ...]:
        return tuple(ways_of_reading(self.plan, before))

    def description(self, ways: Sequence[str], *, wrap: bool) -> dict[str, Any]:
        return plan_description(self.plan, ways, wrap=wrap)

    def changes(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
        found = differences(before, now)
        return found and [*found, *changed_shards(self.plan, before, now)]

    def weights(self) -> list[Any]:
        return plan_weights(self.plan)

    def is_straight(self, ways: Sequence[str]) -> bool:
        return isinstance(self.plan.source, Source) and self.plan.keeps_count and tuple(ways) == ("samples",)

    @property
    def counted(self) -> bool:
        full = self.plan.shuffle is not None and self.plan.shuffle.mode == "full"
        return full or (isinstance(self.plan.source, Source) and self.plan.source.counted)

    def slots(self) -> int:
        source = self.plan.source
        assert isinstance(source, Source)
        samples = int(lengths_of(source)(np.arange(len(source.shards()))).sum())
        limit = self.plan.with_limit().limit
        return samples if limit is None else min(samples, limit)

    def run(self, setting: Setting, position: Position) -> Run:
        kind = StraightRun if self.is_straight(setting.ways) else LaneRun
        return kind(self.plan, setting, position)
