"""What runs in a nursery: a process that imports modules once, and forks workers that have them.

It has one thread: a fork of it holds no locks of others. What it has imported is shared until somebody writes to it.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from struct import Struct
from typing import Any

import cloudpickle

from shoal import settings
from shoal._sockets import exactly

__all__ = ["DIED", "KILL", "START", "attend", "receive", "send"]

#: Kinds of messages: start a worker, kill one, one has died.
START, KILL, DIED = range(3)
_HEAD = Struct("<BQ")
_STREAMS = 3


def send(end: socket.socket, kind: int, value: Any, descriptors: Sequence[int] = ()) -> None:
    """Send a message, and open files with it."""
    data = cloudpickle.dumps(value)
    socket.send_fds(end, [_HEAD.pack(kind, len(data))], descriptors)
    end.sendall(data)


def receive(end: socket.socket) -> tuple[int, Any, list[int]]:
    """Wait for a message, and the files that come with it; EOFError if nobody is there any more."""
    head, descriptors, _, _ = socket.recv_fds(end, _HEAD.size, _STREAMS)
    while 0 < len(head) < _HEAD.size:
        head += exactly(end, _HEAD.size - len(head))
    if not head:
        raise EOFError
    kind, size = _HEAD.unpack(head)
    return kind, cloudpickle.loads(exactly(end, size)), descriptors


def attend(descriptor: int, modules: Sequence[str]) -> None:
    """Be a nursery until whoever started it is gone; does not return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for name in modules:
        with suppress(ImportError):  # whoever needs it will say so
            import_module(name)
    gc.collect()
    gc.freeze()
    with suppress(EOFError, OSError):
        _Nurse(socket.socket(fileno=descriptor)).work()
    os._exit(0)


class _Nurse:
    """Forks workers, and tells when they have died."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._workers: dict[int, int] = {}  # pid by number; one that was waited for is out of it
        heard, told = socket.socketpair()
        for each in (heard, told):
            each.setblocking(False)
        self._heard = heard
        self._sockets = [end, heard, told]
        signal.signal(signal.SIGCHLD, _ignored)
        signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)

    def work(self) -> None:
        """Do what is asked for, until nobody asks any more."""
        selector = selectors.DefaultSelector()
        selector.register(self._end, selectors.EVENT_READ)
        selector.register(self._heard, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if self._heard in ready:
                self._heard.recv(4096)
                self._bury()
            if self._end in ready:
                kind, value, descriptors = receive(self._end)
                if kind == START:
                    self._start(value, descriptors, selector)
                elif value in self._workers:
                    os.kill(self._workers[value], signal.SIGKILL)

    def _start(self, asked: tuple[Any, ...], streams: list[int], selector: selectors.BaseSelector) -> None:
        number, environment, folder, path = asked
        pid = os.fork()
        if pid:
            self._workers[number] = pid
            for each in streams:
                os.close(each)
            return
        try:
            selector.close()
            _become(environment, folder, path, streams, self._sockets)
            from shoal.engines._member import serve_input

            serve_input()
        finally:
            os._exit(1)

    def _bury(self) -> None:
        for number, pid in list(self._workers.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self._workers[number]
                send(self._end, DIED, (number, os.waitstatus_to_exitcode(status)))


def _become(
    environment: dict[str, str], folder: str, path: list[str], streams: list[int], sockets: list[socket.socket]
) -> None:
    """Be a worker: with files, folder and environment of whoever asked for it, and nothing of the nurse's."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for each in sockets:
        each.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        if stream >= _STREAMS:
            os.close(stream)
    with suppress(OSError):  # it may be gone, and most need none
        os.chdir(folder)
    settings.set_environment(environment)
    sys.path[:] = path
    if "numpy" in sys.modules:  # all forks would draw the same numbers
        sys.modules["numpy"].random.seed()


def _ignored(number: int, frame: Any) -> None:
    """Hear of a signal without doing anything: the file that it wakes is enough."""
