"""Dask as an engine: a shard is a future, and Dask places, retries and spills it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import dask
import dask.array
import dask.bag
import dask.dataframe
from dask.distributed import Client, KilledWorker, LocalCluster, default_client

from shoal import settings
from shoal.abc import EngineInfo, Handle, WorkerInfo
from shoal.engines._checks import checked, named
from shoal.engines._cluster import ClusterEngine
from shoal.engines._exchange import cut, groups_of, regrouped
from shoal.engines._message import pack
from shoal.engines._native import look
from shoal.engines._task import Split, Task, opened
from shoal.errors import WorkerDiedError

__all__ = ["DaskEngine", "DaskHandle"]

#: Bytes of a function that go with each task that uses it.
_SMALL = 2**16


class DaskHandle(Handle):
    """Shards as futures of their messages."""

    def __init__(self, futures: Sequence[Any]) -> None:
        self.futures = list(futures)

    def __len__(self) -> int:
        return len(self.futures)


class DaskEngine(ClusterEngine):
    """Runs tasks on a Dask cluster: the current client's, that of an address, or one of its own on this machine."""

    def __init__(
        self, address: str | None = None, *, workers: int | None = None, memory: int | None = None, **options: Any
    ) -> None:
        self._cluster: LocalCluster | None = None
        found = _current_client() if address is None else None
        if found is None and address is None:
            limit = "auto" if memory is None else memory // max(workers or settings.processors(), 1)
            made = {"n_workers": workers or settings.processors(), "threads_per_worker": 1, "memory_limit": limit}
            self._cluster = LocalCluster(**{**made, "dashboard_address": None, **options})
            options = {}
        self.started_here = found is None
        self.client: Client = found or Client(self._cluster or address, set_as_default=False, **options)

    def scatter(self, objects: Iterable[Any]) -> Handle:
        """Hand objects to the scheduler: what is sent to a worker alone would be lost with it."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            return DaskHandle([self._submit(_itself, bytes(pack(item))) for item in objects])

    def map(self, function: Callable[..., Any], *handles: Handle) -> Handle:
        """Submit one task for each row of shards."""
        rows = zip(*(handle.futures for handle in checked(DaskHandle, handles)), strict=True)
        task, count = self._sent(Task.of(function, named(function))), len(handles[0])
        return DaskHandle([self._submit(_call, task, number, count, *row) for number, row in enumerate(rows)])

    def exchange(self, function: Callable[[Any], Sequence[Any]], handle: Handle, pieces: int) -> Handle:
        """Cut shards in a task each, and put pieces together in a task for each group of them."""
        (found,) = checked(DaskHandle, [handle])
        groups, count = groups_of(len(found), pieces), len(found)
        split = self._sent(Split(Task.of(function, named(function)), pieces))
        cuts = [self._submit(_cut, split, groups, number, count, shard) for number, shard in enumerate(found.futures)]
        made: list[Any] = []
        for number, group in enumerate(groups):
            messages = [self._submit(_picked, parts, number) for parts in cuts]
            shards = self._submit(_regrouped, messages, len(group))
            made += [self._submit(_picked, shards, place) for place in range(len(group))]
        return DaskHandle(made)

    def free(self, handle: Handle) -> None:
        """Release the futures; Dask forgets what nobody else needs."""
        (found,) = checked(DaskHandle, [handle])
        for future in found.futures:
            future.release()
        found.futures.clear()

    def adopt(self, native: Any) -> Handle:
        """Take the partitions of a data frame, an array or a bag."""
        parts = native.to_delayed()
        futures = self.client.compute(list(parts.ravel() if hasattr(parts, "ravel") else parts))
        return DaskHandle([self._submit(_packed, future) for future in futures])

    def export(self, handle: Handle) -> Any:
        """Make a data frame of frames, an array of arrays (one below the other), or a bag of lists."""
        (found,) = checked(DaskHandle, [handle])
        parts = [self._submit(opened, future) for future in found.futures]
        looks = self.client.gather([self._submit(look, part) for part in parts])
        delayed = [dask.delayed(_itself)(part) for part in parts]
        if looks[0].kind == "frame":
            return dask.dataframe.from_delayed(delayed, meta=looks[0].empty, verify_meta=False)
        if looks[0].kind == "array":
            pairs = zip(delayed, looks, strict=True)
            arrays = [dask.array.from_delayed(part, seen.shape, dtype=seen.dtype) for part, seen in pairs]
            return dask.array.concatenate(arrays)
        return dask.bag.from_delayed(delayed)

    def describe(self) -> EngineInfo:
        """List the workers of the cluster."""
        info = self.client.scheduler_info(n_workers=-1)
        workers = (
            WorkerInfo(str(worker["name"]), worker["host"], worker["nthreads"]) for worker in info["workers"].values()
        )
        return EngineInfo("dask", info["address"], tuple(workers), self.started_here)

    def close(self) -> None:
        """End what was started here."""
        if self.started_here:
            self.client.close()
        if self._cluster is not None:
            self._cluster.close()

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.client.submit(function, *arguments, pure=False)

    def _sent(self, task: Task | Split) -> Any:
        """Send a large function to the cluster once, and not with every task."""
        inner = task.task if isinstance(task, Split) else task
        return task if len(inner.function) < _SMALL else self._submit(_itself, task)

    def _fetched(self, handle: Handle, numbers: Sequence[int]) -> list[bytes]:
        (found,) = checked(DaskHandle, [handle])
        try:
            return list(self.client.gather([found.futures[number] for number in numbers]))
        except KilledWorker as error:
            raise WorkerDiedError(f"workers died of a task, more often than Dask tries again: {error}") from error


def _current_client() -> Client | None:
    try:
        return default_client()
    except ValueError:
        return None


def _call(task: Task, number: int, count: int, *messages: Any) -> bytes:
    return bytes(task(number, count, *messages))


def _packed(value: Any) -> bytes:
    return bytes(pack(value))


def _itself(value: Any) -> Any:
    return value


def _cut(split: Split, groups: Sequence[range], number: int, count: int, message: bytes) -> list[bytes]:
    return list(map(bytes, cut(split, groups, number, count, message)))


def _regrouped(messages: list[bytes], width: int) -> list[bytes]:
    return list(map(bytes, regrouped(messages, width)))


def _picked(messages: list[bytes], number: int) -> bytes:
    return messages[number]
