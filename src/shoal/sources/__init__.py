"""Where samples come from. Each source lists shards and opens one of them as a stream of blocks."""

from shoal.sources._arrow import ArrowSource
from shoal.sources._parquet import ParquetSource
from shoal.sources._tar import TarSource, Urls

__all__ = ["ArrowSource", "ParquetSource", "TarSource", "Urls"]
