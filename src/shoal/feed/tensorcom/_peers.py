"""The receivers of one who sends: how many have to be told of the end, who has gone, and who has not read all."""

from __future__ import annotations

import fcntl
import struct
import termios
import time
from typing import Any

from shoal._optional import require
from shoal.feed.tensorcom._urls import Address
from shoal.feed.tensorcom._wire import Wire

__all__ = ["Peers"]

#: Seconds after which it is looked again whether all was read.
_PAUSE = 0.02
#: How often a socket has to be found empty: ZeroMQ may be about to write its last few kilobytes.
_SURE = 3


class Peers:
    """Counts who is at the other ends, by what ZeroMQ tells of its connections.

    Those who push have to know, because each message goes to one receiver alone. Those who publish tell all at once.
    """

    def __init__(self, wire: Wire) -> None:
        self._library: Any = require("zmq", "a Tensorcom connection")
        self._publishes = wire.kind == "PUB"
        self._places, self._is_local = 0, False
        self._accepted: set[int] = set()
        self._connected: set[int] = set()
        self._seen = False
        library = self._library
        wanted = library.EVENT_ACCEPTED | library.EVENT_CONNECTED | library.EVENT_DISCONNECTED
        self._events: Any = wire.socket.get_monitor_socket(wanted)

    def expect(self, address: Address) -> None:
        """Know of a place to connect to: messages wait there for a receiver, too."""
        self._places += not address.binds
        self._is_local |= address.transport == "ipc"

    def look(self) -> None:
        """Take note of who has come and gone. ZeroMQ waits for that when there is much to tell."""
        from zmq.utils.monitor import recv_monitor_message

        while self._events.poll(0):
            self._saw(recv_monitor_message(self._events))

    @property
    def count(self) -> int:
        """To how many places messages go."""
        self.look()
        return 1 if self._publishes else self._places + len(self._accepted)

    @property
    def all_gone(self) -> bool:
        """Whether there were receivers, and none is left."""
        self.look()
        return self._seen and not self._accepted and not self._connected

    @property
    def absent(self) -> int:
        """At how many places there was a receiver, or another had one, and nobody is now."""
        present = len(self._accepted) + len(self._connected)
        return max(self.count - present, 0) if self._seen else 0

    def settle(self, linger: float) -> None:
        """Wait until receivers have read what is on its way to them, as long as some do within so many seconds.

        This is for sockets of one host. If one closes while the other end has no room for more, ZeroMQ there takes that
        for a failure, and throws away what it has not read.
        """
        until, left, empty = time.monotonic() + linger, -1, 0
        while self._is_local and empty < _SURE and time.monotonic() < until:
            self.look()
            unread = sum(map(_unread, self._accepted | self._connected))
            until = until if unread == left else time.monotonic() + linger
            left, empty = unread, 0 if unread else empty + 1
            time.sleep(_PAUSE)

    def _saw(self, event: Any) -> None:
        kind, descriptor = event["event"], int(event["value"])
        if kind == self._library.EVENT_DISCONNECTED:
            self._accepted.discard(descriptor)
            self._connected.discard(descriptor)
            return
        self._seen = True
        (self._accepted if kind == self._library.EVENT_ACCEPTED else self._connected).add(descriptor)


def _unread(descriptor: int) -> int:
    """Count bytes of memory that what was written to a socket still takes."""
    try:
        count: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)))[0]
    except OSError:  # it has been closed meanwhile
        return 0
    return count
