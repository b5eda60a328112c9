"""Workers that are killed in the middle of a training."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from shoal.learn import Callback

__all__ = ["KillAt"]


class KillAt(Callback):
    """Kills one worker after a step, the first time that it comes there; a file is left that says so."""

    def __init__(self, step: int, rank: int, mark: Path) -> None:
        self._step, self._rank, self._mark = step, rank, mark

    def after_step(self, step: int, loss: float) -> None:
        if step == self._step and self.run.rank == self._rank and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
