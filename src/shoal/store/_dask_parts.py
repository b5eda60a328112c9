"""Partitions on Dask's workers: each is put, and read, by a worker whose host has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from shoal._optional import require
from shoal.errors import PlanError, StoreError
from shoal.store._contexts import trusted
from shoal.store._globals import partition_ids
from shoal.store._meta import Object, ObjectMeta
from shoal.store._placing import Copy, Home, Placed, make_global

if TYPE_CHECKING:
    from shoal.store._base import BaseStore

__all__ = ["Look", "Parts", "client_of", "dask", "distributed", "put_parts"]

dask: Any = require("dask", "shoal.store.dask")
distributed: Any = require("distributed", "shoal.store.dask")

#: Seconds after which somebody looks whether the workers that are waited for are still there.
_PATIENCE = 5.0


@contextmanager
def client_of(address: str | None, *, stays: bool = False) -> Iterator[Any]:
    """Give a client: the current one, if it is of that scheduler, or one that is closed again.

    One that ``stays`` becomes the current one: what holds futures needs it.
    """
    found = _current()
    if found is not None and address in (None, found.scheduler_info(n_workers=0)["address"]):
        yield found
        return
    if address is None:
        text = "there is no Dask client here; start one with distributed.Client(...)"
        raise PlanError(f"{text}, or say dask_scheduler='tcp://host:port'")
    made = distributed.Client(address, set_as_default=stays)
    try:
        with made.as_current():
            yield made
    except BaseException:
        made.close()
        raise
    if not stays:
        made.close()


def put_parts(
    client: Any,
    store: BaseStore,
    parts: Sequence[tuple[tuple[int, ...], Any]],
    keys: dict[str, Any],
    named: Any,
) -> ObjectMeta:
    """Let workers put partitions, each with its place, and make one object of them; all or nothing."""
    home = Home.of(store, named)
    done: dict[int, tuple[str, Placed]] = {}
    try:
        _place_all(client, home, parts, done)
        placed = [done[number][1] for number in range(len(parts))]
        made = make_global(store, placed, keys)
    except BaseException:
        _remove(client, home, done)
        raise
    elsewhere = {found.owner: worker for worker, found in done.values() if found.owner != store.instance_id}
    copy = Copy.of(made)
    client.gather([_pinned(client, copy.write, home, workers=[worker]) for worker in elsewhere.values()])
    return made


def _place_all(
    client: Any,
    home: Home,
    parts: Sequence[tuple[tuple[int, ...], Any]],
    done: dict[int, tuple[str, Placed]],
) -> None:
    """Put partitions where they are; Dask makes those of a lost worker again, and they are put where they are then."""
    while missing := [number for number in range(len(parts)) if number not in done]:
        futures = [parts[number][1] for number in missing]
        distributed.wait(futures)
        for future in futures:
            if future.status == "error":
                future.result()  # which says why; nothing is under way yet
        has = client.who_has(futures)
        waiting: dict[int, tuple[str, Any]] = {}
        for number in missing:
            index, future = parts[number]
            for worker in has[future.key][:1]:  # nobody, if it was lost just now
                task = _pinned(client, _placed, home, future, index, trusted(), workers=[worker])
                waiting[number] = worker, task
        _collect(client, waiting, done)


def _collect(client: Any, waiting: dict[int, tuple[str, Any]], done: dict[int, tuple[str, Placed]]) -> None:
    """Wait for what workers put, as long as they are there; of several failures the first is raised, at the end."""
    failed: list[Any] = []
    while waiting:
        tasks = [task for _, task in waiting.values()]
        try:
            distributed.wait(tasks, timeout=_PATIENCE)
        except TimeoutError:
            there = client.scheduler_info(n_workers=-1)["workers"]
            lost = [number for number, (worker, task) in waiting.items() if worker not in there and not task.done()]
            client.cancel([waiting.pop(number)[1] for number in lost])
        for number in [number for number, (_, task) in waiting.items() if task.done()]:
            worker, task = waiting.pop(number)
            if task.status == "finished":
                done[number] = worker, task.result()
            else:
                failed.append(task)
    if failed:
        failed[0].result()


def _remove(client: Any, home: Home, done: Mapping[int, tuple[str, Placed]]) -> None:
    """Delete what was put in vain; what the store of a lost worker has stays there."""
    for worker in {worker for worker, _ in done.values()} & {*client.scheduler_info(n_workers=-1)["workers"]}:
        own = [placed.object_id for where, placed in done.values() if where == worker]
        client.run(home.remove, own, workers=[worker])


class Look(NamedTuple):
    """What can be told of a partition without reading its values."""

    place: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: Any
    empty: Any
    """A frame without rows."""


class Parts:
    """The partitions of an object, with the workers whose stores have them."""

    def __init__(self, client: Any, obj: Object, workers: Mapping[Any, Any] | None, named: Any) -> None:
        self._client, self._home = client, Home.of(obj.store, named)
        self._ids = partition_ids(obj)
        self._owners = obj.meta["owners_"]
        if not self._ids:
            raise StoreError(f"{obj!r} has no partitions, of which a Dask collection could be made")
        self._workers = _named(workers) if workers is not None else _found(client, self._home)
        missing = {*self._owners} - {*self._workers}
        if missing:
            text = (
                f"no Dask worker has the store {min(missing)}, where {self._owners.count(min(missing))} partitions of"
            )
            raise StoreError(f"{text} {obj!r} are; start one on that host, or say dask_workers={{instance_id: worker}}")

    def looked(self) -> list[Look]:
        """Look at all of them, in one task for each store."""
        numbers = {owner: [n for n, own in enumerate(self._owners) if own == owner] for owner in {*self._owners}}
        tasks = [
            _pinned(
                self._client, _look, self._home, [self._ids[n] for n in some], trusted(), workers=self._workers[own]
            )
            for own, some in numbers.items()
        ]
        found: dict[int, Look] = {}
        for some, looks in zip(numbers.values(), self._client.gather(tasks), strict=True):
            found |= dict(zip(some, looks, strict=True))
        return [found[number] for number in range(len(self._ids))]

    def futures(self) -> list[Any]:
        """Let workers map them."""
        pairs = zip(self._ids, self._owners, strict=True)
        return [
            _pinned(self._client, _read, self._home, object_id, trusted(), workers=self._workers[owner])
            for object_id, owner in pairs
        ]


def _current() -> Any:
    try:
        return distributed.default_client()
    except ValueError:
        return None


def _pinned(client: Any, function: Any, *arguments: Any, workers: Sequence[str]) -> Any:
    return client.submit(function, *arguments, workers=list(workers), allow_other_workers=False, pure=False)


def _named(workers: Mapping[Any, Any]) -> dict[int, list[str]]:
    return {int(owner): [each] if isinstance(each, str) else list(each) for owner, each in workers.items()}


def _found(client: Any, home: Home) -> dict[int, list[str]]:
    """Ask each worker which store it has."""
    found: dict[int, list[str]] = {}
    for worker, owner in client.run(home.instance).items():
        found.setdefault(owner, []).append(worker)
    return found


def _placed(home: Home, value: Any, index: Sequence[int], trust: bool) -> Placed:
    if isinstance(value, np.generic):
        value = np.asarray(value)
    return home.place(value, index, trust)


def _read(home: Home, object_id: int, trust: bool) -> Any:
    found = home.read(object_id, trust)
    return found.to_pandas() if hasattr(found, "to_pandas") else found


def _look(home: Home, object_ids: Sequence[int], trust: bool) -> list[Look]:
    return [_look_at(home, object_id, trust) for object_id in object_ids]


def _look_at(home: Home, object_id: int, trust: bool) -> Look:
    meta = home.describe(object_id)
    found = home.read(object_id, trust)
    if isinstance(found, np.ndarray):
        return Look(tuple(meta.get("partition_index_", ())), found.shape, found.dtype, None)
    if hasattr(found, "to_pandas"):
        return Look((), (found.num_rows, found.num_columns), None, found.slice(0, 0).to_pandas())
    if not isinstance(found, pd.DataFrame | pd.Series):
        raise StoreError(f"partition {meta!r} is a {type(found).__name__}, and no frame")
    return Look((), found.shape, None, found.iloc[:0].copy())
