"""Blocks through work, in order, several at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from shoal._malloc import keep_freed_memory
from shoal.abc import Engine, Stream
from shoal.abc.engine import In, Out
from shoal.errors import PlanError

__all__ = ["LocalEngine"]


class LocalEngine(Engine):
    """Runs work in threads: decoding, decompression and numpy let go of the interpreter's lock.

    >>> stream = LocalEngine().stream(len, workers=2)
    >>> stream.put("abc"); stream.put("")
    >>> stream.get(), stream.get(), len(stream)
    (3, 0, 0)
    >>> stream.close()
    """

    def stream(self, work: Callable[[In], Out], *, workers: int | str) -> Stream[In, Out]:
        """Start threads, or none."""
        threads = _threads(workers)
        keep_freed_memory()
        return _Threads(work, threads) if threads else _Inline(work)


def _threads(workers: int | str) -> int:
    if workers == "auto":
        return os.cpu_count() or 1
    if not isinstance(workers, int) or workers < 0:
        raise PlanError(f'workers={workers!r}; it is a number of threads, 0 for none, or "auto"')
    return workers


class _Inline(Stream[In, Out]):
    """Does the work when its result is asked for."""

    capacity = 1

    def __init__(self, work: Callable[[In], Out]) -> None:
        self._work = work
        self._waiting: deque[In] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, block: In) -> None:
        self._waiting.append(block)

    def get(self) -> Out:
        return self._work(self._waiting.popleft())

    def close(self) -> None:
        self._waiting.clear()


class _Threads(Stream[In, Out]):
    """Does the work in threads, two blocks for each ahead of the consumer."""

    def __init__(self, work: Callable[[In], Out], threads: int) -> None:
        self._work = work
        self.capacity = 2 * threads + 1
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="shoal")
        self._pending: deque[Future[Out]] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def put(self, block: In) -> None:
        self._pending.append(self._pool.submit(self._work, block))

    def get(self) -> Out:
        return self._pending.popleft().result()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pending.clear()
