"""Ray as an engine: a shard is an object in Ray's store, and Ray places, retries and spills it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import ray
import ray.data

from shoal.abc import EngineInfo, Handle, Resources, Step, Stream, WorkerInfo
from shoal.engines._checks import check_gang, checked, named
from shoal.engines._cluster import ClusterEngine
from shoal.engines._exchange import cut, groups_of, regrouped
from shoal.engines._gang import Squad
from shoal.engines._message import Loose, as_array
from shoal.engines._native import table_of
from shoal.engines._ray_actor import RayActor
from shoal.engines._ray_data import flowing
from shoal.engines._ray_squad import RaySquad
from shoal.engines._task import Split, Task, opened
from shoal.engines.local._engine import begun
from shoal.errors import WorkerDiedError

__all__ = ["RayEngine", "RayHandle"]

#: Bytes of a function that go with each task that uses it.
_SMALL = 2**16


class RayHandle(Handle):
    """Shards as references to their messages."""

    def __init__(self, references: Sequence[Any]) -> None:
        self.references = list(references)

    def __len__(self) -> int:
        return len(self.references)


class RayEngine(ClusterEngine):
    """Runs tasks on Ray: the one that is connected, that of an address, or one of its own on this machine."""

    ahead = 64  # they stay in Ray's store, which this process maps, until each is opened

    def __init__(
        self, address: str | None = None, *, workers: int | None = None, memory: int | None = None, **options: Any
    ) -> None:
        self.started_here = not ray.is_initialized()
        if self.started_here:
            quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
            own = {} if address else {"num_cpus": workers, "object_store_memory": memory, **quiet}
            ray.init(address=address, **{**own, **options})
        self._call = ray.remote(_call)
        self._cut = ray.remote(_cut)
        self._regrouped = ray.remote(_regrouped)

    @property
    def here(self) -> str:
        """The address of this node, if there are others."""
        own = str(ray.util.get_node_ip_address())
        nodes = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        return super().here if nodes == {own} else own

    def scatter(self, objects: Iterable[Any]) -> Handle:
        """Put objects into the store."""
        return RayHandle([ray.put(Loose.of(item)) for item in objects])

    def map(self, function: Callable[..., Any], *handles: Handle) -> Handle:
        """Start one task for each row of shards."""
        rows = zip(*(handle.references for handle in checked(RayHandle, handles)), strict=True)
        task, count = _sent(Task.of(function, named(function))), len(handles[0])
        return RayHandle([self._call.remote(task, number, count, *row) for number, row in enumerate(rows)])

    def exchange(self, function: Callable[[Any], Sequence[Any]], handle: Handle, pieces: int) -> Handle:
        """Cut shards in a task each, and put pieces together in a task for each group of them."""
        (found,) = checked(RayHandle, [handle])
        groups, count = groups_of(len(found), pieces), len(found)
        split = ray.put((Split(Task.of(function, named(function)), pieces), groups))
        start = self._cut.options(num_returns=len(groups))
        cuts = [start.remote(split, number, count, message) for number, message in enumerate(found.references)]
        rows = [[made] for made in cuts] if len(groups) == 1 else cuts
        made: list[Any] = []
        for group, messages in zip(groups, zip(*rows, strict=True) if rows else [()] * len(groups), strict=True):
            ends = self._regrouped.options(num_returns=len(group)).remote(len(group), *messages)
            made += [ends] if len(group) == 1 else ends
        return RayHandle(made)

    def stream(self, steps: Sequence[Step], *, memory: int, ahead: int = 1) -> Stream[Any, Any]:
        """Run streams here, beside whom they feed; what is done in processes is done by actors."""
        return begun(steps, memory, ahead, RayActor)

    def flow(self, items: Sequence[Any], steps: Sequence[Step]) -> Iterator[Any]:
        """Let Ray Data take items through steps, in whatever order is quickest."""
        return flowing(items, steps)

    def free(self, handle: Handle) -> None:
        """Forget the references; Ray forgets what nobody else needs."""
        (found,) = checked(RayHandle, [handle])
        found.references.clear()

    def adopt(self, native: Any) -> Handle:
        """Make a frame of each block of a Ray dataset."""
        frames = ray.remote(_packed_frame)
        return RayHandle([frames.remote(block) for block in native.to_arrow_refs()])

    def export(self, handle: Handle) -> Any:
        """Make a Ray dataset of frames, or of dicts of arrays."""
        (found,) = checked(RayHandle, [handle])
        tables = ray.remote(_table)
        return ray.data.from_arrow_refs([tables.remote(message) for message in found.references])

    def describe(self) -> EngineInfo:
        """List the nodes."""
        nodes = [node for node in ray.nodes() if node["Alive"]]
        workers = (
            WorkerInfo(f"node {node['NodeID'][:8]}", node["NodeManagerAddress"], node["Resources"].get("CPU", 0.0))
            for node in nodes
        )
        return EngineInfo("ray", ray.get_runtime_context().gcs_address, tuple(workers), self.started_here)

    def close(self) -> None:
        """End what was started here."""
        if self.started_here:
            ray.shutdown()

    def _squad(self, size: int, resources: Resources, shards: Handle | None) -> Squad:
        total = ray.cluster_resources()
        check_gang(size, resources, Resources(total.get("CPU", 0.0), total.get("GPU", 0.0)))
        references = [] if shards is None else checked(RayHandle, [shards])[0].references
        return RaySquad(resources, references)

    def _fetched(self, handle: Handle, numbers: Sequence[int]) -> list[Any]:
        (found,) = checked(RayHandle, [handle])
        try:
            return list(ray.get([found.references[number] for number in numbers]))
        except ray.exceptions.WorkerCrashedError as error:
            raise WorkerDiedError(f"workers died of a task, more often than Ray tries again: {error}") from error


def _sent(task: Task) -> Any:
    """Let a small function go with each task; a large one is put into the store, from which tasks have to fetch it."""
    return task if len(task.function) < _SMALL else ray.put(task)


def _packed_frame(table: Any) -> Any:
    return Loose.of(table.to_pandas())


def _table(message: Any) -> Any:
    return table_of(opened(message))


def _call(task: Task, number: int, count: int, *messages: Any) -> Any:
    return Loose.of(task.done(number, count, messages))


def _cut(split: tuple[Split, list[range]], number: int, count: int, message: Any) -> Any:
    made = [as_array(part) for part in cut(*split, number, count, message)]
    return made[0] if len(made) == 1 else made


def _regrouped(width: int, *messages: Any) -> Any:
    made = [as_array(part) for part in regrouped(messages, width)]
    return made[0] if width == 1 else made
