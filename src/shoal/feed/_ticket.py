"""What a trainer asks of a feeder: which lanes of which rank, of which plan, from where on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shoal._flight import Dialect
from shoal.errors import DecodeError, FeedError, PlanError, SampleError, ShardError, StateError, UrlError
from shoal.order import Part
from shoal.pipeline.runs import Position

__all__ = ["DIALECT", "VERSION", "Ticket"]

#: Of what is said between feeders and trainers.
VERSION = 1

DIALECT = Dialect(
    "the feeder",
    "connect(urls, token=...) takes that of its token file",
    FeedError,
    (PlanError, StateError, SampleError, DecodeError, ShardError, UrlError),
)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A course of batches: the rows of some lanes of a rank, from a position to the end of the epoch."""

    plan: Mapping[str, Any]
    """The description of the plan that the trainer means; a feeder of another one refuses."""
    part: Part
    position: Position
    wrap: bool = False
    skips: bool = False
    """Whether samples that fail are left out, and told of."""
    new_weights: bool = False
    worker: tuple[int, int] = (0, 1)
    """Which batches are wanted, where several processes of a trainer share them."""
    compression: str | None = None
    job: str | None = None
    """The name under which several jobs share what is prepared."""
    jobs: int = 1

    def words(self) -> dict[str, Any]:
        """Say it in JSON."""
        at, part = self.position, self.part
        lanes = None if at.lanes is None else [[lane, *mark] for lane, mark in at.lanes.items()]
        return {
            "version": VERSION,
            "plan": self.plan,
            "part": [part.batch_size, part.rank, part.world_size, part.lanes, part.some],
            "position": [at.epoch, at.slot, at.step, lanes, at.anchors, at.ways, at.weights],
            "flags": [self.wrap, self.skips, self.new_weights],
            "worker": self.worker,
            "compression": self.compression,
            "job": [self.job, self.jobs],
        }

    @classmethod
    def told(cls, words: Mapping[str, Any]) -> Ticket:
        """Take what a trainer said."""
        if words.get("version") != VERSION:
            said = f"the trainer speaks version {words.get('version')!r:.20} of the feed, this feeder version {VERSION}"
            raise FeedError(f"{said}; install the same version of Shoal on both")
        try:
            batch_size, rank, world_size, lanes, some = words["part"]
            epoch, slot, step, marks, anchors, ways, weights = words["position"]
            known = None if marks is None else {int(lane): mark for lane, *mark in marks}
            position = Position(int(epoch), int(slot), int(step), known, tuple(anchors), tuple(ways), weights)
            worker, workers = map(int, words["worker"])
            part = Part(int(batch_size), int(rank), int(world_size), int(lanes), tuple(map(int, some)))
            (job, jobs), (wrap, skips, new_weights) = words["job"], map(bool, words["flags"])
            return cls(
                dict(words["plan"]), part, position, wrap, skips, new_weights, (worker, workers),
                words["compression"], None if job is None else str(job), int(jobs),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, PlanError):
                raise
            raise FeedError(f"what a trainer asked for makes no sense: {error!r:.200}") from None
