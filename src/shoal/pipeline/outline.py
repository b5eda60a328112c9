"""A plan as one draws it: where samples come from, and what is done to them, one thing after the other."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.abc import Pool, Source
from shoal.order import Shuffle
from shoal.pipeline._dataset import Dataset
from shoal.pipeline._plan import Mixture, Plan
from shoal.pipeline.stages import BlockStage, Stage, describe

__all__ = ["Outline", "StageOutline", "outline"]


@dataclass(frozen=True, slots=True)
class StageOutline:
    """One stage of a plan.

    >>> StageOutline("map(dict)", "2 thread").keeps_count
    True
    """

    name: str
    """As the user wrote it, and as statistics call it."""
    workers: str = ""
    """Those of its own, such as ``"4 process"``; nothing where it is done with its neighbours."""
    keeps_count: bool = True
    """Whether as many samples come out as go in."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A plan: a source, or a mixture of plans, and the stages over it.

    >>> import shoal
    >>> drawn = outline(shoal.mix([shoal.from_arrays({"x": [1]}), shoal.from_arrays({"x": [2]})], [3, 1]))
    >>> len(drawn.components), drawn.shares
    (2, (0.75, 0.25))
    """

    source: Source | None
    """None for a mixture."""
    stages: tuple[StageOutline, ...]
    components: tuple[Outline, ...] = ()
    shares: tuple[float, ...] = ()
    """How much of each component is drawn at first."""
    shuffle: str = ""


def outline(dataset: Dataset) -> Outline:
    """Draw the plan of a dataset.

    >>> import shoal
    >>> drawn = outline(shoal.from_arrays({"x": range(5)}).map(dict, workers=2).shuffle("full"))
    >>> [(stage.name, stage.workers) for stage in drawn.stages], drawn.shuffle
    ([('map(dict)', '2 thread')], 'full, seed 0')
    """
    return _outline(dataset._plan)


def _outline(plan: Plan) -> Outline:
    stages = tuple(map(_stage, plan.stages))
    if isinstance(plan.source, Mixture):
        shares = tuple(float(share) for share in plan.source.weights.points[0][1])
        return Outline(None, stages, tuple(map(_outline, plan.source.components)), shares)
    return Outline(plan.source, stages, shuffle=_shuffle(plan.shuffle))


def _stage(stage: Stage) -> StageOutline:
    pool = stage.pool if isinstance(stage, BlockStage) else None
    return StageOutline(describe(stage), "" if pool is None else _workers(pool), stage.keeps_count)


def _workers(pool: Pool) -> str:
    low, high = pool.bounds
    count = str(high) if low == high else f"{low} to {high}"
    return f"{count} {pool.mode}"


def _shuffle(shuffle: Shuffle | None) -> str:
    return "" if shuffle is None else f"{shuffle.mode}, seed {shuffle.seed}"
