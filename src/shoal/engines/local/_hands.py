"""Who does the tasks of the local engine: threads of this process, which have processes where tasks hold the lock.

Numpy, pandas and Arrow let go of the interpreter's lock for most of what they do; then threads are quicker, because
nothing has to be sent and nothing has to start. Plain Python holds it, and threads would do one thing at a time. Which
of both a task is can be seen: while several threads are at work, they use several processors, or one.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from shoal._ending import ends_with_program
from shoal.engines.local._remote import Remote
from shoal.errors import PlanError, StateError

__all__ = ["Gauge", "Hands"]

#: Seconds in which several threads were at work, after which it is seen whether they hindered each other.
_LOOKED = 0.3
#: Processors that threads use which wait for one lock: one, and a little for what is done without it. On a busy machine
#: who wakes up to ask for the lock waits for a processor, too: up to 1.5 were seen with eight programs on two.
_ONE = (0.75, 1.7)
#: Seconds after which it is known what the tasks are like, and nobody looks any more.
_KNOWN = 30.0
_MODES = ("auto", "thread", "process")
_PATIENCE = 1.0

#: What a task is called with: what is there, and what is made of arguments that may still be on their way.
Work = Callable[[Callable[..., Any]], Any]


class Gauge:
    """Sees whether threads that work at the same time want more than one processor.

    >>> gauge = Gauge()
    >>> for second in (0.0, 0.5, 1.0):
    ...     gauge.changed(+1, now=second, cpu=second)
    >>> gauge.hindered
    True
    """

    def __init__(self) -> None:
        self._running = 0
        self._since = self._before = 0.0
        self._wall = self._cpu = 0.0

    def changed(self, by: int, *, now: float, cpu: float) -> None:
        """Note that a task began or ended."""
        if self._running > 1:
            self._wall += now - self._since
            self._cpu += cpu - self._before
        self._running += by
        self._since, self._before = now, cpu

    @property
    def is_settled(self) -> bool:
        """Whether enough was seen."""
        return self._wall > _KNOWN

    @property
    def hindered(self) -> bool:
        """Whether tasks wait for each other, as far as one has seen."""
        return self._wall >= _LOOKED and _ONE[0] <= self._cpu / self._wall <= _ONE[1]


class Hands:
    """Threads that do one job after the other, in the order in which these come.

    A job may wait for the results of jobs that came before it, so there is always one that can go on.
    """

    def __init__(self, workers: int, mode: str = "auto") -> None:
        if mode not in _MODES:
            raise PlanError(f"mode={mode!r}; known are {', '.join(map(repr, _MODES))}")
        self.workers, self.mode = workers, mode
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._remotes: list[Remote[Any, Any]] = []
        self._gauge, self._lock = Gauge(), threading.Lock()
        self._closed = False
        ends_with_program(self)

    @property
    def in_processes(self) -> bool:
        """Whether the next task is sent to a process."""
        return self.mode == "process"

    def submit(self, work: Work) -> Future[Any]:
        """Do a piece of work when a hand is free; nobody does it if the result is not wanted any more by then."""
        result: Future[Any] = Future()
        if self._closed:
            result.set_exception(_gone())
            return result
        self._jobs.put(_Job(work, weakref.ref(result)))
        with self._lock:
            if len(self._threads) < self.workers:
                thread = threading.Thread(target=self._serve, name="shoal-task", daemon=True)
                self._threads.append(thread)
                thread.start()
        return result

    def pids(self) -> list[int]:
        """List the processes."""
        return [pid for remote in list(self._remotes) if (pid := remote.pid) is not None]

    def close(self) -> None:
        """Give up what is not done, and send everybody home."""
        if self._closed:
            return
        self._closed = True
        for remote in list(self._remotes):
            remote.close()
        for _ in self._threads:
            self._jobs.put(None)
        deadline = time.monotonic() + _PATIENCE
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(deadline - time.monotonic(), 0))

    def _serve(self) -> None:
        remote: Remote[Any, Any] = Remote(_perform, name="a task")
        self._remotes.append(remote)
        try:
            while (job := self._jobs.get()) is not None:
                self._do(job, remote)
                del job  # what it refers to is not to be kept while waiting for the next
        finally:
            remote.close()

    def _do(self, job: _Job, remote: Remote[Any, Any]) -> None:
        result = job.result()
        if result is None or not result.set_running_or_notify_cancel():
            return
        if self._closed:
            result.set_exception(_gone())
            return
        try:
            result.set_result(job.work(lambda *call: self._called(remote, call)))
        except BaseException as error:  # whoever waits for the result is told
            result.set_exception(_gone() if self._closed else error)

    def _called(self, remote: Remote[Any, Any], call: Sequence[Any]) -> Any:
        if self.in_processes:
            return remote(call)
        if self.mode == "thread" or self.workers == 1 or self._gauge.is_settled:
            return _perform(call)
        self._changed(+1)
        try:
            return _perform(call)
        finally:
            self._changed(-1)
            if self._gauge.hindered:
                self.mode = "process"

    def _changed(self, by: int) -> None:
        with self._lock:
            # A thread that waits for a processor, because others have them all, would use it; one that waits for the
            # lock would not. Threads that a library has for itself count as well: tasks may only wait for them.
            wanted = time.process_time() + sum(map(_queued, os.listdir("/proc/self/task")))
            self._gauge.changed(by, now=time.perf_counter(), cpu=wanted)


class _Job:
    __slots__ = ("result", "work")

    def __init__(self, work: Work, result: weakref.ref[Future[Any]]) -> None:
        self.work, self.result = work, result


def _queued(thread: str) -> float:
    """Give the seconds that a thread was ready to run and waited for a processor; 0 where the system does not tell."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _perform(call: Sequence[Any]) -> Any:
    """Do a task, here or in a process; a message goes back as memory that need not be copied into a pickle."""
    task, *arguments = call
    done = task(*arguments)
    return [memoryview(part) for part in done] if isinstance(done, list) else memoryview(done)


def _gone() -> StateError:
    return StateError("the engine was shut down, and what it held is gone with it")
