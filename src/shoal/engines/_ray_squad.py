"""The members of a gang as tasks of Ray."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from shoal.abc import Resources, dealt
from shoal.engines._gang import Squad
from shoal.engines._member import Call, leave, serve
from shoal.errors import ShoalError

__all__ = ["RaySquad"]

#: Processors of a worker that wants none: a place has to be made of something.
_HARDLY = 0.001
#: Seconds to wait for room that others have.
_ROOM = 120
#: Seconds for members to end by themselves, which they do when nobody listens to them any more, and between two looks.
_RETURN, _LOOK = 2.0, 0.02


class RaySquad(Squad):
    """Members as tasks in a placement group, so that all of them have room or none."""

    def __init__(self, resources: Resources, references: Sequence[Any]) -> None:
        self._bundle = {"CPU": resources.cpus or _HARDLY, **({"GPU": resources.gpus} if resources.gpus else {})}
        self._references = references
        self._group: Any = None
        self._tasks: list[Any] = []

    def start(self, call: Call) -> None:
        """Wait for room, and start a task for each member."""
        self._group = placement_group([self._bundle] * call.size)
        if not self._group.wait(_ROOM):
            text = f"Ray had no room for {call.size} workers with {self._bundle} each within {_ROOM} seconds"
            raise ShoalError(f"{call.name}: {text}; others use it")
        place = PlacementGroupSchedulingStrategy(self._group)
        options = {"num_cpus": self._bundle["CPU"], "num_gpus": self._bundle.get("GPU", 0), "max_retries": 0}
        start = ray.remote(_serve).options(scheduling_strategy=place, **options)
        sent = ray.put(call)
        for rank, mine in enumerate(dealt(len(self._references), call.size)):
            self._tasks.append(start.remote(sent, rank, *(self._references[number] for number in mine)))

    def missing(self) -> str | None:
        """Tell of a task that failed."""
        for task in ray.wait(self._tasks, num_returns=len(self._tasks), timeout=0)[0]:
            try:
                ray.get(task)
            except ray.exceptions.RayError as error:
                return f"a worker did not come: {error}"
        return None

    def stop(self) -> None:
        """Give the room back, with which Ray ends what still runs there.

        No task is cancelled: Ray aborts a program that cancels one at the moment of its return.
        """
        until = time.monotonic() + _RETURN
        while self._running() and time.monotonic() < until:
            time.sleep(_LOOK)
        self._tasks.clear()
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None

    def _running(self) -> list[Any]:
        if not self._tasks:
            return []
        _, running = ray.wait(self._tasks, num_returns=len(self._tasks), timeout=0, fetch_local=False)
        return list(running)


def _serve(call: Call, rank: int, *messages: Any) -> None:
    serve(call, rank, messages, leave)
