"""What to do, as data: a source or a mixture of plans, the stages over it, how it is shuffled and shared out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from shoal.abc import Source
from shoal.order import LANES, Shuffle, Weights, derive
from shoal.pipeline.gather import LaneStage, Take
from shoal.pipeline.stages import BlockStage, Stage, leading

__all__ = ["Mixture", "Plan"]


@dataclass(frozen=True, slots=True)
class Mixture:
    """Several plans whose samples are drawn in turn."""

    components: tuple[Plan, ...]
    weights: Weights
    exhausted: str = "stop"
    """What happens when a component has no more samples: the lane stops, the component is dropped, or it begins
    again (``"wrap"``)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A source or a mixture, and what happens to its samples."""

    source: Source | Mixture
    stages: tuple[Stage, ...] = ()
    shuffle: Shuffle | None = None
    lanes: int = LANES
    views: bool = False
    """Whether fields that nobody decoded may leave as views into a mapped shard, and not as bytes."""
    part: tuple[int, int] | None = None
    """Which part of how many this is, if the dataset was split before."""

    limit: int | None = None
    """How many samples of the source are used at most."""
    unordered: bool = False
    """Whether samples may come in any order where nobody needs the one that they have."""
    skips: bool = False
    """Whether samples that fail are left out, so that nobody knows beforehand how many there will be."""

    def skipping(self) -> Plan:
        """Let samples that fail be left out, here and in all components."""
        if not isinstance(self.source, Mixture):
            return replace(self, skips=True)
        components = tuple(plan.skipping() for plan in self.source.components)
        return replace(self, source=replace(self.source, components=components), skips=True)

    def then(self, stage: Stage) -> Plan:
        """Add a stage at the end."""
        return replace(self, stages=(*self.stages, stage))

    @property
    def keeps_count(self) -> bool:
        """Whether as many samples come out as the source has, or as `take` leaves."""
        return not self.skips and all(stage.keeps_count or isinstance(stage, Take) for stage in self.stages)

    def with_limit(self) -> Plan:
        """Let the source end where `take` would: the same, where no other stage changes the number of samples."""
        counts = [stage.count for stage in self.stages if isinstance(stage, Take)]
        if not counts or not self.keeps_count:
            return self
        return replace(self, stages=tuple(s for s in self.stages if not isinstance(s, Take)), limit=min(counts))

    @property
    def seed(self) -> int:
        """The seed of random stages; behind a mixture it follows from those of the components."""
        if isinstance(self.source, Mixture):
            return derive("mixture", *(plan.seed for plan in self.source.components))
        return 0 if self.shuffle is None else self.shuffle.seed

    @property
    def depth(self) -> int:
        """How many mixtures lie inside one another."""
        if isinstance(self.source, Mixture):
            return 1 + max(plan.depth for plan in self.source.components)
        return 0

    @property
    def leading(self) -> tuple[BlockStage, ...]:
        """The stages before the first that acts inside a lane."""
        return leading(self.stages)

    @property
    def gathers(self) -> bool:
        """Whether a stage here or in a component acts inside a lane."""
        here = any(isinstance(stage, LaneStage | Take) for stage in self.stages)
        return here or any(plan.gathers for plan in self.components)

    @property
    def endless(self) -> bool:
        """Whether it goes on for ever, because components of a mixture begin again."""
        if any(isinstance(stage, Take) for stage in self.stages) or not isinstance(self.source, Mixture):
            return False
        points = self.source.weights.points
        drawn = [any(shares[at] for _, shares in points) for at in range(len(self.source.components))]
        endless = [plan.endless for plan, is_drawn in zip(self.source.components, drawn, strict=True) if is_drawn]
        return {"wrap": True, "drop": any(endless), "stop": all(endless)}[self.source.exhausted]

    @property
    def streams(self) -> int:
        """How many runs of stages there are, here and in the components, at most: they share the memory of a run."""
        kinds = [isinstance(stage, BlockStage) for stage in self.stages]
        runs = sum(here and not before for before, here in zip([False, *kinds], kinds, strict=False))
        return max(runs + sum(plan.streams for plan in self.components), 1)

    @property
    def components(self) -> tuple[Plan, ...]:
        """The plans of the mixture, if it is one."""
        return self.source.components if isinstance(self.source, Mixture) else ()

    def sources(self) -> Iterator[Source]:
        """List the sources, those of the components in their order."""
        if isinstance(self.source, Mixture):
            for plan in self.source.components:
                yield from plan.sources()
        else:
            yield self.source
