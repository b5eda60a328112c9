"""From a plan to lanes: which leaves there are, which stages run ahead of the lanes, and what each lane consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from shoal.abc import Source
from shoal.errors import PlanError
from shoal.order import Mixing, Walk, lane_share
from shoal.pipeline._feed import Feed
from shoal.pipeline._leaves import Leaf, make_leaf, way_of_reading
from shoal.pipeline._nodes import (
    GatherNode,
    LeafNode,
    MixNode,
    Node,
    SegmentNode,
    SpreadNode,
    TakeNode,
    Trail,
)
from shoal.pipeline._plan import Mixture, Plan
from shoal.pipeline._segments import Segment
from shoal.pipeline._steps import Chain, Cross, fused, with_bytes
from shoal.pipeline._storage import run_salt
from shoal.pipeline.gather import LaneStage, Take
from shoal.pipeline.stages import BlockStage, Stage

__all__ = ["Program", "Segments", "leading_chains", "leaf_plans", "ways_of_reading"]

#: Gives who does stages behind a lane, keyed with a number.
Segments: TypeAlias = Callable[[tuple[BlockStage, ...], int], Segment]


def ways_of_reading(plan: Plan, before: Sequence[str] = ()) -> list[str]:
    """Decide for each source how it is read; the same on every rank, and kept in a loader's state.

    Where a plan leaves it open, what was decided ``before`` holds: an index may have appeared meanwhile.
    """
    plans = list(leaf_plans(plan))
    known = list(before) if len(before) == len(plans) else [None] * len(plans)
    return [_way(leaf, then) for leaf, then in zip(plans, known, strict=True)]


def _way(plan: Plan, before: str | None) -> str:
    assert isinstance(plan.source, Source)
    cut, mode = ("auto", None) if plan.shuffle is None else (plan.shuffle.cut, plan.shuffle.mode)
    return before if before is not None and cut == "auto" else way_of_reading(plan.source, cut, mode)


@dataclass(frozen=True, slots=True)
class Program:
    """What the lanes of one epoch are made of.

    Stages right behind a source, and those right behind a mixture of such, run ahead of the lanes in the engine's
    workers; what acts inside a lane, and everything behind it, is done as the lane is pulled.
    """

    plan: Plan
    leaves: tuple[Leaf, ...]
    chains: tuple[Chain, ...]
    epoch: int
    new_weights: bool = False
    """Whether the weights of mixtures were changed since the position that lanes will go on from."""

    @classmethod
    def of(cls, plan: Plan, epoch: int, ways: Sequence[str], *, wrap: bool, new_weights: bool = False) -> Program:
        """Take a plan apart."""
        plan = _with_limits(plan, iter(ways))
        if _wraps_taken(plan, wrap):
            raise PlanError("what is to begin again (wrap) cannot end after take() of a filtered or gathered stream")
        leaves = tuple(_leaves(plan, epoch, iter(ways), plan.lanes, wrap, iter(range(2**31))))
        return cls(plan, leaves, tuple(leading_chains(plan, epoch)), epoch, new_weights)

    def lane(self, feed: Feed, lane: int, trail: Trail, segments: Segments) -> Node:
        """Put a lane together; ``segments`` tells how the stages behind it are done."""
        leaves = iter(self.leaves)
        return self._node(self.plan, lane, lane, lambda: LeafNode(feed, next(leaves), lane, trail), segments)

    def _node(self, plan: Plan, lane: int, phase: int, leaf: Callable[[], Node], segments: Segments) -> Node:
        stages = list(plan.stages)
        if isinstance(plan.source, Mixture):
            weights = plan.source.weights
            pairs = zip(plan.source.components, weights.phases(phase), strict=True)
            children = [self._node(component, lane, begin, leaf, segments) for component, begin in pairs]
            drop = plan.source.exhausted != "stop"  # one that begins again ends only if there is nothing in it
            mixing = Mixing(weights, self.plan.lanes, phase)
            mixed = MixNode(children, mixing, drop=drop, new_weights=self.new_weights)
            node: Node = SpreadNode(mixed) if _is_pushed_down(plan) else mixed
        else:
            node = leaf()
        if not isinstance(plan.source, Mixture) or _is_pushed_down(plan):
            stages = stages[len(plan.leading) :]
        for run in _runs(stages):
            node = self._staged(node, run, lane, run_salt(plan, self.epoch), segments)
        return node

    def _staged(self, node: Node, run: Sequence[Stage], lane: int, salt: int, segments: Segments) -> Node:
        stage = run[0]
        if isinstance(stage, Take):
            return TakeNode(node, lane_share(stage.count, lane, self.plan.lanes))
        if isinstance(stage, LaneStage):
            return GatherNode(node, stage.lane())
        return SegmentNode(node, segments(tuple(each for each in run if isinstance(each, BlockStage)), salt))


def _runs(stages: Sequence[Stage]) -> Iterator[list[Stage]]:
    """Put neighbouring stages that look at one sample at a time together."""
    run: list[Stage] = []
    for stage in stages:
        if run and not isinstance(stage, BlockStage):
            yield run
            run = []
        run.append(stage)
        if not isinstance(stage, BlockStage):
            yield run
            run = []
    if run:
        yield run


def _is_pushed_down(plan: Plan) -> bool:
    """Tell whether the stages right behind a mixture run ahead of the lanes, with those of its components."""
    return bool(plan.leading) and not any(component.gathers for component in plan.components)


def leaf_plans(plan: Plan) -> Iterator[Plan]:
    """List the plans that have a source, those of the components in their order."""
    if isinstance(plan.source, Mixture):
        for component in plan.source.components:
            yield from leaf_plans(component)
    else:
        yield plan


def leading_chains(plan: Plan, epoch: int) -> list[Chain]:
    """Give the leading stages of each leaf, with those of the mixtures that its samples pass through."""
    chains: list[Chain] = []
    for parts in _levels(plan, epoch):
        chain: list[BlockStage] = []
        for number, (salt, stages) in enumerate(parts):
            chain += [Cross(salt, first=number == 0), *fused(stages)]
        chains.append(with_bytes(chain, views=plan.views, to_the_end=True))
    return chains


def _levels(plan: Plan, epoch: int) -> Iterator[tuple[tuple[int, Sequence[BlockStage]], ...]]:
    """Give for each leaf the stages right behind it and behind mixtures, with what random ones are keyed with."""
    here = run_salt(plan, epoch), plan.leading
    if not isinstance(plan.source, Mixture):
        yield (here,)
        return
    for component in plan.source.components:
        for levels in _levels(component, epoch):
            yield (*levels, here) if _is_pushed_down(plan) else levels


def _leaves(
    plan: Plan, epoch: int, ways: Iterator[str], lanes: int, wrap: bool, numbers: Iterator[int]
) -> Iterator[Leaf]:
    if isinstance(plan.source, Mixture):
        wrap = wrap or plan.source.exhausted == "wrap"
        for component in plan.source.components:
            yield from _leaves(component, epoch, ways, lanes, wrap, numbers)
        return
    assert isinstance(plan.source, Source)
    walk = Walk(plan.shuffle, epoch, len(plan.source.shards()), lanes, wrap, plan.limit)
    yield make_leaf(plan.source, walk, next(numbers), next(ways))


def _with_limits(plan: Plan, ways: Iterator[str]) -> Plan:
    """Turn `take` into an earlier end of the source, where that is the same."""
    if isinstance(plan.source, Mixture):
        components = tuple(_with_limits(component, ways) for component in plan.source.components)
        return replace(plan, source=replace(plan.source, components=components))
    return plan.with_limit() if next(ways) == "samples" else plan


def _wraps_taken(plan: Plan, wrap: bool) -> bool:
    if wrap and any(isinstance(stage, Take) for stage in plan.stages):
        return True
    inner = wrap or (isinstance(plan.source, Mixture) and plan.source.exhausted == "wrap")
    return any(_wraps_taken(component, inner) for component in plan.components)
