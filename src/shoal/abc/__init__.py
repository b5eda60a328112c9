"""The contracts between the rooms: an abstract class for a duty, a protocol for a favour."""

from shoal.abc.engine import Engine, Stream
from shoal.abc.source import Block, Sample, Shard, Source, SupportsRandomAccess, SupportsSplit

__all__ = ["Block", "Engine", "Sample", "Shard", "Source", "Stream", "SupportsRandomAccess", "SupportsSplit"]
