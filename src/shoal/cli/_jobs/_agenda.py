"""Which shard is next, and when. Nothing here runs anything or looks at a clock."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Agenda", "Turn"]

#: Seconds that nobody waits longer than before an attempt.
_LONGEST = 300.0


@dataclass(frozen=True, slots=True, order=True)
class Turn:
    """An attempt at a shard."""

    due: float
    """The time before which it does not begin."""
    number: int
    """The place of the shard in the list of all."""
    shard: str
    attempt: int = 1


class Agenda:
    """The shards that are still to be done; one that failed comes again, later each time, so often at most.

    >>> agenda = Agenda(["a", "b"], retries=1, backoff=2.0)
    >>> first, second = agenda.take(0.0), agenda.take(0.0)
    >>> agenda.failed(first, now=10.0), agenda.take(10.0), agenda.wait(10.5)
    (2.0, None, 1.5)
    >>> again = agenda.take(12.0)
    >>> again.shard, again.attempt, agenda.failed(again, now=13.0), agenda.wait(13.0)
    ('a', 2, None, None)
    """

    def __init__(self, shards: Iterable[str], *, retries: int = 0, backoff: float = 1.0) -> None:
        self._turns = [Turn(0.0, number, shard) for number, shard in enumerate(shards)]
        self._retries, self._backoff = retries, backoff

    def take(self, now: float) -> Turn | None:
        """Give the next attempt whose time has come; fresh shards go before those that failed."""
        return heapq.heappop(self._turns) if self._turns and self._turns[0].due <= now else None

    def wait(self, now: float) -> float | None:
        """Tell how many seconds it takes until an attempt is due; None if there is none left."""
        return max(self._turns[0].due - now, 0.0) if self._turns else None

    def failed(self, turn: Turn, now: float) -> float | None:
        """Note that an attempt failed; give the seconds until the next one, or None if that was the last."""
        if turn.attempt > self._retries:
            return None
        pause = min(self._backoff * 2.0 ** (turn.attempt - 1), _LONGEST)
        heapq.heappush(self._turns, Turn(now + pause, turn.number, turn.shard, turn.attempt + 1))
        return pause
