"""Runs that somebody still holds when the program ends.

They end then, while everything that ending takes is there. What holds them is taken apart later, module by module, and
a generator that is closed in the middle of that finds names that mean nothing any more.
"""

from __future__ import annotations

import atexit
import weakref
from functools import cache
from typing import Protocol

__all__ = ["ends_with_program"]


class Closable(Protocol):
    """Something that can be closed, also twice."""

    def close(self) -> None:
        """Let go of everything."""


def ends_with_program(run: Closable) -> None:
    """Close a run at the end of the program, if it is still there."""
    _open().add(run)


@cache
def _open() -> weakref.WeakSet[Closable]:
    runs: weakref.WeakSet[Closable] = weakref.WeakSet()
    atexit.register(_close, runs)
    return runs


def _close(runs: weakref.WeakSet[Closable]) -> None:
    for run in list(runs):
        run.close()
