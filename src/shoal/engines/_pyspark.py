"""Spark as an engine: a collection is an RDD with one shard in each partition; Spark places, retries and spills it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import SparkContext, StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from shoal import settings
from shoal.abc import EngineInfo, Handle, Resources, WorkerInfo
from shoal.engines._checks import check_gang, checked, named
from shoal.engines._cluster import ClusterEngine
from shoal.engines._gang import Squad
from shoal.engines._message import joined, pack
from shoal.engines._native import filled, has_gaps, schema_of, table_of
from shoal.engines._pyspark_squad import SparkSquad
from shoal.engines._task import Split, Task, opened
from shoal.errors import WorkerDiedError

__all__ = ["SparkEngine", "SparkHandle"]

#: A task whose Python worker dies is tried so often. Spark's own local mode would try it once.
_ATTEMPTS = 4


class SparkHandle(Handle):
    """Shards as the messages in an RDD, one in each partition."""

    def __init__(self, rdd: Any, count: int) -> None:
        self.rdd, self._count = rdd, count

    def __len__(self) -> int:
        return self._count


class SparkEngine(ClusterEngine):
    """Runs tasks on Spark: in the active session, at the master of an address, or in this machine's processes."""

    def __init__(
        self, address: str | None = None, *, workers: int | None = None, memory: int | None = None, **options: Any
    ) -> None:
        active = SparkSession.getActiveSession()
        self.started_here = active is None and SparkContext._active_spark_context is None
        if active is None:
            active = _built(address, workers or settings.processors(), memory, options)
        self.session = active
        self.context: SparkContext = active.sparkContext
        self.ahead = 8 * max(self.context.defaultParallelism, 1)  # a fetch is a job, which takes a while to begin
        if self.started_here and address is None:
            self.context.pythonExec = sys.executable  # by itself Spark takes the first python3 that it finds

    @property
    def here(self) -> str:
        """The address of the driver, if executors are in other processes than it."""
        if self.context.master.startswith("local"):
            return super().here
        return str(self.context.getConf().get("spark.driver.host", super().here))

    def scatter(self, objects: Iterable[Any]) -> Handle:
        """Let Spark have objects, one in each partition."""
        messages = [bytes(pack(item)) for item in objects]
        return self._kept(self.context.parallelize(messages, max(len(messages), 1)), len(messages))

    def map(self, function: Callable[..., Any], *handles: Handle) -> Handle:
        """Treat each partition when it is wanted."""
        first, *others = checked(SparkHandle, handles)
        task, count, rows = Task.of(function, named(function)), len(first), first.rdd.map(_row)
        for other in others:
            rows = rows.zip(other.rdd).map(_longer)
        return self._kept(rows.mapPartitionsWithIndex(_caller(task, count)), count)

    def exchange(self, function: Callable[[Any], Sequence[Any]], handle: Handle, pieces: int) -> Handle:
        """Shuffle the pieces."""
        (found,) = checked(SparkHandle, [handle])
        split = Split(Task.of(function, named(function)), pieces)
        cut = found.rdd.mapPartitionsWithIndex(_cutter(split, len(found)))
        moved = cut.partitionBy(max(pieces, 1), _itself).mapPartitionsWithIndex(_collected, preservesPartitioning=True)
        return self._kept(moved, pieces)

    def free(self, handle: Handle) -> None:
        """Let Spark drop what it keeps."""
        (found,) = checked(SparkHandle, [handle])
        found.rdd.unpersist()

    def adopt(self, native: Any) -> Handle:
        """Make a frame of each partition of a DataFrame, by way of Arrow."""
        empty = to_arrow_schema(native.schema).empty_table()
        packed = native.mapInArrow(_packer(empty), "message binary").rdd.map(_bytes)
        return self._kept(packed.mapPartitions(_or_empty(empty)), native.rdd.getNumPartitions())

    def export(self, handle: Handle) -> Any:
        """Make a DataFrame of frames, or of dicts of arrays, by way of Arrow."""
        (found,) = checked(SparkHandle, [handle])
        schemas = self.map(schema_of, handle)
        schema = next(iter(self.gather(schemas, [0])))
        if has_gaps(schema):
            schema = filled(schema, self.gather(schemas))
        rows = self.session.createDataFrame(found.rdd.map(_row), "message binary")
        return rows.mapInArrow(_tables(schema), from_arrow_schema(schema))

    def describe(self) -> EngineInfo:
        """Name the master and its executors."""
        cores = self.context.defaultParallelism
        workers = (WorkerInfo("executors", self.context.getConf().get("spark.driver.host", "localhost"), cores),)
        return EngineInfo("spark", self.context.master, workers, self.started_here)

    def close(self) -> None:
        """End what was started here."""
        if self.started_here:
            self.session.stop()

    def _squad(self, size: int, resources: Resources, shards: Handle | None) -> Squad:
        conf = self.context.getConf()
        each = Resources(max(resources.cpus, float(conf.get("spark.task.cpus", "1"))), resources.gpus)
        gpus = float(conf.get("spark.executor.resource.gpu.amount", "0"))
        check_gang(size, each, Resources(self.context.defaultParallelism, gpus))
        rdd = None if shards is None else checked(SparkHandle, [shards])[0].rdd
        return SparkSquad(self.context, rdd, 0 if shards is None else len(shards))

    def _kept(self, rdd: Any, count: int) -> SparkHandle:
        return SparkHandle(rdd.persist(StorageLevel.MEMORY_AND_DISK), count)

    def _fetched(self, handle: Handle, numbers: Sequence[int]) -> list[bytes]:
        (found,) = checked(SparkHandle, [handle])
        try:
            return list(self.context.runJob(found.rdd, _all, numbers))
        except Exception as error:
            if "SparkException" in str(error) and "Python worker exited" in str(error):
                raise WorkerDiedError("workers died of a task, more often than Spark tries again") from error
            raise


