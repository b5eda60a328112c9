"""What one feeder has of a batch: the rows of its lanes, and where these lanes are afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from shoal.abc import Pool
from shoal.errors import FeedError
from shoal.feed._columns import Column, Head, columns_of, encoded
from shoal.feed._ticket import DIALECT, Ticket
from shoal.order import rank_part
from shoal.pipeline import Failure, Ledger
from shoal.pipeline.runs import Origin, Position, Rows, Run, Setting
from shoal.pipeline.statistics import StageStatistics

__all__ = ["SMALL", "Outline", "Piece", "marks_of", "pieces", "position_after"]

#: Bytes of a buffer from which on it travels by itself; smaller ones go together.
SMALL = 2**16
#: Seconds between two times that a feeder tells how its stages are doing.
_SPEAK = 0.5


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows of some lanes in one batch."""

    slots: int
    places: list[int] | None = None
    """Which of the slots have a sample; None if all have."""
    columns: Mapping[str, Column] = field(default_factory=dict)
    marks: bytes = b""
    """Where the lanes are afterwards, in words that only feeders read."""
    alive: bool = True
    """Whether lanes may have samples in later batches."""
    failures: tuple[Failure, ...] = ()
    stages: tuple[StageStatistics, ...] | None = None
    """How the stages are doing, told now and then."""
    leaving: bool = False
    """Whether the feeder would like others to have its lanes."""

    @property
    def rows(self) -> int:
        """How many samples there are."""
        return self.slots if self.places is None else len(self.places)

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        return sum(int(getattr(column.values, "nbytes", 0)) for column in self.columns.values())

    def packed(self) -> tuple[dict[str, Any], list[Any]]:
        """Tell of it in JSON, and give its bytes: the marks first, then those of each column."""
        buffers: list[Any] = [memoryview(self.marks)]
        columns = []
        for name, column in self.columns.items():
            head, own = encoded(name, column)
            columns.append([name, head, [len(each) for each in own]])
            buffers += own
        told = {"slots": self.slots, "columns": columns, "marks": len(self.marks), "alive": self.alive}
        told |= {} if self.places is None else {"places": self.places}
        told |= {"failures": [failure.plain() for failure in self.failures]} if self.failures else {}
        told |= {"leaving": True} if self.leaving else {}
        told |= {} if self.stages is None else {"stages": [asdict(stage) for stage in self.stages]}
        return told, buffers


@dataclass(frozen=True, slots=True)
class Outline:
    """What is told of a piece before its bytes come."""

    slots: int
    places: list[int] | None
    columns: list[tuple[str, Head, list[int]]]
    """Name and head of each column, and the sizes of its buffers."""
    marks: int
    alive: bool
    failures: tuple[Failure, ...]
    stages: tuple[StageStatistics, ...] | None
    leaving: bool

    @classmethod
    def told(cls, words: Mapping[str, Any]) -> Outline:
        """Take what a feeder said."""
        try:
            columns = [(str(name), list(head), [int(size) for size in sizes]) for name, head, sizes in words["columns"]]
            places = [int(place) for place in words["places"]] if "places" in words else None
            failures = tuple(map(Failure.read, words.get("failures", ())))
            sizes = [size for *_, some in columns for size in some]
            stages = tuple(StageStatistics(**each) for each in words["stages"]) if "stages" in words else None
            slots, marks, alive = int(words["slots"]), int(words["marks"]), bool(words["alive"])
            made = cls(slots, places, columns, marks, alive, failures, stages, bool(words.get("leaving")))
        except (KeyError, TypeError, ValueError) as error:
            raise FeedError(f"what a feeder told makes no sense: {error!r:.200}") from None
        if min([made.slots, made.marks, *sizes]) < 0 or any(not 0 <= place < made.slots for place in places or ()):
            raise FeedError("what a feeder told makes no sense: a number is out of its range")
        return made

    @property
    def sizes(self) -> list[int]:
        """The bytes of each buffer, in the order in which they come."""
        return [self.marks, *(size for *_, sizes in self.columns for size in sizes)]


def pieces(origin: Origin, ticket: Ticket, pool: Pool, slabs: Any) -> Iterator[Piece]:
    """Run an epoch for a trainer, from where it says, and give its part of each batch; closed, it ends the run."""
    ledger = Ledger(lambda failure: True, 2**62) if ticket.skips else Ledger("raise")
    position, part, worker = ticket.position, ticket.part, ticket.worker
    setting = Setting(part, pool, ticket.wrap, position.ways, worker, ticket.new_weights, ledger, slabs)
    run = (origin.skipping() if ticket.skips else origin).run(setting, position)
    slot, step, told, spoken = position.slot, position.step, 0, 0.0
    try:
        while True:
            slots, _ = rank_part(slot, part)
            mine = step % worker[1] == worker[0]
            rows = (run.rows(slots) if mine else run.rows_of_others(slots)) if len(slots) else None
            slot, step = slot + part.batch_size, step + 1
            piece = _piece(run, rows, len(slots), slot, slabs, tuple(ledger.failures[told:]))
            is_over = rows is not None and not rows.present and not run.alive
            if is_over or time.monotonic() - spoken > _SPEAK:
                spoken = time.monotonic()
                piece = replace(piece, stages=run.meter.statistics().stages)
            yield piece
            if is_over:
                return
            del rows, piece
            told = len(ledger)
    finally:
        run.close()


def _piece(run: Run, rows: Rows | None, slots: int, slot: int, slabs: Any, failures: tuple[Failure, ...]) -> Piece:
    marks = run.marks()
    words = {"lanes": [[lane, *mark] for lane, mark in marks.items()], "anchors": run.anchors(slot, marks)}
    columns = {} if rows is None else columns_of(rows, slabs.empty)
    places = [] if rows is None else rows.places()
    alive = rows is None or run.alive
    return Piece(slots, places, columns, json.dumps(words, separators=(",", ":")).encode(), alive, failures)


def marks_of(data: Sequence[bytes]) -> tuple[dict[int, Any], tuple[Any, ...]]:
    """Read where lanes are that several feeders had; of what they need to go on, the first reaches back furthest."""
    every = [DIALECT.unpack(each) for each in data]
    lanes = {int(lane): mark for words in every for lane, *mark in words["lanes"]}
    anchors = [words["anchors"] for words in every]
    return lanes, tuple(min(some) for some in zip(*anchors, strict=True))


def position_after(data: Sequence[bytes], before: Position, batches: int, batch_size: int) -> Position:
    """Say where lanes go on after so many batches behind a position."""
    lanes, anchors = marks_of(data)
    return Position(
        before.epoch, before.slot + batches * batch_size, before.step + batches, lanes, anchors, before.ways,
        before.weights,
    )  # fmt: skip
