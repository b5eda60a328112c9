"""From a plan to lanes: which leaves there are, which stages run ahead of the lanes, and what each lane consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from shoal.abc import Source
from shoal.errors import PlanError
from shoal.order import Mixing, Walk, lane_share
from shoal.pipeline._blocks import with_bytes
from shoal.pipeline._feed import Chain, Feed
from shoal.pipeline._leaves import Leaf, make_leaf, way_of_reading
from shoal.pipeline._nodes import GatherNode, LeafNode, MixNode, Node, SegmentNode, SpreadNode, TakeNode, Trail
from shoal.pipeline._plan import Mixture, Plan
from shoal.pipeline._storage import run_salt
from shoal.pipeline.gather import LaneStage, Take
from shoal.pipeline.stages import BlockStage, Own, Stage

__all__ = ["Program", "leaf_plans", "ways_of_reading"]


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
    salts: tuple[tuple[int, ...], ...]
    """What the random stages in each part of a chain are keyed with."""
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
        chains = tuple(_with_bytes(chain, plan.views) for chain in _chains(plan))
        return cls(plan, leaves, chains, tuple(_salts(plan, epoch)), epoch, new_weights)

    def lane(self, feed: Feed, lane: int, trail: Trail) -> Node:
        """Put a lane together."""
        return self._node(self.plan, lane, lane, lambda leaf: LeafNode(feed, leaf, lane, trail), iter(self.leaves))

    def _node(
        self, plan: Plan, lane: int, phase: int, open_leaf: Callable[[Leaf], Node], leaves: Iterator[Leaf]
    ) -> Node:
        stages = list(plan.stages)
        if isinstance(plan.source, Mixture):
            weights = plan.source.weights
            pairs = zip(plan.source.components, weights.phases(phase), strict=True)
            children = [self._node(component, lane, begin, open_leaf, leaves) for component, begin in pairs]
            drop = plan.source.exhausted != "stop"  # one that begins again ends only if there is nothing in it
            mixing = Mixing(weights, self.plan.lanes, phase)
            mixed = MixNode(children, mixing, drop=drop, new_weights=self.new_weights)
            node: Node = SpreadNode(mixed) if _is_pushed_down(plan) else mixed
        else:
            node = open_leaf(next(leaves))
        if not isinstance(plan.source, Mixture) or _is_pushed_down(plan):
            stages = stages[len(plan.leading) :]
        for run in _runs(stages):
            node = self._staged(node, run, lane, run_salt(plan, self.epoch))
        return node

    def _staged(self, node: Node, run: Sequence[Stage], lane: int, salt: int) -> Node:
        stage = run[0]
        if isinstance(stage, Take):
            return TakeNode(node, lane_share(stage.count, lane, self.plan.lanes))
        if isinstance(stage, LaneStage):
            return GatherNode(node, stage.lane())
        return SegmentNode(node, [each for each in run if isinstance(each, BlockStage)], salt)


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


def _chains(plan: Plan) -> Iterator[tuple[Sequence[BlockStage], ...]]:
    """Give the leading stages of each leaf, cut at the mixtures that it passes through."""
    if not isinstance(plan.source, Mixture):
        yield (plan.leading,)
        return
    for component in plan.source.components:
        for chain in _chains(component):
            yield (*chain, plan.leading) if _is_pushed_down(plan) else chain


def _salts(plan: Plan, epoch: int) -> Iterator[tuple[int, ...]]:
    """Give what goes with the parts of each chain."""
    if not isinstance(plan.source, Mixture):
        yield (run_salt(plan, epoch),)
        return
    for component in plan.source.components:
        for salts in _salts(component, epoch):
            yield (*salts, run_salt(plan, epoch)) if _is_pushed_down(plan) else salts


def _with_bytes(chain: tuple[Sequence[BlockStage], ...], views: bool) -> Chain:
    """Let views into shards become bytes in the part of a chain where user code first sees them, else at its end."""
    for at, part in enumerate(chain):
        prepared = with_bytes(part, views=views, to_the_end=at == len(chain) - 1)
        if any(isinstance(stage, Own) for stage in prepared):
            return (*chain[:at], prepared, *chain[at + 1 :])
    return chain


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