def _built(address: str | None, workers: int, memory: int | None, options: dict[str, Any]) -> SparkSession:
    own = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if memory is not None:
        own["spark.driver.memory" if address is None else "spark.executor.memory"] = f"{max(memory // 2**20, 512)}m"
    builder: Any = SparkSession.builder
    builder = builder.appName("shoal").master(address or f"local[{workers},{_ATTEMPTS}]")
    given = own if address is None else {}
    for key, value in {**given, **{name.replace("__", "."): value for name, value in options.items()}}.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session


def _packer(empty: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def packed(batches: Iterator[Any]) -> Iterator[Any]:
        table = pa.Table.from_batches(list(batches), empty.schema)
        yield pa.record_batch({"message": pa.array([bytes(pack(table.to_pandas()))], pa.binary())})

    return packed


def _or_empty(empty: Any) -> Callable[[Iterator[bytes]], Iterator[bytes]]:
    """Give a partition without rows, of which Spark may say nothing, a frame without rows."""
    return lambda messages: iter(list(messages) or [bytes(pack(empty.to_pandas()))])


def _tables(schema: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def tables(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for message in batch.column(0):
                yield from table_of(opened(message.as_buffer())).cast(schema).to_batches()

    return tables


def _bytes(row: Any) -> bytes:
    return bytes(row[0])


def _row(message: Any) -> tuple[Any, ...]:
    return (message,)


def _longer(pair: tuple[tuple[Any, ...], Any]) -> tuple[Any, ...]:
    return (*pair[0], pair[1])


def _itself(number: int) -> int:
    return number


def _all(messages: Iterator[Any]) -> list[Any]:
    return list(messages)


def _caller(task: Task, count: int) -> Callable[[int, Iterator[Any]], Iterator[bytes]]:
    return lambda number, rows: (bytes(task(number, count, *row)) for row in rows)


def _cutter(split: Split, count: int) -> Callable[[int, Iterator[Any]], Iterator[tuple[int, tuple[int, bytes]]]]:
    def pieces(number: int, messages: Iterator[Any]) -> Iterator[tuple[int, tuple[int, bytes]]]:
        for message in messages:
            for place, piece in enumerate(split(number, count, message)):
                yield place, (number, bytes(piece))

    return pieces


def _collected(number: int, pairs: Iterator[tuple[int, tuple[int, bytes]]]) -> Iterator[bytes]:
    """Put the pieces of a partition into the order of the shards they are of."""
    pieces = sorted((piece for _, piece in pairs), key=_first)
    yield bytes(joined([piece for _, piece in pieces]))


def _first(pair: tuple[int, bytes]) -> int:
    return pair[0]
