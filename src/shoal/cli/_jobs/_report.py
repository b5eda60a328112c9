"""What is said about a run: a line for each shard in a log, a table that changes on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from shoal.cli._fields import printable
from shoal.cli._jobs._agenda import Turn
from shoal.cli._jobs._execute import Outcome
from shoal.cli._tool import say

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["LiveReport", "PlainReport", "Report", "reporting"]

#: Failures that the table shows, the last ones.
_SHOWN = 8


class Report(Protocol):
    """Hears of everything that happens in a run."""

    def begun(self, turn: Turn) -> None:
        """Hear that an attempt has begun."""

    def ended(self, turn: Turn, outcome: Outcome, pause: float | None) -> None:
        """Hear how an attempt ended, and in how many seconds there is another."""


@contextmanager
def reporting(total: int, before: int) -> Iterator[Report]:
    """Choose how a run of so many shards, of which some were finished before, is told."""
    if not sys.stderr.isatty():
        yield PlainReport(total, before)
        return
    from rich.console import Console
    from rich.live import Live

    report = LiveReport(total, before)
    with Live(get_renderable=report.table, console=Console(stderr=True)):
        yield report


class PlainReport:
    """Writes a line whenever a command has ended."""

    def __init__(self, total: int, before: int) -> None:
        self._total, self._finished = total, before

    def begun(self, turn: Turn) -> None:
        """Say nothing."""

    def ended(self, turn: Turn, outcome: Outcome, pause: float | None) -> None:
        """Say how."""
        if outcome.code == 0:
            self._finished += 1
            say(f"{turn.shard}: done in {outcome.seconds:.1f} s ({self._finished} of {self._total})")
        else:
            say(f"{turn.shard}: {told(turn, outcome, pause)}")


class LiveReport:
    """Shows what runs, how much is done and what failed last."""

    def __init__(self, total: int, before: int) -> None:
        self._total, self._finished, self._lost = total, before, 0
        self._since: dict[str, tuple[int, float]] = {}
        self._failures: list[tuple[str, str]] = []

    def begun(self, turn: Turn) -> None:
        """Show it."""
        self._since[turn.shard] = (turn.attempt, time.monotonic())

    def ended(self, turn: Turn, outcome: Outcome, pause: float | None) -> None:
        """Show it no longer; what went wrong with it is shown for a while."""
        del self._since[turn.shard]
        if outcome.code == 0:
            self._finished += 1
            self._failures = [failure for failure in self._failures if failure[0] != turn.shard]
            return
        self._lost += pause is None
        self._failures = [*self._failures, (turn.shard, told(turn, outcome, pause))][-_SHOWN:]

    def table(self) -> RenderableType:
        """Draw it."""
        from rich.table import Table
        from rich.text import Text

        lost = f", {self._lost} failed" if self._lost else ""
        table = Table(title=f"{self._finished} of {self._total} shards done{lost}", title_justify="left")
        for column in ("shard", "attempt", "seconds", ""):
            table.add_column(column)
        for shard, (attempt, begun) in list(self._since.items()):
            table.add_row(Text(shard), str(attempt), f"{time.monotonic() - begun:.0f}", "runs")
        for shard, words in self._failures:
            table.add_row(Text(shard), "", "", Text(words, style="red"))
        return table


def told(turn: Turn, outcome: Outcome, pause: float | None) -> str:
    """Tell how an attempt failed.

    >>> told(Turn(0.0, 0, "0007"), Outcome(1, 2.0, "disk full"), 4.0)
    'attempt 1 ended with 1: disk full; again in 4 s'
    """
    again = "given up" if pause is None else f"again in {pause:g} s"
    return f"attempt {turn.attempt} {printable(outcome.reason)}; {again}"
