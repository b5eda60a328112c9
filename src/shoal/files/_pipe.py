"""Commands as files: their output is read, or their input is written."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
from typing import IO, TYPE_CHECKING, cast

from shoal.errors import TrustError, UrlError
from shoal.files._urls import display

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["PipeReader", "check_status", "check_trust", "end", "start"]

#: Seconds that a command gets to end by itself after it was asked to.
_GRACE = 5.0
#: A command that is cut off while writing, as itself and as a shell reports it.
_CUT_OFF = (-signal.SIGPIPE, 128 + signal.SIGPIPE)


def check_trust(url: str, trust: bool) -> None:
    """Refuse to run a command that nobody vouched for."""
    if not trust:
        raise TrustError(
            f"{display(url)!r} runs a shell command. If you know where it comes from, say so with trust=True"
        )


def start(url: str, *, stdin: int = subprocess.DEVNULL, stdout: int | None = None) -> subprocess.Popen[bytes]:
    """Run the command of a ``pipe:`` URL in a process group of its own, so that it can be ended with its children."""
    command = url.partition(":")[2]
    return subprocess.Popen(  # noqa: S602 - a shell is what was asked for, with trust=True
        command, shell=True, stdin=stdin, stdout=stdout, bufsize=0, start_new_session=True
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a command and its children, and leave no zombie."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        # Not yet reaped, the command keeps its number, and with it that of its group, even if it has ended by itself.
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)


def check_status(process: subprocess.Popen[bytes], url: str) -> None:
    """Wait for a command and raise if it failed."""
    status = process.wait()
    if status == 0 or status in _CUT_OFF:
        return
    how = f"was ended by signal {-status}" if status < 0 else f"failed with status {status}"
    raise UrlError(f"the command of {display(url)!r} {how}; its own messages are on stderr", url=display(url))


class PipeReader(io.RawIOBase):
    """The output of a command; its exit status is part of the stream, checked at the end."""

    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        super().__init__()
        self._url = url
        # A forked child inherits this object, but not the right to end the command.
        self._owner = os.getpid()
        self._process = process
        self._output = cast("IO[bytes]", process.stdout)

    def readable(self) -> bool:
        """Tell that this stream can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read some bytes; at the end, fail if the command did."""
        view = memoryview(buffer).cast("B")
        count = cast("io.FileIO", self._output).readinto(view) or 0
        if count == 0 and len(view):
            check_status(self._process, self._url)
        return count

    def close(self) -> None:
        """End the command if it still runs."""
        if not self.closed:
            if os.getpid() == self._owner:
                end(self._process)
            self._output.close()
        super().close()
