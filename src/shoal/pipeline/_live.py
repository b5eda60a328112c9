"""A line on the terminal that says how a run is doing."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from shoal.pipeline._meter import Meter

__all__ = ["LiveLine"]

_EVERY = 0.5


class LiveLine:
    """Rewrites its line twice a second on a terminal; elsewhere it says once how the run was."""

    def __init__(self, meter: Meter, file: TextIO | None = None) -> None:
        self._meter, self._file = meter, file or sys.stderr
        self._live = self._file.isatty()
        self._next = time.perf_counter() + _EVERY

    def tick(self) -> None:
        """Rewrite the line if it is time to."""
        if self._live and time.perf_counter() >= self._next:
            self._next = time.perf_counter() + _EVERY
            self._file.write(f"\r{self._line()}\x1b[K")
            self._file.flush()

    def close(self) -> None:
        """Leave the last state of the line standing."""
        self._file.write(f"\r{self._line()}\x1b[K\n" if self._live else f"{self._line()}\n")
        self._file.flush()

    def _line(self) -> str:
        line = self._meter.statistics().line()
        return line[: shutil.get_terminal_size().columns - 1] if self._live else line
