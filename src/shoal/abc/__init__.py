"""The contracts between the rooms: an abstract class for a duty, a protocol for a favour."""

from shoal.abc.engine import Engine, Parcel, Pool, PoolReading, Step, Stream, Workers
from shoal.abc.source import (
    Block,
    Columns,
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
    "Block",
    "Columns",
    "Engine",
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
