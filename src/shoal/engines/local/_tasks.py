"""A function over many tasks at once, results as they come: for work on whole shards."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from queue import SimpleQueue
from typing import Any

import cloudpickle

from shoal.engines._pickling import shipped
from shoal.errors import PlanError
from shoal.settings import processors

__all__ = ["distributed_map_unordered"]

_MODES = ("auto", "thread", "process")


def distributed_map_unordered(
    function: Callable[..., Any], tasks: Iterable[Any], *, workers: int | None = None, mode: str = "auto"
) -> list[Any]:
    """Call a function on every task, several at a time, and give the results in the order in which they are done.

    A task that is a tuple becomes the arguments of the call. ``mode="process"`` runs processes of their own, which may
    start others in turn; the function, lambdas and those of a script or notebook included, is sent to them.
    ``mode="thread"`` stays in this process, for functions that use what cannot be sent, such as a
    `multiprocessing.Pool`, or that wait more than they compute. ``"auto"`` takes processes where the function can be
    sent, else threads.

    The first failure is raised, with the task in a note, when the calls that are under way have ended; no others begin.

    >>> sorted(distributed_map_unordered(lambda a, b: a * b, [(1, 2), (3, 4)], mode="thread"))
    [2, 12]
    """
    if mode not in _MODES:
        raise PlanError(f"mode={mode!r}; known are {', '.join(_MODES)}")
    if workers is not None and workers < 1:
        raise PlanError(f"workers={workers}; at least one is needed")
    count = workers or processors()
    sent = None if mode == "thread" else _shipped(function, must=mode == "process")
    if sent is None:
        with ThreadPoolExecutor(count, thread_name_prefix="shoal-task") as threads:
            return _run(threads, count, lambda pool, task: pool.submit(_call, function, task), tasks)
    # Never a fork of this process: with threads in it, a fork may hang. And not daemons: those may have no children.
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as processes:
        packed = _run(
            processes,
            count,
            lambda pool, task: pool.submit(_call_shipped, sent, cloudpickle.dumps(task)),
            tasks,
        )
    return [cloudpickle.loads(result) for result in packed]


def _run(
    pool: Executor, workers: int, submit: Callable[[Executor, Any], Future[Any]], tasks: Iterable[Any]
) -> list[Any]:
    """Keep the workers busy, with a few tasks in hand, until all are done or one fails."""
    pending: dict[Future[Any], Any] = {}
    done: SimpleQueue[Future[Any]] = SimpleQueue()
    results: list[Any] = []
    try:
        for task in tasks:
            future = submit(pool, task)
            pending[future] = task
            future.add_done_callback(done.put)
            if len(pending) >= 2 * workers:
                results.append(_next_result(done, pending))
        while pending:
            results.append(_next_result(done, pending))
    except BaseException:
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    return results


def _next_result(done: SimpleQueue[Future[Any]], pending: dict[Future[Any], Any]) -> Any:
    future = done.get()
    task = pending.pop(future)
    try:
        return future.result()
    except BaseException as error:
        error.add_note(f"in task {task!r:.300}")
        if isinstance(error, BrokenProcessPool):
            error.add_note(
                "a worker process died. A script that starts processes needs its calls under "
                'if __name__ == "__main__":, or mode="thread"'
            )
        raise


def _shipped(function: Callable[..., Any], *, must: bool) -> bytes | None:
    """Pack a function for another process, or tell that it cannot be done."""
    try:
        return shipped(function, getattr(function, "__qualname__", repr(function)))
    except PlanError:
        if must:
            raise
        return None


def _call(function: Callable[..., Any], task: Any) -> Any:
    return function(*task) if isinstance(task, tuple) else function(task)


def _call_shipped(packed_function: bytes, packed_task: bytes) -> bytes:
    result: bytes = cloudpickle.dumps(_call(_unpacked(packed_function), cloudpickle.loads(packed_task)))
    return result


@lru_cache(maxsize=1)
def _unpacked(packed_function: bytes) -> Any:
    return cloudpickle.loads(packed_function)
