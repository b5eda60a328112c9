"""A socket of ZeroMQ: opened, bound or connected, and closed without leaving anything behind."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shoal._optional import require
from shoal.errors import PlanError, UrlError
from shoal.feed.tensorcom._terms import Terms, milliseconds
from shoal.feed.tensorcom._urls import Address

if TYPE_CHECKING:
    import zmq

__all__ = ["Wire"]

#: Seconds after which a wait looks whether there was a signal.
_PATIENCE = 0.2


class Wire:
    """A socket with a context of its own, for the process that opened it alone.

    Contexts are not shared: a fork would inherit one whose threads it does not have.
    """

    def __init__(self, kind: str, terms: Terms) -> None:
        library: Any = require("zmq", "a Tensorcom connection")
        self.kind = kind
        self.kept: list[Any] = []
        """What ZeroMQ may still read from; it lives as long as the context."""
        self.before_close: list[Callable[[float], None]] = []
        """What has to be waited for before the socket is closed."""
        self._library, self._home = library, os.getpid()
        self._context: zmq.Context[zmq.Socket[bytes]] = library.Context()
        self.socket = self._context.socket(getattr(library, kind))
        if terms.hwm is not None:
            self.socket.set_hwm(terms.hwm)
        # At the end of the program pyzmq frees what is still on its way; this is registered later, so it comes before.
        # The socket is held, because a context waits for one that only the garbage collector could still close.
        self._rest = self._context, self.socket, self.before_close, self.kept
        self._finalizer = weakref.finalize(self, _end, self._home, terms.linger, *self._rest)
        self._finalizer.atexit = False
        atexit.register(self._finalizer)

    def attach(self, address: Address, topic: str | None = None) -> Address:
        """Bind or connect to an address, and give it as it is then, with the port that was found."""
        self.check()
        self.socket.ipv6 = "[" in address.place
        try:
            if address.binds:
                self.socket.bind(address.location)
                address = self._found(address)
            else:
                self.socket.connect(address.location)
        except self._library.ZMQError as error:
            verb = "bound" if address.binds else "connected"
            hint = "; to bind takes an address of this host, or *" if address.binds else ""
            why = self._library.strerror(error.errno)
            raise UrlError(f"{address.url} cannot be {verb}: {why}{hint}", url=address.url) from error
        if self.kind == "SUB":
            self.socket.subscribe(address.topic if topic is None else topic)
        return address

    @property
    def is_mine(self) -> bool:
        """Whether this process opened it, and not one that this is a fork of."""
        return os.getpid() == self._home

    def check(self) -> None:
        """Refuse to be used by a fork."""
        if not self.is_mine:
            raise PlanError("a connection belongs to the process that opened it; open another one after a fork")

    def is_ready(self, seconds: float = _PATIENCE) -> bool:
        """Wait for a message, or for room for one; not so long that Ctrl-C goes unheard.

        A signal that comes just before the system call interrupts nothing. And one that pyzmq notices while it lets go
        of a message is lost, so nothing is received or sent before it is known to succeed.
        """
        kind = self._library.POLLOUT if self.kind in ("PUSH", "PUB") else self._library.POLLIN
        return bool(self.socket.poll(milliseconds(min(seconds, _PATIENCE)), kind))

    def close(self, linger: float) -> None:
        """Close the socket; what was not taken within so many seconds is lost."""
        atexit.unregister(self._finalizer)
        if self._finalizer.detach() is not None:
            _end(self._home, linger, *self._rest)

    def _found(self, address: Address) -> Address:
        if not address.place.endswith((":*", ":0")):
            return address
        return address.bound_to(self.socket.get(self._library.LAST_ENDPOINT).decode().rstrip("\0"))


def _end(home: int, linger: float, context: Any, socket: Any, waits: list[Callable[[float], None]], kept: Any) -> None:
    if linger and os.getpid() == home:
        for wait in waits:
            wait(linger)
    context.destroy(linger=milliseconds(linger))  # in a fork this only forgets: pyzmq looks whose socket it is
    kept.clear()
