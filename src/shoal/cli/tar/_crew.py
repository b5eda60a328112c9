"""Work on many samples at once, in threads that mostly wait for others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

__all__ = ["mapped"]

T = TypeVar("T")
R = TypeVar("R")

#: Items under way for each worker: one is worked on, one waits for a worker or for those before it.
_AHEAD = 2


def mapped(
    function: Callable[[T], R], items: Iterable[T], *, workers: int, ordered: bool, end: Callable[[], object]
) -> Generator[R, None, None]:
    """Give the results of a function, as they come or in the order of the items; few are ever under way.

    The items are drawn in the thread of the caller. When it stops early, or the function raises, ``end`` is called to
    end what is being worked on, and waited for.

    >>> list(mapped(str, range(5), workers=2, ordered=True, end=lambda: None))
    ['0', '1', '2', '3', '4']
    """
    under_way: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="tarproc")
    try:
        for item in items:
            under_way.append(pool.submit(function, item))
            if len(under_way) >= _AHEAD * workers:
                yield from _done(under_way, ordered=ordered)
        while under_way:
            yield from _done(under_way, ordered=ordered)
    except BaseException:
        end()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _done(under_way: deque[Future[R]], *, ordered: bool) -> Iterator[R]:
    """Wait for the first result, by place or by time, and take what else has come meanwhile."""
    if ordered:
        yield under_way.popleft().result()
        return
    done, _ = wait(under_way, return_when=FIRST_COMPLETED)
    for future in [future for future in under_way if future in done]:
        under_way.remove(future)
        yield future.result()
