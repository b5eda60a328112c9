"""Steps as a pipeline of Ray Data, which schedules, scales and holds back as it does; order is not kept.

A row of Ray Data is the message of a parcel: what is in it is our business, and where it goes is Ray's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cloudpickle
import ray.data
from ray.data import ActorPoolStrategy

from shoal.abc import Step
from shoal.engines._message import pack, unpack
from shoal.engines._pickling import shipped
from shoal.engines._task import Caught

__all__ = ["flowing"]

_FIELD = "message"


def flowing(items: Sequence[Any], steps: Sequence[Step]) -> Iterator[Any]:
    """Take items through steps, of which the first makes any number of parcels of each."""
    if not items:
        return
    first, *others = steps
    rows = ray.data.from_items([{_FIELD: bytes(pack(item))} for item in items], override_num_blocks=len(items))
    rows = rows.flat_map(_Each(first), num_cpus=1 if first.pool.cpus is None else first.pool.cpus)
    for step in others:
        rows = rows.map(_Hand, fn_constructor_args=[_Each(step)], **_workers(step))
    rows.context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # it tells of each beginning and end
    for row in rows.iter_rows():
        found = unpack(row[_FIELD])
        if isinstance(found, Caught):
            raise found.revived()
        yield found


def _workers(step: Step) -> dict[str, Any]:
    """Say who does a step: actors, which build what they need once. Ray adds and removes some between the bounds."""
    least, most = (max(number, 1) for number in step.pool.bounds)
    # Those that nobody gave processors to take none, so that they never keep Ray from reading.
    cpus = 0 if step.pool.cpus is None else step.pool.cpus
    needs: dict[str, Any] = {"num_cpus": cpus, **({"num_gpus": step.pool.gpus} if step.pool.gpus else {})}
    return {"compute": ActorPoolStrategy(min_size=least, max_size=most), **needs}


class _Each:
    """Does a step on the messages of rows; what it raises goes on to who reads the result."""

    def __init__(self, step: Step) -> None:
        self._name, self._work = step.name, shipped(step.work, step.name)
        self._loaded: Callable[[Any], Any] | None = None

    def __reduce__(self) -> Any:
        return _each, (self._name, self._work)

    @property
    def __name__(self) -> str:
        return self._name

    def __call__(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Make any number of parcels of an item."""
        try:
            for parcel in self._function()(unpack(row[_FIELD])):
                yield {_FIELD: bytes(pack(parcel))}
        except Exception as error:
            yield {_FIELD: bytes(pack(Caught.of(error)))}

    def one(self, row: dict[str, Any]) -> dict[str, Any]:
        """Make one parcel of another."""
        parcel = unpack(row[_FIELD])
        if isinstance(parcel, Caught):
            return row
        try:
            return {_FIELD: bytes(pack(self._function()(parcel)))}
        except Exception as error:
            return {_FIELD: bytes(pack(Caught.of(error)))}

    def _function(self) -> Callable[[Any], Any]:
        if self._loaded is None:
            self._loaded = cloudpickle.loads(self._work)
        return self._loaded


class _Hand:
    """An actor that does a step."""

    def __init__(self, each: _Each) -> None:
        self._each = each

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return self._each.one(row)


def _each(name: str, work: bytes) -> _Each:
    made = _Each.__new__(_Each)
    made._name, made._work, made._loaded = name, work, None
    return made
