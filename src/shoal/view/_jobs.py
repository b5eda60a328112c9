"""Work in the background, of which somebody wants to see how far it is, and which may not be wanted any more."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Condition, Thread

from shoal.errors import ShoalError

__all__ = ["Job", "Stopped"]


class Stopped(Exception):  # noqa: N818 - it is no error
    """Nobody wants the rest."""


class Job:
    """Runs a function in a thread of its own; the function says `tick` now and then.

    >>> job = Job(lambda job: job.tick())
    >>> job.start()
    >>> job.wait_until_done(10), job.done, job.error
    (True, True, '')
    """

    def __init__(self, work: Callable[[Job], None]) -> None:
        self._work = work
        self._changed = Condition()
        self._stop = self._started = False
        self.ticks = 0
        """Grows with all that becomes known."""
        self.done = False
        self.stopped = False
        self.error = ""

    def start(self) -> None:
        """Begin, if it has not begun yet."""
        with self._changed:
            if self._started:
                return
            self._started = True
        Thread(target=self._run, name="shoal-view-job", daemon=True).start()

    def stop(self) -> None:
        """Let it end at its next tick."""
        self._stop = True

    def tick(self) -> None:
        """Say that something became known; ends the function if nobody wants the rest."""
        if self._stop:
            raise Stopped
        with self._changed:
            self.ticks += 1
            self._changed.notify_all()

    def wait(self, after: int, seconds: float) -> None:
        """Wait until more is known than after so many ticks."""
        with self._changed:
            self._changed.wait_for(lambda: self.done or self.ticks > after, seconds)

    def wait_until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds, or the job is done."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self.done or holds(), seconds))

    def wait_until_done(self, seconds: float) -> bool:
        """Wait for the end."""
        return self.wait_until(lambda: False, seconds)

    def _run(self) -> None:
        try:
            self._work(self)
        except Stopped:
            self.stopped = True
        except (ShoalError, OSError, ValueError) as error:
            self.error = str(error)
        finally:
            with self._changed:
                self.done = True
                self.ticks += 1
                self._changed.notify_all()


class Pace:
    """Lets something be done no more often than every so many seconds.

    >>> pace = Pace(60.0)
    >>> pace.due(), pace.due()
    (True, False)
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._next = seconds, 0.0

    def due(self) -> bool:
        """Tell whether it is time again."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True
