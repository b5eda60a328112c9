"""A step of a stream that is done by an actor of Ray's, wherever Ray has what it needs."""

from __future__ import annotations

from typing import Any

import cloudpickle
import ray

from shoal.abc import Step
from shoal.engines._message import Loose, unpack
from shoal.engines._pickling import shipped
from shoal.engines._task import Caught
from shoal.engines.local._remote import RemoteClosed
from shoal.errors import WorkerDiedError

__all__ = ["RayActor"]

_ATTEMPTS = 2  # a block that kills its actor twice is to blame


class RayActor:
    """Does a step in an actor; one call at a time, in the order in which they are made."""

    pid = None

    def __init__(self, step: Step) -> None:
        self.deaths = 0
        self._name, self._work = step.name, shipped(step.work, step.name)
        self._needs = {"num_cpus": 1 if step.pool.cpus is None else step.pool.cpus, "num_gpus": step.pool.gpus}
        self._actor: Any = None
        self._closed = False

    def __call__(self, item: Any) -> Any:
        """Do the step on one item; an item whose actor dies is given to a fresh one, once."""
        message = ray.put(Loose.of(item))
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return _opened(ray.get(self._running().work.remote(message)))
            except ray.exceptions.RayActorError as error:
                if self._closed:
                    raise RemoteClosed from None
                self._actor = None
                self.deaths += 1
                if attempt == _ATTEMPTS:
                    text = f"{self._name}: its actor died while it worked on a block; a second one, so it was given up"
                    raise WorkerDiedError(f"{text}: {error}") from error
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Kill the actor at once."""
        self._closed = True
        if self._actor is not None and ray.is_initialized():
            ray.kill(self._actor)

    def _running(self) -> Any:
        if self._closed:
            raise RemoteClosed
        if self._actor is None:
            self._actor = ray.remote(_Hand).options(**self._needs).remote(self._work)
        return self._actor


class _Hand:
    def __init__(self, work: bytes) -> None:
        self._work = cloudpickle.loads(work)

    def work(self, message: Any) -> Any:
        try:
            return Loose.of(self._work(unpack(message)))
        except BaseException as error:  # an exit too: somebody waits for an answer
            return Loose.of(Caught.of(error))


def _opened(message: Any) -> Any:
    value = unpack(message)
    if isinstance(value, Caught):
        raise value.revived()
    return value
