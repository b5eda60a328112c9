"""Dask as an engine: a shard is a future, and Dask places, retries and spills it."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urlparse

import dask
import dask.array
import dask.bag
import dask.dataframe
from dask.distributed import Client, KilledWorker, SubprocessCluster, default_client

from shoal import settings
from shoal.abc import EngineInfo, Handle, Resources, WorkerInfo
from shoal.engines._checks import check_gang, checked, named
from shoal.engines._cluster import ClusterEngine
from shoal.engines._dask_squad import DaskSquad, Taken
from shoal.engines._exchange import cut, groups_of, regrouped
from shoal.engines._gang import Squad
from shoal.engines._message import pack
from shoal.engines._native import look
from shoal.engines._task import Split, Task, opened
from shoal.engines._wire import address_towards
from shoal.errors import WorkerDiedError

__all__ = ["DaskEngine", "DaskHandle"]

#: Bytes of a function that go with each task that uses it.
_SMALL = 2**16
_LOOPBACK = ("127.0.0.1", "localhost", "::1", None)
#: What the processes of a cluster run to end with the program that started it, however that ends.
_END_WITH = """
import os, threading, time

def dask_setup(server):
    threading.Thread(target=watch, daemon=True).start()

def watch():
    while os.getppid() == {parent}:
        time.sleep(0.5)
    os._exit(1)
"""


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
        self._cluster: Any = None
        self._taken = Taken()
        found = _current_client() if address is None else None
        if found is None and address is None:
            self._cluster = _own_cluster(workers or settings.processors(), memory, options)
            options = {}
        self.started_here = found is None
        self.client: Client = found or Client(self._cluster or address, set_as_default=False, **options)
        if self._cluster is not None:
            self.client.wait_for_workers(len(self._cluster.worker_spec))

    @property
    def here(self) -> str:
        """The address of this machine in the network of the scheduler, if that is elsewhere."""
        scheduler = urlparse(self.client.scheduler_info(n_workers=0)["address"]).hostname
        return super().here if scheduler in _LOOPBACK else address_towards(str(scheduler))

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
            with dask.config.set({"dataframe.convert-string": False}):  # cells may be arrays, and stay what they are
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

    def _squad(self, size: int, resources: Resources, shards: Handle | None) -> Squad:
        futures = [] if shards is None else checked(DaskHandle, [shards])[0].futures
        squad = DaskSquad(self.client, resources, futures, self._taken)
        own = 0 if self._cluster is None else len(self._cluster.worker_spec)  # one that died is there again soon
        have = len(squad.workers()) if resources.gpus or resources.cpus > 1 else max(len(squad.workers()), own)
        check_gang(size, Resources(1), Resources(have), unit="workers")
        return squad

    def _fetched(self, handle: Handle, numbers: Sequence[int]) -> list[bytes]:
        (found,) = checked(DaskHandle, [handle])
        try:
            return list(self.client.gather([found.futures[number] for number in numbers]))
        except KilledWorker as error:
            raise WorkerDiedError(f"workers died of a task, more often than Dask tries again: {error}") from error


def _own_cluster(workers: int, memory: int | None, options: dict[str, Any]) -> Any:
    """Start a cluster on this machine. Its processes are fresh interpreters: a script needs no guard around it."""
    limit = {} if memory is None else {"memory_limit": memory // workers}
    path = os.pathsep.join(entry for entry in sys.path if isinstance(entry, str))
    watch = _END_WITH.format(parent=os.getpid())
    each = {**limit, "env": {"PYTHONPATH": path}, "preload_nanny": [watch], **options.pop("worker_kwargs", {})}
    first = {"preload": [watch], **options.pop("scheduler_kwargs", {})}
    made = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    return SubprocessCluster(**{**made, "scheduler_kwargs": first, "worker_kwargs": each, **options})


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
