"""How a training goes: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from shoal.learn._history import History

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["EpochEnd", "Meter", "Pace", "shown"]

#: Seconds over which speed is measured, and between two lines in a log.
_WINDOW = 10.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How far a training is, as its first worker tells."""

    epoch: int
    """The one that is under way; the first is 1."""
    epochs: int
    step: int
    """Steps of this epoch that are done."""
    steps: int | None
    """Those that it has, if that is known."""
    taken: int
    """Steps that are done in all."""
    ahead: int | None
    """Steps that are to come until the end."""
    rows: int
    """Rows that all workers have learnt from, since they began."""
    loss: float
    """The mean over this epoch, of the first worker's rows."""


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """An epoch has ended."""

    stats: dict[str, Any]


@dataclass(slots=True)
class Meter:
    """Measures speed over the last seconds, and not since the beginning."""

    window: float = _WINDOW
    _seen: deque[tuple[float, Pace]] = field(default_factory=deque)

    def described(self, now: float, pace: Pace) -> str:
        """Say how a training goes.

        >>> meter = Meter()
        >>> meter.described(0.0, Pace(2, 3, 1, 10, 11, 19, 100, 0.5))
        'epoch 2/3  step 1/10  loss 0.5000'
        >>> meter.described(2.0, Pace(2, 3, 5, 10, 15, 15, 500, 0.25))
        'epoch 2/3  step 5/10  loss 0.2500  200 samples/s  0:00:07 left'
        """
        words = [f"epoch {pace.epoch}/{pace.epochs}"]
        words += [f"step {pace.step}" + (f"/{pace.steps}" if pace.steps else "")]
        words += [f"loss {pace.loss:.4f}", *self._speed(now, pace)]
        return "  ".join(words)

    def _speed(self, now: float, pace: Pace) -> Iterator[str]:
        if self._seen and pace.taken < self._seen[-1][1].taken:
            self._seen.clear()  # workers began again at a checkpoint
        self._seen.append((now, pace))
        while len(self._seen) > 2 and now - self._seen[0][0] > self.window:
            self._seen.popleft()
        since, before = self._seen[0]
        seconds, steps = now - since, pace.taken - before.taken
        if seconds > 0 and steps:
            yield f"{(pace.rows - before.rows) / seconds:,.0f} samples/s"
            if pace.ahead is not None:
                yield f"{_clock(pace.ahead * seconds / steps)} left"


class _Display(Protocol):
    """Shows what is told."""

    def paced(self, pace: Pace) -> None:
        """Show how far it is."""

    def ended(self, stats: Mapping[str, Any]) -> None:
        """Show what came of an epoch."""


def shown(reports: Iterable[tuple[int, Any]], progress: bool | None) -> None:
    """Follow what workers report, and show it: on a terminal, or wherever it is wanted."""
    with _display(progress) as display:
        for _, told in reports:
            if isinstance(told, Pace):
                display.paced(told)
            elif isinstance(told, EpochEnd):
                display.ended(told.stats)


@contextmanager
def _display(progress: bool | None) -> Iterator[_Display]:
    terminal = sys.stderr.isatty()
    if not (terminal if progress is None else progress):
        yield _Quiet()
    elif not terminal:
        yield _Lines()
    else:
        with _bars() as bars:
            yield _Bar(bars)


class _Quiet:
    """Shows nothing."""

    def paced(self, pace: Pace) -> None:
        """Do nothing."""

    def ended(self, stats: Mapping[str, Any]) -> None:
        """Do nothing."""


class _Lines:
    """Writes a line now and then, and one for each epoch."""

    def __init__(self) -> None:
        self._meter, self._last = Meter(), time.monotonic()

    def paced(self, pace: Pace) -> None:
        """Write a line, unless there was one just now."""
        now = time.monotonic()
        line = self._meter.described(now, pace)
        if now - self._last >= _WINDOW:
            self._write(now, line)

    def ended(self, stats: Mapping[str, Any]) -> None:
        """Write what came of an epoch."""
        self._write(time.monotonic(), _line(stats))

    def _write(self, now: float, line: str) -> None:
        self._last = now
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


class _Bar:
    """Draws a bar for the epoch that is under way; what came of those before stands above it."""

    def __init__(self, bars: Progress) -> None:
        self._bars, self._meter = bars, Meter()
        self._task = bars.add_task("", total=None, visible=False)

    def paced(self, pace: Pace) -> None:
        """Move the bar."""
        words = self._meter.described(time.monotonic(), pace)
        self._bars.update(self._task, total=pace.steps, completed=pace.step, description=words, visible=True)

    def ended(self, stats: Mapping[str, Any]) -> None:
        """Write what came of an epoch."""
        self._bars.console.print(_line(stats), markup=False, highlight=False)
        self._bars.update(self._task, visible=False)


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    words = TextColumn("{task.description}", markup=False)
    return Progress(BarColumn(bar_width=20), words, console=Console(stderr=True), transient=True)


def _line(stats: Mapping[str, Any]) -> str:
    return repr(History([dict(stats)]))


def _clock(seconds: float) -> str:
    """Tell a time in hours, minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
