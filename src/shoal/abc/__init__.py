"""The contracts between the rooms: an abstract class for a duty, a protocol for a favour."""

from shoal.abc.device import Device
from shoal.abc.engine import Engine, EngineInfo, Handle, SupportsFlow, SupportsNative, WorkerInfo
from shoal.abc.framework import Framework
from shoal.abc.gang import Gang, Member, Resources, dealt
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
from shoal.abc.store import ObjectStore
from shoal.abc.stream import Parcel, Pool, PoolOptions, PoolReading, Step, Stream, Workers

__all__ = [
    "Batch",
    "Block",
    "Columns",
    "Device",
    "Engine",
    "EngineInfo",
    "Framework",
    "Gang",
    "Handle",
    "Listable",
    "Member",
    "ObjectStore",
    "Parcel",
    "Picks",
    "Pool",
    "PoolOptions",
    "PoolReading",
    "Resources",
    "Sample",
    "Shard",
    "Source",
    "Step",
    "Stream",
    "SupportsBatches",
    "SupportsColumns",
    "SupportsFlow",
    "SupportsNative",
    "SupportsRandomAccess",
    "SupportsSplit",
    "WorkerInfo",
    "Workers",
    "dealt",
]
