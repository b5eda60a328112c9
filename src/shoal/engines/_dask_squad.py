"""The members of a gang as tasks on the workers of a Dask cluster, each on one of its own.

Dask does not end a task that runs. A member whose gang was ended is interrupted where it is; if it does not notice,
because it waits in some library, its worker is started anew.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

from shoal.abc import Resources, dealt
from shoal.engines._gang import Squad
from shoal.engines._member import Call, serve
from shoal.errors import ShoalError

__all__ = ["DaskSquad", "Taken"]

#: Seconds for members to notice that they are not needed any more.
_PATIENCE = 5.0
#: Seconds for a worker that died to be there again.
_RETURN = 60.0
#: How the keys of members begin.
_MEMBER = "shoal-member-"


class Taken:
    """Workers on which members of this program's gangs are, or are about to be."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.places: set[str] = set()


class DaskSquad(Squad):
    """Members on workers that have the resources, one on each."""

    def __init__(self, client: Any, resources: Resources, futures: Sequence[Any], taken: Taken) -> None:
        self._client, self._resources, self._futures, self._taken = client, resources, futures, taken
        self._places: list[str] = []
        self._tasks: list[Any] = []

    def workers(self) -> list[str]:
        """List the workers that could be members."""
        wanted, found = self._resources, self._client.scheduler_info(n_workers=-1)["workers"]
        return [
            address
            for address, worker in found.items()
            if worker["nthreads"] >= wanted.cpus and worker.get("resources", {}).get("GPU", 0) >= wanted.gpus
        ]

    def start(self, call: Call) -> None:
        """Start a task on each of so many workers."""
        late = time.monotonic() + _RETURN
        while not self._took(call.size):
            if time.monotonic() > late:
                text = f"{len(self._free())} workers are free, and {call.size} are needed"
                raise ShoalError(f"{call.name}: {text}; others have members of gangs, or have not come back")
            time.sleep(0.1)
        sent = self._client.submit(_itself, call, pure=False)
        for rank, mine in enumerate(dealt(len(self._futures), call.size)):
            shards = [self._futures[number] for number in mine]
            place = {"workers": [self._places[rank]], "allow_other_workers": False}
            if self._resources.gpus:
                place["resources"] = {"GPU": self._resources.gpus}
            key = f"{_MEMBER}{uuid4()}"
            self._tasks.append(self._client.submit(_serve, sent, rank, shards, key=key, **place))

    def _took(self, count: int) -> bool:
        """Take so many workers, if they are free."""
        with self._taken.lock:
            free = self._free()
            if len(free) < count:
                return False
            self._places = free[:count]
            self._taken.places |= set(self._places)
        return True

    def _free(self) -> list[str]:
        """List the workers on which no member of another gang is: it could not begin before that one ends."""
        theirs = [place for place, keys in self._client.processing().items() if any(map(_is_member, keys))]
        return [place for place in self.workers() if place not in {*theirs, *self._taken.places}]

    def missing(self) -> str | None:
        """Tell of a task that failed."""
        failed = next((task for task in self._tasks if task.status == "error"), None)
        return None if failed is None else f"a worker did not come: {failed.exception()!r}"

    def stop(self) -> None:
        """Wait until no task runs any more, and start workers anew on which one still does."""
        late = time.monotonic() + _PATIENCE
        while (busy := self._busy()) and time.monotonic() < late:
            time.sleep(0.05)
        self._client.cancel(self._tasks, force=True)
        self._tasks.clear()
        if busy:
            self._client.restart_workers(busy, raise_for_error=False)
        with self._taken.lock:
            self._taken.places -= set(self._places)

    def _busy(self) -> list[str]:
        mine = {task.key for task in self._tasks}
        return [place for place, keys in self._client.processing().items() if not mine.isdisjoint(keys)]


class _Ended(BaseException):
    """Raised in the middle of what a member does, when nobody waits for it any more."""


def _serve(call: Call, rank: int, messages: list[Any]) -> None:
    with suppress(_Ended):
        serve(call, rank, messages, partial(_interrupt, threading.get_ident()))


def _is_member(key: Any) -> bool:
    return str(key).startswith(_MEMBER)


def _interrupt(thread: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_Ended))


def _itself(value: Any) -> Any:
    return value
