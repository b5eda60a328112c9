"""Python objects and pandas frames in shards, processed in parallel with plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.data import pandas
    from shoal.data._shared import SharedValue
    from shoal.data._xshards import XShards

__all__ = ["SharedValue", "XShards", "pandas"]

__getattr__, __dir__ = attach(__name__, {"_shared": ("SharedValue",), "_xshards": ("XShards",), "pandas": ()})
