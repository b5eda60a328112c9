"""One epoch of a rank that feeders prepare: each has some of the lanes, and what they send becomes batches here.

A feeder that goes takes nothing with it: where its lanes were after what it sent last is known here, and others go on
from there. One that comes gets its share at the next batch that nobody has begun.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import settings
from shoal.errors import FeederLostError, FeedWarning, StallWarning, WorkerHangError
from shoal.feed._assembly import Assembly, FedRows
from shoal.feed._crew import Crew, Member
from shoal.feed._dealing import batches_ahead, dealt
from shoal.feed._leg import Leg, Place
from shoal.feed._pieces import marks_of
from shoal.order import Ids, own_lanes, rank_part
from shoal.pipeline.runs import Position, Rows, Run, Setting
from shoal.pipeline.statistics import StageStatistics

__all__ = ["FedRun", "Terms"]

#: Seconds between two looks at feeders who are waited for.
_LOOK = 0.5


@dataclass(frozen=True, slots=True)
class Terms:
    """How batches are to come."""

    words: Callable[[Setting, Position, tuple[int, ...]], dict[str, Any]]
    """Says what is asked of a feeder: some lanes from a position on."""
    straight: bool = False
    timeout: float | None = None
    """Seconds without a message after which a feeder counts as stuck; None for the setting ``stall``."""
    shared: bool = True
    """Whether memory is shared with feeders of this host."""


class FedRun(Run):
    """An epoch that feeders prepare."""

    def __init__(self, crew: Crew, terms: Terms, setting: Setting, position: Position) -> None:
        super().__init__(setting)
        self._crew, self._terms, self._position = crew, terms, position
        self._timeout = settings.current().stall if terms.timeout is None else terms.timeout
        self._changed = threading.Condition()
        self._place = Place(self._changed, self._has_room, self._room, setting.part.batch_size, terms.shared)
        self._assemblies: dict[int, Assembly] = {}
        self._at, self._ahead = 0, 2
        self._alive = True
        self._marks: Mapping[int, Any] = position.lanes or {}
        self._told: set[tuple[int, str]] = set()
        self._met: list[Leg] = []
        """All legs that there were, for what they say of their stages."""
        self.meter.elsewhere = self._stages
        crew.meet()
        self._generation = crew.generation
        self._ended: list[Leg] = []
        self._legs = self._begun(own_lanes(setting.part), 0, position, crew.alive())

    def rows(self, slots: Ids) -> Rows:
        begun = time.perf_counter()
        self._await()
        self.meter.waited += time.perf_counter() - begun
        with self._changed:
            assembly = self._assemblies.pop(self._at, None) or Assembly(len(slots), self._setting.slabs.empty)
            self._alive = any(part.outline.alive for part in assembly.received)
            ended = [leg for leg in self._legs if leg.over and leg.next <= self._at]
            self._legs = [leg for leg in self._legs if leg not in ended]
            self._ended += ended
            self._marks = _Marks([*(part.marks for part in assembly.received), *_last(self._ended)])
            self._at += 1
            rows = FedRows(assembly)
            self._ahead = batches_ahead(rows.nbytes)
            self._changed.notify_all()
        for part in assembly.received:
            for failure in part.outline.failures:
                self.meter.skipped += 1
                self._setting.ledger.admit(failure, seen=self._at * self._setting.part.batch_size)
        return rows

    def rows_of_others(self, slots: Ids) -> Rows | None:
        rows = self.rows(slots)
        return None if self._terms.straight else rows

    @property
    def alive(self) -> bool:
        return self._alive

    def marks(self) -> Mapping[int, Any]:
        return self._marks

    def anchors(self, slot: int, marks: Mapping[int, Any]) -> tuple[Any, ...]:
        return marks.anchors if isinstance(marks, _Marks) else self._position.anchors

    def _let_go(self) -> None:
        legs, self._legs = self._legs, []
        for leg in legs:
            leg.abandon()
        self._assemblies.clear()

    def _await(self) -> None:
        """Wait until the next batch is there, whatever becomes of feeders meanwhile."""
        begun = time.monotonic()
        while self._crew.notices:
            warnings.warn(self._crew.notices.popleft(), FeedWarning, stacklevel=2)
        while True:
            self._deal_anew()
            with self._changed:
                late = [leg for leg in self._legs if leg.next <= self._at and not leg.over]
                if not late:
                    return
                broken = [leg for leg in late if leg.error is not None]
                if not broken:
                    self._changed.wait(_LOOK)
            for leg in broken:
                self._replace(leg)
            for leg in late:
                self._look_at(leg, begun)

    def _look_at(self, leg: Leg, begun: float) -> None:
        """See whether a feeder that is waited for has got stuck; others take its lanes, if there are any."""
        silence = time.monotonic() - max(leg.moved, begun)
        if not self._timeout or silence < self._timeout or leg.error is not None or leg not in self._legs:
            return
        url = leg.member.url
        place = f"at batch {self._at} of lanes {_few(leg.lanes)}"
        text = f"the feeder at {url} has sent nothing for {silence:.0f} s, {place}"
        others = [member for member in self._crew.alive() if member is not leg.member]
        if others:
            warnings.warn(f"{text}; others take its lanes", StallWarning, stacklevel=2)
            self._crew.lose(leg.member, f"it got stuck at batch {self._at}", stuck=True)
            self._take_over(leg)
        elif (self._at, url) not in self._told:
            self._told.add((self._at, url))
            if self._was_stuck():
                raise WorkerHangError(f"{text}, and no feeder gets beyond it: {self._crew.story()}")
            warnings.warn(f"{text}; there is no other feeder", StallWarning, stacklevel=2)

    def _was_stuck(self) -> bool:
        return any(member.hello is None and member.stuck for member in self._crew.members())

    def _replace(self, leg: Leg) -> None:
        """Let others go on where a feeder was lost; what is wrong with the plan is raised."""
        if leg not in self._legs:
            return
        assert leg.error is not None
        if not isinstance(leg.error, FeederLostError):
            if leg.next <= self._at:
                raise leg.error
            return
        why = str(leg.error)
        if leg.member.hello is not None and leg.member.hello is leg.hello:
            warnings.warn(f"{why}; others take its lanes, at batch {leg.next}", FeedWarning, stacklevel=2)
            self._crew.lose(leg.member, why)
        self._take_over(leg)

    def _take_over(self, leg: Leg) -> None:
        leg.abandon()
        survivors = self._crew.alive() or self._somebody()
        legs = self._begun(leg.lanes, leg.next, leg.position(), survivors)
        with self._changed:
            for each in legs:
                each.end = leg.end
            self._legs = [*(other for other in self._legs if other is not leg), *legs]

    def _somebody(self) -> list[Member]:
        self._crew.meet()
        return self._crew.alive()

    def _deal_anew(self) -> None:
        """Give feeders that came their share: all stop at one batch, and the lanes are dealt again from there."""
        with self._changed:
            for leg in self._legs:
                if leg.leaving and leg.member.hello is not None:
                    self._crew.retire(leg.member)
            if self._crew.generation != self._generation and self._legs and all(leg.end > 2**61 for leg in self._legs):
                self._generation = self._crew.generation
                cut = max(leg.next for leg in self._legs) + 1
                for leg in self._legs:
                    leg.end = cut
                self._changed.notify_all()
            running = [leg for leg in self._legs if not leg.over]
            if not running or not all(leg.next >= leg.end for leg in running):
                return
        for leg in running:
            leg.abandon()
        position = _joined([leg.position() for leg in running])
        lanes = sorted(lane for leg in running for lane in leg.lanes)
        legs = self._begun(lanes, running[0].next, position, self._crew.alive() or self._somebody())
        with self._changed:
            self._legs = [*(leg for leg in self._legs if leg.over), *legs]

    def _begun(self, lanes: Sequence[int], begin: int, position: Position, members: Sequence[Member]) -> list[Leg]:
        legs = []
        part = self._setting.part
        first = part.rank * len(own_lanes(part))
        for url, share in dealt(lanes, [member.url for member in members], first).items():
            known = None if position.lanes is None else {lane: position.lanes[lane] for lane in share}
            here = replace(position, lanes=known)
            words = self._terms.words(self._setting, here, share)
            legs.append(Leg(self._place, self._crew.member(url), share, begin, here, words))
        self._met += legs
        return legs

    def _stages(self) -> list[StageStatistics]:
        """Add up what feeders say of their stages."""
        elapsed = max((self.meter.ended or time.perf_counter()) - self.meter.begun, 1e-9)
        working = {id(leg) for leg in self._legs if not leg.done}
        by_name: dict[str, list[tuple[StageStatistics, bool]]] = {}
        for leg in list(self._met):
            for stage in leg.stages:
                by_name.setdefault(stage.name, []).append((stage, id(leg) in working))
        return [_added_up(name, told, number, elapsed) for number, (name, told) in enumerate(by_name.items())]

    def _has_room(self, number: int) -> bool:
        return number < self._at + self._ahead

    def _room(self, number: int, lanes: Sequence[int]) -> tuple[Assembly, NDArray[np.int64]]:
        """Give where the rows of some lanes belong in a batch."""
        part = self._setting.part
        slots, _ = rank_part(self._position.slot + number * part.batch_size, part)
        with self._changed:
            if number not in self._assemblies:
                self._assemblies[number] = Assembly(len(slots), self._setting.slabs.empty)
            return self._assemblies[number], np.flatnonzero(np.isin(slots % part.lanes, lanes))


class _Marks(Mapping[int, Any]):
    """Where lanes are, as feeders said it; read when somebody wants to know."""

    def __init__(self, data: Sequence[bytes]) -> None:
        self._data = data
        self._read: tuple[dict[int, Any], tuple[Any, ...]] | None = None

    @property
    def anchors(self) -> tuple[Any, ...]:
        """What is needed to go on from there, beside it."""
        return self._words()[1]

    def __getitem__(self, lane: int) -> Any:
        return self._words()[0][lane]

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._words()[0]))

    def __len__(self) -> int:
        return len(self._words()[0])

    def _words(self) -> tuple[dict[int, Any], tuple[Any, ...]]:
        if self._read is None:
            self._read = marks_of(self._data)
            self._data = ()
        return self._read


def _added_up(name: str, told: Sequence[tuple[StageStatistics, bool]], number: int, elapsed: float) -> StageStatistics:
    samples, seconds = sum(stage.samples for stage, _ in told), sum(stage.seconds for stage, _ in told)
    now = [stage for stage, works in told if works] or [stage for stage, _ in told]
    workers, queue = sum(stage.workers for stage in now), sum(stage.queue for stage in now) / len(now)
    busy, deaths = min(seconds / (elapsed * max(workers, 1)), 1.0), sum(stage.deaths for stage, _ in told)
    return StageStatistics(name, "feeder", workers, samples, samples / elapsed, seconds, busy, queue, deaths, number)


def _last(legs: Sequence[Leg]) -> list[bytes]:
    return [leg.marks for leg in legs if leg.marks is not None]


def _joined(positions: Sequence[Position]) -> Position:
    """Put together where the lanes of several legs are; the smallest anchors reach back furthest."""
    lanes = {lane: mark for position in positions for lane, mark in (position.lanes or {}).items()}
    anchors = tuple(min(some) for some in zip(*(position.anchors for position in positions), strict=True))
    return replace(positions[0], lanes=lanes, anchors=anchors)


def _few(lanes: Sequence[int]) -> str:
    return ", ".join(map(str, lanes[:4])) + (", ..." if len(lanes) > 4 else "")
