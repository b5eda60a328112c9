"""Read several tars at once, in threads, into one stream.

Threads, because what takes long in reading tars is waiting (for a disk, a server, a command) and decompression, and
neither holds the interpreter; samples would have to be copied from process to process.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeAlias, TypeVar

__all__ = ["ARRIVAL", "INPUTS", "TURNS", "gathered"]

T = TypeVar("T")
R = TypeVar("R")

#: Orders: as samples come; a few from each of the inputs that are read at once, in turn, which is the same each time;
#: one input after the other.
ARRIVAL, TURNS, INPUTS = "arrival", "turns", "inputs"

#: Chunks that wait for the one who uses them, for each thread.
_WAITING = 4
_CHUNK_SAMPLES = 64
_CHUNK_BYTES = 2**20
#: Seconds between two looks at whether anybody still wants what is read, and until threads are left to themselves.
_LOOK, _PATIENCE = 0.05, 2.0


#: Some samples; None at the end of an input; what went wrong with it.
_Item: TypeAlias = "list[R] | Exception | None"


def gathered(
    inputs: Sequence[T], read: Callable[[T], Iterator[R]], size: Callable[[R], int], *, workers: int, order: str
) -> Generator[R, None, None]:
    """Give the samples of all inputs in one of the orders; few samples are ever held.

    ``read`` gives the samples of an input, and ``size`` the bytes of a sample.

    >>> list(gathered(["ab", "c", "de"], iter, len, workers=2, order=INPUTS))
    ['a', 'b', 'c', 'd', 'e']
    """
    readers = _Readers(inputs, lambda one: _chunks(read(one), size), min(workers, len(inputs)), order)
    try:
        yield from readers.samples()
    finally:
        readers.close()


class _Readers(Generic[T, R]):
    """Threads, each of which reads one input after the other."""

    def __init__(self, inputs: Sequence[T], read: Callable[[T], Iterator[list[R]]], workers: int, order: str) -> None:
        together: queue.Queue[_Item[R]] = queue.Queue(_WAITING * workers)
        self._lanes = [together if order == ARRIVAL else queue.Queue(_WAITING) for _ in inputs]
        self._abreast = workers if order == TURNS else 1
        self._waiting = deque(zip(inputs, self._lanes, strict=True))
        self._read = read
        self._closed = threading.Event()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def samples(self) -> Iterator[R]:
        """Give samples until each input has ended. In a lane that all share, any end counts for any input.

        As many lanes as there are threads are emptied in turn, or one. Inputs are begun in their order, so whoever
        fills a lane that is waited for is never held up by one that is not.
        """
        later = iter(self._lanes)
        lanes = deque(islice(later, self._abreast))
        while lanes:
            lane = lanes.popleft()
            item = lane.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                lanes.extend(islice(later, 1))
            else:
                yield from item
                lanes.append(lane)

    def close(self) -> None:
        """Let the threads end. One that waits for a server or a command ends with the process."""
        self._closed.set()
        latest = time.monotonic() + _PATIENCE
        for thread in self._threads:
            thread.join(max(latest - time.monotonic(), 0))

    def _work(self) -> None:
        while not self._closed.is_set():
            try:
                taken, lane = self._waiting.popleft()
            except IndexError:
                return
            self._pass_on(taken, lane)

    def _pass_on(self, taken: T, lane: queue.Queue[_Item[R]]) -> None:
        try:
            for chunk in self._read(taken):
                if not self._put(lane, chunk):
                    return
            self._put(lane, None)
        except Exception as error:
            self._put(lane, error)

    def _put(self, lane: queue.Queue[_Item[R]], item: _Item[R]) -> bool:
        """Wait for room; tell whether anybody still wants it."""
        while not self._closed.is_set():
            try:
                lane.put(item, timeout=_LOOK)
            except queue.Full:
                continue
            return True
        return False


def _chunks(samples: Iterable[R], size: Callable[[R], int]) -> Iterator[list[R]]:
    """Cut a stream into lists, since handing each sample over by itself would cost more than reading it."""
    chunk: list[R] = []
    weight = 0
    try:
        for sample in samples:
            chunk.append(sample)
            weight += size(sample)
            if len(chunk) >= _CHUNK_SAMPLES or weight >= _CHUNK_BYTES:
                yield chunk
                chunk, weight = [], 0
    except Exception:
        if chunk:  # what was read before the damaged place goes before the error
            yield chunk
        raise
    if chunk:
        yield chunk
