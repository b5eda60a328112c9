"""Do something with many shards, several at once, and end soon when somebody presses Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Event
from typing import TypeVar

from shoal.cli._progress import watched
from shoal.cli.tar._crew import mapped
from shoal.settings import processors

__all__ = ["Stop", "at_once"]

T = TypeVar("T")
R = TypeVar("R")


class Stop:
    """Tells those who work on shards that nobody waits for the rest."""

    def __init__(self) -> None:
        self._event = Event()

    def now(self) -> None:
        """Ask all to end."""
        self._event.set()

    def check(self) -> None:
        """End, if asked to."""
        if self._event.is_set():
            raise InterruptedError("nobody waits for this shard any more")


def at_once(function: Callable[[T, Stop], R], shards: Iterable[T], workers: int | None) -> list[R]:
    """Give what a function makes of each shard, in their order; it looks at its ``Stop`` now and then.

    >>> at_once(lambda url, stop: len(url), ["a.tar", "ab.tar"], workers=2)
    [5, 6]
    """
    stop, workers = Stop(), workers or processors()
    results = mapped(lambda shard: function(shard, stop), shards, workers=workers, ordered=True, end=stop.now)
    return list(watched(results, "read", "shards"))
