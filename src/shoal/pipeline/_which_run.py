"""Which kind of run an epoch of a plan is."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.abc import Source
from shoal.pipeline._lane_run import LaneRun
from shoal.pipeline._plan import Plan
from shoal.pipeline._run import Run, Setting
from shoal.pipeline._state import Position
from shoal.pipeline._straight_run import StraightRun

__all__ = ["is_straight", "make_run"]


def is_straight(plan: Plan, ways: Sequence[str]) -> bool:
    """Tell whether slot g simply holds element g of the one source."""
    return isinstance(plan.source, Source) and plan.keeps_count and tuple(ways) == ("samples",)


def make_run(setting: Setting, position: Position) -> Run:
    """Begin an epoch, or go on in the middle of one."""
    kind = StraightRun if is_straight(setting.plan, setting.ways) else LaneRun
    return kind(setting, position)
