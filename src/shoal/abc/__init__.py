"""The contracts between the rooms: an abstract class for a duty, a protocol for a favour."""

from shoal.abc.engine import Engine, Parcel, Pool, PoolReading, Step, Stream, Workers
from shoal.abc.source import (
    Batch,
    Block,
    Columns,
    Listable,
    Picks,
    Sample,
    Shard,
    Source,
    SupportsBatches,
    SupportsColumns,
    SupportsRandomAccess,
    SupportsSplit,
)

__all__ = [
    "Batch",
    "Block",
    "Columns",
    "Engine",
    "Listable",
    "Parcel",
    "Picks",
    "Pool",
    "PoolReading",
    "Sample",
    "Shard",
    "Source",
    "Step",
    "Stream",
    "SupportsBatches",
    "SupportsColumns",
    "SupportsRandomAccess",
    "SupportsSplit",
    "Workers",
]
