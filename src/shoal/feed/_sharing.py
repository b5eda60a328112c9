"""One prepared stream for several jobs: each piece is made once, and seen by all.

Those who want the same begin together, at the place of whoever is furthest behind. Who asks for a piece that nobody has
made yet makes it; it is kept until everybody has had it. Who is ahead waits for the others, so that few are kept. Who
comes too late to find what he needs has a run of his own, and loses nothing.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from shoal import settings
from shoal.errors import FeedError
from shoal.feed._pieces import Piece
from shoal.feed._ticket import Ticket

__all__ = ["SharedRuns"]

Begin: TypeAlias = "Callable[[Ticket], Iterator[Piece]]"

#: Pieces that may be kept for those who are behind.
_WINDOW = 8


class SharedRuns:
    """The runs of a feeder that several jobs share."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._lock = threading.Condition()
        self._runs: dict[str, _Run] = {}

    def course(self, ticket: Ticket) -> Iterator[Piece]:
        """Give the pieces that a job asks for, together with the others of its name."""
        if ticket.jobs < 1:
            raise FeedError(f"jobs={ticket.jobs}; it is the number of jobs that share what is prepared")
        return self._pieces(ticket)

    def _pieces(self, ticket: Ticket) -> Iterator[Piece]:
        # Nobody is waited for who has not asked for a first piece.
        yield from self._joined(ticket) or self._begin(ticket)

    def _joined(self, ticket: Ticket) -> Iterator[Piece] | None:
        """Wait until everybody is there who shares a run; None for who comes too late."""
        key = _key(ticket)
        with self._lock:
            self._runs = {name: run for name, run in self._runs.items() if not run.is_over}
            run = self._runs.get(key)
            if run is None:
                run = self._runs[key] = _Run(self._begin, self._lock, ticket)
            number = run.enter(ticket)
            if number is None:
                return None
            full = self._lock.wait_for(lambda: run.is_complete, settings.current().timeout)
            if not full:
                run.is_complete = True  # those who are there go on without the others
                self._lock.notify_all()
        return run.pieces(number)


class _Run:
    """A run for several readers, each of whom is at a piece of a number."""

    def __init__(self, begin: Begin, lock: threading.Condition, ticket: Ticket) -> None:
        self._begin, self._lock, self._ticket = begin, lock, ticket
        self._source: Iterator[Piece] | None = None
        self._kept: deque[Piece] = deque()
        self._first = 0
        """The number of the first piece that is kept."""
        self._readers: dict[int, int] = {}
        self._entered = 0
        self._making, self._ended = False, False
        self._error: Exception | None = None
        self.is_complete = False
        """Whether it has begun, or may."""

    @property
    def is_over(self) -> bool:
        """Whether nobody reads it any more."""
        return self.is_complete and not self._readers

    def enter(self, ticket: Ticket) -> int | None:
        """Let a reader in, with a number of his own; None if what he needs is gone."""
        batches, rest = divmod(ticket.position.slot - self._ticket.position.slot, ticket.part.batch_size)
        if rest or (self.is_complete and batches < self._first):
            return None
        if batches < self._first:  # whoever is furthest behind says where it begins
            self._readers = {reader: at - batches for reader, at in self._readers.items()}
            self._ticket, batches = ticket, 0
        self._readers[self._entered] = batches
        self._entered += 1
        self.is_complete = self.is_complete or len(self._readers) >= ticket.jobs
        self._lock.notify_all()
        return self._entered - 1

    def pieces(self, reader: int) -> Iterator[Piece]:
        """Give one reader what there is for him."""
        try:
            while (piece := self._next(reader)) is not None:
                yield piece
        finally:
            self._leave(reader)

    def _next(self, reader: int) -> Piece | None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._can_go_on(reader))
                at = self._readers[reader]
                if at < self._first + len(self._kept):
                    piece = self._kept[at - self._first]
                    self._readers[reader] = at + 1
                    self._forget()
                    return piece
                if self._error is not None:
                    raise self._error
                if self._ended:
                    return None
                self._making = True
            self._make()

    def _can_go_on(self, reader: int) -> bool:
        """Tell whether there is something for a reader, or he may make it."""
        there = self._readers[reader] < self._first + len(self._kept)
        may_make = not self._making and len(self._kept) < _WINDOW
        return there or self._ended or self._error is not None or may_make

    def _make(self) -> None:
        made, error = None, None
        try:
            if self._source is None:
                self._source = self._begin(replace(self._ticket, job=None))
            made = next(self._source, None)
        except Exception as caught:
            error = caught
        with self._lock:
            self._making = False
            self._error, self._ended = error, made is None
            if made is not None:
                self._kept.append(made)
            self._lock.notify_all()

    def _forget(self) -> None:
        """Drop what everybody has had."""
        slowest = min(self._readers.values(), default=self._first + len(self._kept))
        while self._kept and self._first < slowest:
            self._kept.popleft()
            self._first += 1
        self._lock.notify_all()

    def _leave(self, reader: int) -> None:
        with self._lock:
            self._readers.pop(reader, None)
            self._forget()
            last = self.is_over and not self._making
        if last and self._source is not None:
            self._source.close()  # type: ignore[attr-defined]


def _key(ticket: Ticket) -> str:
    """Name what jobs must agree on to share it: everything but where they are in the epoch."""
    words = ticket.words()
    return json.dumps({**words, "position": ticket.position.epoch}, sort_keys=True)
