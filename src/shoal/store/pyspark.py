"""Spark: data frames are put partition by partition by the executors that have them, and read by executors again."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from shoal._optional import require
from shoal._tables import as_table
from shoal.errors import PlanError, StoreError
from shoal.store._contexts import BuilderContext, ResolverContext, context, trusted
from shoal.store._globals import partition_ids
from shoal.store._meta import Object, ObjectMeta
from shoal.store._placing import Home, Placed, make_global

if TYPE_CHECKING:
    from shoal.store._base import BaseStore

__all__ = ["register_spark_types", "spark_context"]

spark: Any = require("pyspark", "shoal.store.pyspark")
sql: Any = require("pyspark.sql", "shoal.store.pyspark")
types: Any = require("pyspark.sql.pandas.types", "shoal.store.pyspark")

_PLACED = "number int, object_id long, owner long, typename string"
_SCHEMA = "schema_"


def register_spark_types(
    builder_ctx: BuilderContext | None = None, resolver_ctx: ResolverContext | None = None
) -> None:
    """Register what puts Spark data frames, and what makes them of stored frames in partitions; either may be None.

    Executors use their ``SHOAL_STORE``, or else the folder that is used here; ``put(df, store=folder)`` names another.
    Partitions are Arrow tables. Who reads one on another host fetches it from there, if the stores are joined.

    >>> from shoal.store import get_current_resolvers, resolver_context
    >>> with resolver_context() as resolvers:
    ...     register_spark_types(None, resolvers)
    ...     get_current_resolvers() is resolvers
    True
    """
    if builder_ctx is not None:
        builder_ctx.register(sql.DataFrame, build_frame)
    if resolver_ctx is not None:
        resolver_ctx.register("vineyard::GlobalDataFrame", resolve_frame)
        resolver_ctx.register("vineyard::GlobalShards", resolve_frame)


@contextmanager
def spark_context() -> Iterator[tuple[BuilderContext, ResolverContext]]:
    """Put and get Spark data frames for a while.

    >>> from shoal.store import get_current_resolvers
    >>> with spark_context() as (_, resolvers):
    ...     get_current_resolvers() is resolvers
    True
    """
    with context() as (builders, resolvers):
        register_spark_types(builders, resolvers)
        yield builders, resolvers


def build_frame(target: BaseStore, value: Any, /, store: Any = None) -> ObjectMeta:
    """Put the partitions of a data frame; the driver sees their names alone."""
    schema = types.to_arrow_schema(value.schema)
    rows = value.mapInArrow(_placer(Home.of(target, store), schema), _PLACED).collect()
    found = {row.number: Placed(row.object_id, row.owner, row.typename) for row in rows}
    return make_global(target, [found[number] for number in sorted(found)], {_SCHEMA: _text(schema)})


def resolve_frame(obj: Object, store: Any = None) -> Any:
    """Make a data frame of the partitions, each read by a task of its own."""
    session = sql.SparkSession.getActiveSession()
    if session is None:
        raise PlanError("there is no Spark session here; start one with SparkSession.builder.getOrCreate()")
    ids = partition_ids(obj)
    if not ids:
        raise StoreError(f"{obj!r} has no partitions, of which a data frame could be made")
    home, trust = Home.of(obj.store, store), trusted()
    numbers = session.range(0, len(ids), 1, len(ids))
    if _SCHEMA in obj.meta:
        schema = _schema(obj.meta[_SCHEMA])
    else:
        (row,) = numbers.limit(1).mapInArrow(_looker(home, ids[0], trust), "schema string").collect()
        schema = _schema(row.schema)
    return numbers.mapInArrow(_reader(home, ids, schema, trust), types.from_arrow_schema(schema))


def _placer(home: Home, schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def put(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(batches)
        table = pa.Table.from_batches(found) if found else schema.empty_table()
        placed = home.place(table)
        number = spark.TaskContext.get().partitionId()
        names = ["number", "object_id", "owner", "typename"]
        values = [number, placed.object_id, placed.owner, placed.typename]
        kinds = [pa.int32(), pa.int64(), pa.int64(), pa.string()]
        columns = [pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names)

    return put


def _reader(
    home: Home, ids: list[int], schema: pa.Schema, trust: bool
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from as_table(home.read(ids[number], trust)).cast(schema).to_batches()

    return read


def _looker(home: Home, object_id: int, trust: bool) -> Callable[[Iterable[Any]], Iterator[pa.RecordBatch]]:
    def look(batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            schema = as_table(home.read(object_id, trust)).schema.remove_metadata()
            yield pa.RecordBatch.from_pydict({"schema": [_text(schema)]})

    return look


def _text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
