"""Python objects and pandas frames in shards, processed in parallel with plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.data import file, huggingface, image, pandas, transformer
    from shoal.data._shared import SharedValue
    from shoal.data._table_source import CsvSource, JsonSource
    from shoal.data._xshards import XShards

__all__ = ["CsvSource", "JsonSource", "SharedValue", "XShards", "file", "huggingface", "image", "pandas", "transformer"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "_shared": ("SharedValue",),
        "_table_source": ("CsvSource", "JsonSource"),
        "_xshards": ("XShards",),
        "file": (),
        "huggingface": (),
        "image": (),
        "pandas": (),
        "transformer": (),
    },
)
