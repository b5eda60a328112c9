"""How often, and after what pause, a broken transfer is taken up again."""

from __future__ import annotations

import random
import time

from shoal.errors import UrlError
from shoal.files._urls import display, redact
from shoal.settings import Settings, current

__all__ = ["Attempts", "Broken", "pause", "safe_cause"]

_LONGEST_PAUSE = 30.0
#: A server may ask for more patience than our own pauses, but not for any amount of it.
_LONGEST_WAIT = 60.0


class Broken(Exception):  # noqa: N818 - a state of a transfer; it never leaves this package
    """A transfer broke in a way that another attempt may mend."""

    def __init__(self, cause: str, *, wait: float = 0.0) -> None:
        super().__init__(cause)
        self.wait = wait


def pause(failures: int, backoff: float, jitter: float = 0.0, wait: float = 0.0) -> float:
    """Compute the seconds before the next attempt.

    ``jitter`` in [0, 1) spreads clients that broke together; ``wait`` is what the server asked for.

    >>> pause(1, 0.25), pause(3, 0.25), pause(99, 0.25), pause(1, 0.25, wait=7)
    (0.25, 1.0, 30.0, 7.0)
    """
    own = min(backoff * 2 ** min(failures - 1, 32), _LONGEST_PAUSE) * (1 + jitter / 2)
    return float(max(own, min(wait, _LONGEST_WAIT)))


class Attempts:
    """Counts the failures of one transfer, waits between them, and gives up with everything that is known."""

    def __init__(self, url: str, verb: str, settings: Settings | None = None) -> None:
        self._url = url
        self._verb = verb
        self._settings = current() if settings is None else settings
        # A generator of its own: waiting must not disturb the numbers of a program that seeded `random`.
        self._random = random.SystemRandom()
        self.failures = 0

    def progress(self) -> None:
        """Forget earlier failures: bytes arrived."""
        self.failures = 0

    def failed(self, broken: Broken, position: int | None = None) -> None:
        """Wait before another attempt, or raise when there were enough of them."""
        self.failures += 1
        if self.failures > self._settings.retries:
            place = "" if position is None else f" at byte {position}"
            raise UrlError(
                f"could not {self._verb} {display(self._url)}{place}: gave up after {self.failures} attempts without "
                f"progress; the last one: {redact(str(broken))}",
                url=display(self._url),
            ) from safe_cause(broken.__cause__)
        time.sleep(pause(self.failures, self._settings.backoff, self._random.random(), broken.wait))


def safe_cause(error: BaseException | None) -> BaseException | None:
    """Give the error back for chaining, unless a traceback with it would show a secret."""
    seen: BaseException | None = error
    while seen is not None:
        if redact(str(seen)) != str(seen):
            return None
        seen = seen.__cause__ or seen.__context__
    return error
