"""Who hangs: workers tell what they do, and whoever started them notices when nothing moves any more."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shoal.abc import Gang, Member
from shoal.errors import WorkerHangError

__all__ = ["Beat", "beating", "watched"]

#: Seconds between two signs of life.
_BEAT = 2.0
_FRAMES = 3


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life."""

    step: int
    """How far the worker is."""
    moves: int
    """How often it has moved: steps, and batches of an evaluation."""
    where: str
    """What its main thread does."""


class _Progress:
    """How far a worker is, as its loop says."""

    step = moves = 0

    def move(self, step: int | None = None) -> None:
        """Be further than before."""
        self.moves += 1
        self.step = self.step if step is None else step


@contextmanager
def beating(member: Member) -> Iterator[_Progress]:
    """Let a thread give signs of life, for as long as the block runs."""
    progress, over, thread = _Progress(), threading.Event(), threading.current_thread().ident

    def beat() -> None:
        while not over.wait(_BEAT):
            frame = sys._current_frames().get(thread or 0)
            stack = traceback.extract_stack(frame)[-_FRAMES:] if frame is not None else []
            where = " > ".join(f"{each.name} ({each.filename.rpartition('/')[2]}:{each.lineno})" for each in stack)
            member.report(Beat(progress.step, progress.moves, where))

    beater = threading.Thread(target=beat, name="shoal-beat", daemon=True)
    beater.start()
    try:
        yield progress
    finally:
        over.set()


def watched(gang: Gang, size: int, seconds: float) -> Iterable[Any]:
    """Give what workers report, without signs of life; end the gang if nobody has moved for some seconds."""
    seen: dict[int, tuple[Beat, float]] = {}
    lock, over = threading.Lock(), threading.Event()
    hang: list[str] = []

    def look() -> None:
        while not over.wait(min(seconds / 4, 5.0)):
            with lock:
                late = len(seen) == size and all(time.monotonic() - since > seconds for _, since in seen.values())
                if late:
                    hang.append(_described(seen, seconds))
            if late:
                gang.close()
                return

    threading.Thread(target=look, name="shoal-watch", daemon=True).start()
    try:
        for rank, told in gang.reports():
            if not isinstance(told, Beat):
                yield rank, told
                continue
            with lock:
                before = seen.get(rank)
                moved = before is None or before[0].moves != told.moves
                seen[rank] = told, time.monotonic() if moved or before is None else before[1]
    finally:
        over.set()
    if hang:
        raise WorkerHangError(hang[0])


def _described(seen: dict[int, tuple[Beat, float]], seconds: float) -> str:
    ranks = (f"rank {rank} after step {beat.step} in {beat.where}" for rank, (beat, _) in sorted(seen.items()))
    return f"no worker has moved for {seconds:g} seconds: {'; '.join(ranks)}"
