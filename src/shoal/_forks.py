"""Processes that are forked from this one, and what they must not take for their own."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol

__all__ = ["Forks"]


class Forkable(Protocol):
    """Something that belongs to the process that made it."""

    def forked(self) -> None:
        """Be in a child that was forked: hold nothing that is the parent's."""


class Forks:
    """Tells things of a kind that they are in a fork. Nobody forks while the lock is held: one is just being made."""

    def __init__(self) -> None:
        self.lock: Any = threading.RLock()
        self.members: weakref.WeakSet[Forkable] = weakref.WeakSet()
        os.register_at_fork(before=self.lock.acquire, after_in_parent=self.lock.release, after_in_child=self._tell)

    def _tell(self) -> None:
        for member in list(self.members):
            member.forked()
        self.lock.release()
