"""The line to a Vineyard: a process of another environment that has its client, and what goes wrong on the way."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from shoal.environments import Environment, Guest, Kept
from shoal.errors import (
    GuestError,
    GuestTimeoutError,
    ObjectNotFoundError,
    StoreError,
    StoreFullError,
    WorkerEnvironmentError,
)
from shoal.store._ids import ObjectID

__all__ = ["Line"]

_INSIDE = Path(__file__).parent / "_inside_vineyard"

#: Its client tries ten times to connect, a second apart, unless it is told not to.
_VARIABLES = {"VINEYARD_IPC_SKIP_RETRY": "1"}

#: Seconds for the import of its client, and for its answer; a cold disk and a busy machine are slow.
_IMPORT, _CONNECT = 120.0, 60.0

_MISSING = ("ObjectNotExistsException", "MetaTreeSubtreeNotExistsException")
_LOST = ("ConnectionFailedException", "ConnectionErrorException", "IOErrorException")


class Line:
    """Calls functions of the guest, which is started with the first call, and again if it has ended."""

    def __init__(self, socket: str, environment: Environment | str | Path, timeout: float | None) -> None:
        self.socket, self.environment, self.timeout = socket, environment, timeout
        self._home, self._lock = os.getpid(), threading.Lock()
        self._guest: Guest | None = None
        self._client: Kept | None = None

    def call(self, verb: str, *arguments: Any, about: ObjectID | None = None) -> Any:
        """Call a function, with the client and arguments; ``about`` is the object that may be missing."""
        try:
            guest, client = self._both()
            return guest.call(f"shoal_vineyard_{verb}", client, *arguments)
        except GuestError as error:
            known = self._translated(error, about)
            if known is None:
                raise
            raise known from error

    def close(self) -> None:
        """End the guest."""
        if self._home != os.getpid():
            return
        with self._lock:
            guest, self._guest, self._client = self._guest, None, None
        if guest is not None:
            guest.close()

    def missing(self, wanted: ObjectID) -> ObjectNotFoundError:
        """Say that there is no such object."""
        return ObjectNotFoundError(f"there is no object {wanted} in the Vineyard at {self.socket}; it may be deleted")

    def _both(self) -> tuple[Guest, Kept]:
        if self._home != os.getpid():  # what a fork inherited is not its own
            self._home, self._lock, self._guest, self._client = os.getpid(), threading.Lock(), None, None
        with self._lock:
            if self._guest is None or not self._guest.is_alive:
                self._guest, self._client = self._started(), None
            if self._client is None:
                self._client = self._connected(self._guest)
            return self._guest, self._client

    def _started(self) -> Guest:
        guest = Guest(self.environment, path=[_INSIDE], variables=_VARIABLES, quiet=True)
        try:
            guest.call_within(_IMPORT, "vineyard:__version__.__str__")
        except GuestError as error:
            guest.close()
            text = f"the environment {guest.environment.name!r} has no Vineyard that works ({error})"
            raise WorkerEnvironmentError(f"{text}; `shoal env create vineyard` builds one that has") from error
        return guest

    def _connected(self, guest: Guest) -> Kept:
        """Connect; what listens there may be something else, which would let us wait for ever."""
        guest.timeout = _CONNECT if self.timeout is None else self.timeout
        try:
            return guest.keep("vineyard:connect", self.socket)
        except GuestTimeoutError as error:
            raise StoreError(f"what listens at {self.socket} does not answer as a Vineyard does") from error
        finally:
            guest.timeout = self.timeout

    def _translated(self, error: GuestError, about: ObjectID | None) -> StoreError | None:
        full = error.kind or ""
        kind, text = full.rpartition(".")[2], str(error).partition(f"{full}: ")[2].strip()
        if kind in _MISSING and about is not None:
            return self.missing(about)
        if kind == "NotEnoughMemoryException":
            return StoreFullError(f"there is no room in the Vineyard at {self.socket} ({text}); delete some objects")
        if kind in _LOST:
            self._client = None  # the next call connects anew
            return StoreError(f"the Vineyard at {self.socket} does not answer ({text}); is vineyardd running?")
        return StoreError(f"the Vineyard at {self.socket}: {text}") if full.startswith("vineyard.") else None
