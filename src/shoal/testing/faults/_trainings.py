"""Workers that are killed in the middle of a training."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.learn import Callback
from shoal.testing.faults._processes import die_once

__all__ = ["KillAt"]


class KillAt(Callback):
    """Kills one worker after a step, the first time that it comes there; a file is left that says so.

    >>> KillAt(25, rank=1, mark="killed").step
    25
    """

    def __init__(self, step: int, rank: int, mark: str | os.PathLike[str]) -> None:
        self.step, self.rank, self.mark = step, rank, Path(mark)

    def after_step(self, step: int, loss: float) -> None:
        """Die, if it is time."""
        if step == self.step and self.run.rank == self.rank:
            die_once(self.mark)
