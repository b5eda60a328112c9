"""What runs in a worker process: one item after the other, until the parent is gone."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cloudpickle

from shoal._malloc import keep_freed_memory
from shoal.engines._task import Caught
from shoal.engines.local._channel import Channel, Frame, Kind, Lost
from shoal.engines.local._packing import Packed

__all__ = ["serve"]


def serve(descriptor: int) -> None:
    """Work for the process at the other end of a socket; does not return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    end = socket.socket(fileno=descriptor)
    end.set_inheritable(False)
    os.register_at_fork(after_in_child=end.close)
    threading.Thread(target=_end_with_parent, args=(descriptor,), name="shoal-parent", daemon=True).start()
    keep_freed_memory()
    channel = Channel(end)
    try:
        work = _work(channel)
        while True:
            _answer(channel, work)
    except Lost:
        os._exit(0)
    except BaseException:  # a defect of ours: the parent sees the process end, and its output says why
        traceback.print_exc()
        os._exit(1)


def _end_with_parent(descriptor: int) -> None:
    """Wait until the parent is gone, in whatever way it went, and end, in the middle of whatever is being done."""
    poll = select.poll()
    poll.register(descriptor, 0)  # nothing but the end of the connection
    poll.poll()
    os._exit(0)


def _work(channel: Channel) -> Callable[[Any], Any]:
    """Get what is to be done; if it cannot be had here, every item is answered with the reason."""
    try:
        work: Callable[[Any], Any] = cloudpickle.loads(channel.receive().unpack())
    except Lost:
        raise
    except BaseException as error:
        reason, trace = error, error.__traceback__
    else:
        return work
    reason.add_note("the work could not be loaded in a worker process, which must be able to import what it uses")

    def refuse(item: Any) -> Any:
        raise reason.with_traceback(trace)

    return refuse


def _answer(channel: Channel, work: Callable[[Any], Any]) -> None:
    """Do the work on one item. Nothing refers to item and result when the answer leaves: their memory goes with it."""
    frame = channel.receive()
    kind, packed = _done(channel, work, frame)
    del frame
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # there is none, nobody reads it, it is closed
            stream.flush()  # the process will be killed, and what it said would be lost
    channel.send(kind, packed)


def _done(channel: Channel, work: Callable[[Any], Any], frame: Frame) -> tuple[Kind, Packed]:
    try:
        return Kind.RESULT, channel.pack(work(frame.unpack()))
    except BaseException as error:  # an exit or interrupt too: the parent waits for an answer
        return Kind.ERROR, channel.pack(Caught.of(error))
