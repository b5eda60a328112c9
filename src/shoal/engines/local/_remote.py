"""Work in a process of its own.

The process is a fresh interpreter, never a fork that goes on with our threads' locks, and it does not run the user's
script again. It has one socket and nothing else of this process, ends with it, and is killed when it is not needed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Generic

from shoal._forks import Forks
from shoal.abc.stream import In, Out
from shoal.engines._pickling import shipped
from shoal.engines.local._channel import Channel, Frame, Kind, Lost
from shoal.engines.local._interpreter import start_interpreter
from shoal.errors import PlanError, ShoalError, WorkerDiedError

__all__ = ["Remote", "RemoteClosed"]

_ATTEMPTS = 2  # a block that kills its worker twice is to blame
_PATIENCE = 1.0  # seconds


class RemoteClosed(Exception):  # noqa: N818  (never leaves the engine)
    """The call was given up, because the remote was closed."""


class Remote(Generic[In, Out]):
    """Does work in a process of its own; one call at a time.

    >>> remote = Remote(len, name="map(len)")
    >>> remote([1, 2, 3])
    3
    >>> remote.close()
    """

    def __init__(self, work: Callable[[In], Out], *, name: str) -> None:
        self.name = name
        self.deaths = 0
        """How many worker processes died in a call."""
        self._work = shipped(work, name)
        self._process: _Process | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._home = os.getpid()
        _forks().members.add(self)

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        process = self._process
        return None if process is None else process.pid

    def __call__(self, item: In) -> Out:
        """Do the work on one item, and raise what it raises.

        An item whose worker dies is given to a fresh one, once.
        """
        if os.getpid() != self._home:
            raise ShoalError(f"{self.name}: its worker belongs to the process {self._home}, and this is a fork of it")
        with self._lock:
            try:
                return self._unpacked(self._answer(item))
            finally:
                if self._closed:
                    self._let_go()

    def close(self) -> None:
        """Kill the process at once; a call that is under way in another thread ends with `RemoteClosed`."""
        if os.getpid() != self._home:
            return
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
        # A call that takes longer to notice, or that was interrupted by this one, lets go of the process at its end.
        if self._lock.acquire(timeout=_PATIENCE):
            try:
                self._let_go()
            finally:
                self._lock.release()

    def _answer(self, item: In) -> Frame:
        for attempt in range(1, _ATTEMPTS + 1):
            process = self._running()
            try:
                return process.ask(item)
            except Lost:
                exitcode = self._let_go(_PATIENCE)
                if self._closed:
                    raise RemoteClosed from None
                self.deaths += 1
                if attempt == _ATTEMPTS:
                    raise _died(self.name, process.pid, exitcode) from None
            except PlanError:  # the item could not be packed, and nothing was sent
                raise
            except BaseException:  # an answer may still be on its way, and would be taken for that of the next item
                self._let_go()
                raise
        raise AssertionError("unreachable")

    def _unpacked(self, frame: Frame) -> Out:
        value: Any = frame.unpack()
        if frame.kind is Kind.ERROR:
            try:
                raise value.revived()
            finally:
                del value  # or the error would keep itself alive
        result: Out = value
        return result

    def _running(self) -> _Process:
        if self._process is None and not self._closed:
            with _forks().lock:
                self._process = _Process(self._work)
        if self._closed or self._process is None:
            raise RemoteClosed
        return self._process

    def _let_go(self, patience: float = 0.0) -> int | None:
        """Leave nothing of the process behind; give its exit code."""
        process, self._process = self._process, None
        return None if process is None else process.end(patience)

    def forked(self) -> None:
        """In a child that was forked: hold nothing that the worker could take for its parent."""
        if self._process is not None:
            self._process.abandon()
            self._process = None


class _Process:
    """One life of a worker."""

    def __init__(self, work: bytes) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._popen = _start(theirs.fileno())
            except BaseException:
                ours.close()
                raise
        self._channel = Channel(ours)
        self._work: bytes | None = work

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ask(self, item: Any) -> Frame:
        packed = self._channel.pack(item)
        if self._work is not None:
            self._channel.send(Kind.WORK, self._channel.pack(self._work))
            self._work = None
        self._channel.send(Kind.ITEM, packed)
        return self._channel.receive()

    def kill(self) -> None:
        """Kill it and wake up who waits for it; from any thread."""
        self._popen.kill()
        with suppress(OSError):  # it may be closed already
            # A process that the worker started may hold the other end, so that its death alone would go unnoticed.
            self._channel.socket.shutdown(socket.SHUT_RDWR)

    def end(self, patience: float) -> int:
        """See it dead, by itself if it is about to be, and close everything."""
        try:
            code = self._popen.wait(patience)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            code = self._popen.wait()
        self._channel.close()
        return code

    def abandon(self) -> None:
        self._popen.returncode = 0  # it is not a child of this process, and no business of its
        self._channel.close()


@cache
def _forks() -> Forks:
    return Forks()


def _start(descriptor: int) -> subprocess.Popen[bytes]:
    program = f"from shoal.engines.local._worker import serve; serve({descriptor})"
    return start_interpreter(program, stdin=subprocess.DEVNULL, pass_fds=(descriptor,), close_fds=True)


def _died(name: str, pid: int, exitcode: int | None) -> WorkerDiedError:
    error = WorkerDiedError("", pid=pid, exitcode=exitcode)
    how = f"by {error.signal}" if error.signal else f"with exit code {exitcode}"
    text = f"{name}: the worker process {pid} ended {how} while it worked on a block; a second one, so it was given up"
    error.args = (text,)
    return error
