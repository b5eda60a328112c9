"""The process of a guest, as its host sees it: started, listened to, waited for and ended."""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path

from shoal._forks import Forks
from shoal.environments._environment import Environment
from shoal.environments._inside.channel import Channel, Lost
from shoal.errors import WorkerEnvironmentError

__all__ = ["Elapsed", "Process"]

_SERVE = Path(__file__).parent / "_inside" / "serve.py"
_PATIENCE = 1.0  # seconds for what is about to end by itself
_TAIL = 4096  # bytes of what a guest said that are kept


class Elapsed(Exception):  # noqa: N818  (never leaves the room)
    """There is no time left."""


class Process:
    """One life of a guest."""

    def __init__(self, environment: Environment, variables: dict[str, str], *, quiet: bool) -> None:
        with _forks().lock, contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            undo.callback(ours.close)
            lifeline, self._lifeline = os.pipe()
            undo.callback(os.close, self._lifeline)
            said, words = os.pipe()
            undo.callback(os.close, said)
            try:
                self._popen = _started(environment, (theirs.fileno(), lifeline), words, variables)
            finally:
                theirs.close()
                os.close(lifeline)
                os.close(words)
            undo.pop_all()
            self.output = _Output(said, quiet=quiet)
            self._exit = _exit_of(self._popen.pid)
            self.channel = _HostChannel(ours, self._exit)
            self._is_ended = False
            self._lock = threading.Lock()
            _forks().members.add(self)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._popen.pid

    def kill(self) -> None:
        """Kill it, with all it has started, and wake up who waits for it; from any thread."""
        with self._lock:
            if self._is_ended or self._popen.returncode is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                self.channel.socket.shutdown(socket.SHUT_RDWR)

    def let_go(self) -> None:
        """Tell it that nothing more will come, so that it ends in order."""
        with contextlib.suppress(OSError):
            self.channel.socket.shutdown(socket.SHUT_WR)

    def end(self, patience: float = _PATIENCE) -> int:
        """See it dead, by itself if it is about to be, close everything, and give its exit code; also twice."""
        _wait_for_exit(self._exit, self._popen, patience)
        self.kill()
        code = self._popen.wait()
        with self._lock:
            if not self._is_ended:
                self._is_ended = True
                self._close()
        return code

    def forked(self) -> None:
        """In a child that was forked: hold nothing that is the parent's."""
        if self._is_ended:
            return
        self._popen.returncode = 0  # it is not a child of this process
        self._is_ended = True
        self._close_files()
        self.output.abandon()

    def _close(self) -> None:
        self._close_files()
        self.output.close()

    def _close_files(self) -> None:
        self.channel.close()
        os.close(self._lifeline)
        if self._exit is not None:
            os.close(self._exit)


class _HostChannel(Channel):
    """The host's end: it waits no longer than it may, and sees the guest's death even if a child has its socket."""

    def __init__(self, end: socket.socket, exit_file: int | None) -> None:
        super().__init__(end)
        end.setblocking(False)
        self.deadline: float | None = None
        self._exit = exit_file

    def wait(self, *, to_write: bool) -> None:
        poll = select.poll()
        poll.register(self.socket, select.POLLOUT if to_write else select.POLLIN)
        if self._exit is not None:
            poll.register(self._exit, select.POLLIN)
        left = None if self.deadline is None else max(self.deadline - time.monotonic(), 0.0)
        ready = dict(poll.poll(None if left is None else left * 1000))
        if not ready:
            raise Elapsed
        if self.socket.fileno() not in ready:
            raise Lost


class _Output:
    """Reads what a guest writes to its standard streams, shows it, and keeps the end of it."""

    def __init__(self, file: int, *, quiet: bool) -> None:
        self._file, self._quiet = file, quiet
        self._tail = b""
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._read, name="shoal-guest-output", daemon=True)
        self._thread.start()

    def tail(self) -> str:
        """Give the last that was said."""
        return self._tail.decode(errors="replace").strip()

    def close(self) -> None:
        """Read what is left, and stop; a child of the guest may still hold the other end."""
        os.eventfd_write(self._wake, 1)
        if self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)
        if not self._thread.is_alive() or self._thread is threading.current_thread():
            self.abandon()

    def abandon(self) -> None:
        """Let go of the descriptors, without a word to a thread that reads them in the parent of this process."""
        os.close(self._file)
        os.close(self._wake)

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._file, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        text = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while True:
            ready = {file for file, _ in poll.poll()}
            if self._file not in ready:
                return
            data = os.read(self._file, 2**16)
            if not data:
                return
            self._tail = (self._tail + data)[-_TAIL:]
            if not self._quiet:
                _show(text.decode(data))


@cache
def _forks() -> Forks:
    return Forks()


def _started(
    environment: Environment, files: tuple[int, int], words: int, variables: dict[str, str]
) -> subprocess.Popen[bytes]:
    command = [environment.python, "-I", str(_SERVE), *map(str, files)]
    try:
        return subprocess.Popen(  # noqa: S603  (the interpreter that the user chose)
            command,
            env=environment.variables(variables),
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            pass_fds=files,
            start_new_session=True,  # Ctrl-C is for us, and its children end with it
        )
    except OSError as error:
        text = f"the environment {environment.name!r} is broken: {environment.python} cannot be run"
        raise WorkerEnvironmentError(f"{text}: {error.strerror}") from error


def _exit_of(pid: int) -> int | None:
    """Give a descriptor that becomes ready when a process ends, where the system has that."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _wait_for_exit(exit_file: int | None, popen: subprocess.Popen[bytes], seconds: float) -> None:
    if popen.returncode is not None:
        return
    if exit_file is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            popen.wait(seconds)
        return
    poll = select.poll()
    poll.register(exit_file, select.POLLIN)
    poll.poll(seconds * 1000)


def _show(text: str) -> None:
    with contextlib.suppress(AttributeError, OSError, ValueError):  # there is no standard error, or it is closed
        sys.stderr.write(text)
        sys.stderr.flush()
