"""Some lanes of a rank on their way from one feeder: a thread that receives what the feeder sends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.errors import FeederLostError
from shoal.feed._assembly import Assembly
from shoal.feed._crew import Member
from shoal.feed._pieces import position_after
from shoal.feed._streams import Course, opened
from shoal.pipeline.runs import Position
from shoal.pipeline.statistics import StageStatistics

__all__ = ["Leg", "Place"]

#: Seconds for a thread that is told to end.
_PATIENCE = 5.0
#: Seconds after which somebody who waits for room listens to the feeder.
_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class Place:
    """What legs share: where batches are put together, and how they wait for each other."""

    changed: threading.Condition
    has_room: Callable[[int], bool]
    """Tells whether a batch of a number may be received already."""
    room: Callable[[int, Sequence[int]], tuple[Assembly, NDArray[np.int64]]]
    """Gives where the rows of some lanes in a batch of a number belong."""
    batch_size: int
    shared: bool


class Leg:
    """Some lanes, from one batch on, from one feeder."""

    def __init__(
        self, place: Place, member: Member, lanes: Sequence[int], begin: int, position: Position, words: dict[str, Any]
    ) -> None:
        self.member, self.lanes = member, tuple(lanes)
        self.next, self.end = begin, 2**62
        """The batch that it waits for, and the one before which it ends."""
        self.over = False
        """Whether the lanes have ended."""
        self.error: Exception | None = None
        """Why it cannot go on; `FeederLostError` if others can."""
        self.moved = time.monotonic()
        self.stages: tuple[StageStatistics, ...] = ()
        """How the stages of the feeder were doing when it last said so."""
        self.leaving = False
        """Whether the feeder would like others to have its lanes."""
        self.hello = member.hello
        """What the feeder said when this began; one that was started anew says something else."""
        self.marks: bytes | None = None
        """Where its lanes are after what it has received."""
        self._place, self._begin, self._position, self._words = place, begin, position, words
        self._course: Course | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="shoal-feed-leg", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it has received all that it will."""
        return self.over or self.next >= self.end

    def position(self) -> Position:
        """Say where its lanes go on, after what it has received."""
        if self.marks is None:
            return self._position
        return position_after([self.marks], self._position, self.next - self._begin, self._place.batch_size)

    def abandon(self) -> None:
        """End it, and make sure that it writes into no batch any more."""
        with self._place.changed:
            self._closed = True
            course = self._course
            self._place.changed.notify_all()
        if course is not None:
            course.cancel()
        if threading.current_thread() is not self._thread:
            self._thread.join(_PATIENCE)

    def _work(self) -> None:
        try:
            self._receive()
        except Exception as error:
            self.error = error
        finally:
            if self._course is not None:
                self._course.close()
            with self._place.changed:
                self._place.changed.notify_all()

    def _receive(self) -> None:
        if self.hello is None:
            raise FeederLostError(f"the feeder at {self.member.url} has gone: {self.member.why}")
        course = self._course = opened(self.member.line, self.hello, self._words, shared=self._place.shared)
        course.moved = self._move
        while self._may_go_on(course):
            assembly, places = self._place.room(self.next, self.lanes)
            received = course.next(assembly, places)
            with self._place.changed:
                if self._closed:
                    return
                if received is None:
                    self.over = True
                    return
                assembly.place(received)
                self.marks = received.marks
                self.stages = received.outline.stages or self.stages
                self.next += 1
                self.leaving = received.outline.leaving
                self._place.changed.notify_all()

    def _may_go_on(self, course: Course) -> bool:
        """Wait until there is room for another batch; False if none is wanted any more."""
        while not self._has_room():
            course.attend()
        self._move()
        return not (self._closed or self.done)

    def _has_room(self) -> bool:
        with self._place.changed:
            return self._place.changed.wait_for(
                lambda: self._closed or self.done or self._place.has_room(self.next), timeout=_PAUSE
            )

    def _move(self) -> None:
        self.moved = time.monotonic()
