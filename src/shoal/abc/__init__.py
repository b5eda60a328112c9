"""The contracts between the rooms: an abstract class for a duty, a protocol for a favour."""

from shoal.abc.engine import Engine, EngineInfo, Handle, SupportsNative, WorkerInfo
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
from shoal.abc.stream import Parcel, Pool, PoolReading, Step, Stream, Workers

__all__ = [
    "Batch",
    "Block",
    "Columns",
    "Engine",
    "EngineInfo",
    "Handle",
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
    "SupportsNative",
    "SupportsRandomAccess",
    "SupportsSplit",
    "WorkerInfo",
    "Workers",
]
