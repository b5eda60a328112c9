"""The embedded engine: threads of this process, and processes of its own for stages that hold the lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal._malloc import keep_freed_memory
from shoal.abc import Engine, Step, Stream
from shoal.engines.local._stream import CrewStream, InlineStream

__all__ = ["LocalEngine"]


class LocalEngine(Engine):
    """Runs steps in threads (decoding, decompression and numpy let go of the interpreter's lock) or in processes."""

    def stream(self, steps: Sequence[Step], *, memory: int, ahead: int = 1) -> Stream[Any, Any]:
        """Start the workers of all steps; steps without workers are done while one waits."""
        keep_freed_memory()
        if all(step.pool.bounds == (0, 0) for step in steps):
            return InlineStream(steps)
        return CrewStream(steps, memory, ahead)
