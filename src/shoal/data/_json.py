"""JSON as shards: parts of files that hold a record in each line, and other files as a whole."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import pandas as pd

from shoal.data._text import COMPRESSIONS, TextForm

__all__ = ["JsonForm"]


@dataclass(frozen=True)
class JsonForm(TextForm):
    """How JSON files are read: the options of `pandas.read_json`."""

    suffixes: tuple[str, ...] = (".json", ".jsonl", ".ndjson", *(f".json{end}" for end in COMPRESSIONS))
    squeeze = False
    as_text = False

    @property
    def quote(self) -> bytes:
        """None: in JSON a newline is never inside quotes."""
        return b""

    def can_be_cut(self, url: str) -> bool:
        """Tell whether a record is a line."""
        return self._by_line(url) and self.options.get("nrows") is None

    def parsed(self, data: io.BytesIO, url: str, options: dict[str, Any]) -> Any:
        """Let pandas parse."""
        return pd.read_json(data, **{**options, "lines": self._by_line(url)})

    def _by_line(self, url: str) -> bool:
        return bool(self.options.get("lines", url.lower().endswith((".jsonl", ".ndjson"))))
