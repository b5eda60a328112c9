"""Tables of all kinds of columns, and files of them."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from shoal.abc import Sample, Source

MOMENTS = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1))

SCALARS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **{pa.type_for_alias(f"int{bits}"): st.integers(-(2**bits) // 2, 2**bits // 2 - 1) for bits in (8, 16, 32, 64)},
    **{pa.type_for_alias(f"uint{bits}"): st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=5),
    pa.large_string(): st.text(max_size=5),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["a", "b", ""]),
    pa.binary(): st.binary(max_size=5),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("ms", "UTC"): MOMENTS.map(lambda at: at.replace(microsecond=0, tzinfo=UTC)),
    pa.date32(): st.dates(date(1900, 1, 1), date(2200, 1, 1)),
    pa.time64("us"): st.times().map(lambda at: at.replace(tzinfo=None)),
    pa.duration("us"): st.integers(-(10**9), 10**9).map(lambda n: timedelta(microseconds=n)),
    pa.decimal128(9, 2): st.integers(-(10**6), 10**6).map(lambda n: Decimal(n).scaleb(-2)),
    pa.null(): st.none(),
}


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda kind: pa.list_(kind, 2)),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.lists(inner, min_size=1, max_size=2).map(lambda kinds: pa.struct(list(zip("pq", kinds, strict=False)))),
    )


#: Types of columns that Parquet and Arrow files have in common.
TYPES = st.recursive(st.sampled_from(list(SCALARS)), _nested, max_leaves=4)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values that a column of a type may have, None among them."""
    if kind in SCALARS:
        return st.none() | SCALARS[kind]
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    if pa.types.is_map(kind):
        return st.none() | st.lists(st.tuples(st.text(max_size=2), values_of(kind.item_type)), max_size=2)
    size = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    items = st.lists(values_of(kind.value_type), min_size=size or 0, max_size=3 if size is None else size)
    return st.none() | items


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 12) -> pa.Table:
    """A table of some columns with random types."""
    rows = draw(st.integers(0, max_rows))
    kinds = draw(st.lists(TYPES, min_size=1, max_size=3))
    columns = [pa.array(draw(st.lists(values_of(k), min_size=rows, max_size=rows)), k) for k in kinds]
    return pa.table(columns, names=[f"c{number}" for number in range(len(kinds))])


def plain(value: Any) -> Any:
    """Undo the arrays in a value, so that it can be compared."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def expected(table: pa.Table, stem: str = "a", first: int = 0) -> list[Sample]:
    """The samples that a table should give, without arrays."""
    rows = enumerate(table.to_pylist(), first)
    return [{"__key__": f"{stem}-{number:09d}", **plain(row)} for number, row in rows]


def all_samples(source: Source) -> list[Sample]:
    """Read a source from end to end."""
    return [sample for shard in source.shards() for block in source.open(shard) for sample in block.samples]


def numbered(rows: int, start: int = 0) -> pa.Table:
    """A small table with a number in each row."""
    numbers = range(start, start + rows)
    vectors = [np.full(3, number, np.float32) for number in numbers]
    columns = {"n": list(numbers), "text": [f"t{number}" for number in numbers], "v": vectors}
    return pa.table(columns, schema=pa.schema({"n": pa.int64(), "text": pa.string(), "v": pa.list_(pa.float32())}))


def parquet(table: pa.Table, rows: int = 1000, **options: Any) -> bytes:
    """Write a Parquet file with so many rows in a group."""
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=rows, **options)
    return sink.getvalue()


def arrow(table: pa.Table, rows: int = 1000, *, stream: bool = False, compression: str | None = None) -> bytes:
    """Write an Arrow file or stream with so many rows in a batch."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue()
